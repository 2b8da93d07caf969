// Calls with a token: its header, and the rule for a token that the API refuses. A process reports it once, only
// the refused call waits for another one, and a call that is refused with that one, too, is refused for a reason
// of its own.
import { monotonicMs } from '../lib/clock.ts'
import type { RejectResult } from '../protocol.ts'
import {
  badRequest,
  type Authorization,
  type AuthorizeOptions,
  type ClientToken,
  type TokenSource,
} from './token-source.ts'

/** How long a refused call waits for another token. */
const WAIT_SECONDS = 10
/** For this long the refusals of a place that refused two tokens concern their callers alone. */
const OWN_MS = 5 * 60_000
/** So many reports and places are remembered: a call with an earlier token may be refused some tokens later. */
const MAX_REMEMBERED = 64

/** An authorization for a call that the client makes itself. */
interface Admission extends Authorization {
  /** `isFinal`: the call cannot be repeated, so the token is reported, and no other one awaited. */
  readonly refused: (call?: { isFinal?: boolean }) => Promise<Admission | undefined>
}
type Authorize = (call?: AuthorizeOptions) => Promise<Admission>

/** `reject` reports the token with this fingerprint to the daemon. */
export function createAuthorize(
  get: TokenSource['get'],
  reject: (fingerprint: string) => Promise<RejectResult>,
) {
  /** The daemon's answers, by fingerprint. */
  const reports = new Map<string, Promise<RejectResult>>()
  /** Places that refuse for reasons of their own, each with the time until which that is believed, in ms. */
  const ownUntilMs = new Map<string, number>()

  /** Reports the token, also one that was reported before. */
  function report(fingerprint: string): Promise<RejectResult> {
    const answer = reject(fingerprint)
    remember(reports, fingerprint, answer)
    // It did not reach the daemon.
    answer.catch(() => reports.delete(fingerprint))
    return answer
  }

  /** Another token than this one; undefined: none comes in time, or there is no daemon. */
  async function tokenAfter(
    { fingerprint }: ClientToken,
    signal: AuthorizeOptions['signal'],
  ): Promise<ClientToken | undefined> {
    const wish = { notFingerprint: fingerprint, waitSeconds: WAIT_SECONDS, signal }
    const next = await get(wish).catch(() => undefined)
    signal?.throwIfAborted()
    return next?.fingerprint === fingerprint ? undefined : next
  }

  const authorize: Authorize = async ({ url, method = 'GET', signal, minValidSeconds } = {}) => {
    const place = url === undefined ? undefined : placeOf(url, method)
    const token = await get({ minValidSeconds, signal })
    return admissionOf(token, async ({ isFinal = false } = {}) => {
      signal?.throwIfAborted()
      if (place !== undefined && (ownUntilMs.get(place) ?? 0) > monotonicMs()) return undefined
      const { fingerprint } = token
      const result = await (reports.get(fingerprint) ?? report(fingerprint)).catch(() => undefined)
      signal?.throwIfAborted()
      const next = isFinal || !canFollow(result) ? undefined : await tokenAfter(token, signal)
      if (next === undefined) return undefined
      return admissionOf(next, async () => {
        if (place !== undefined) remember(ownUntilMs, place, monotonicMs() + OWN_MS)
        return undefined
      })
    })
  }

  return {
    authorize,
    report,
    /** Reports whether this process reported the token. */
    wasReported: ({ fingerprint }: ClientToken): boolean => reports.has(fingerprint),
  }
}

function admissionOf(token: ClientToken, refused: Admission['refused']): Admission {
  return { headers: { [token.header]: `${token.prefix}${token.accessToken}` }, token, refused }
}

/** Method, origin and path of a call. Throws `bad-request`. */
function placeOf(url: string | URL, method: string): string {
  if (!URL.canParse(String(url))) throw badRequest('url must be an absolute URL.')
  const { origin, pathname } = new URL(url)
  return `${method.toUpperCase()} ${origin}${pathname}`
}

/** Reports whether another token may come while a call waits. */
function canFollow(result: RejectResult | undefined): boolean {
  if (result === undefined || ['refused', 'unchanged'].includes(result.verdict)) return false
  return result.verdict !== 'held' || (result.retryAfterSeconds ?? 0) <= WAIT_SECONDS
}

/** Sets the entry; of too many the oldest goes. */
function remember<T>(entries: Map<string, T>, key: string, value: T): void {
  entries.delete(key)
  entries.set(key, value)
  const [oldest] = entries.keys()
  if (entries.size > MAX_REMEMBERED && oldest !== undefined) entries.delete(oldest)
}

/** `origins`: those that may get the token; undefined: that of the service's `baseUrl` alone. */
export function createFetch(
  origins: readonly string[] | undefined,
  authorize: Authorize,
): TokenSource['fetch'] {
  function isAllowed({ origin }: URL, { baseUrl }: ClientToken): boolean {
    return (origins ?? [new URL(baseUrl).origin]).includes(origin)
  }

  return async (input, init = {}) => {
    const request = input instanceof Request ? input : undefined
    const url = new URL(input instanceof Request ? input.url : input)
    const method = (init.method ?? request?.method ?? 'GET').toUpperCase()
    const { signal = request?.signal } = init

    async function send({ headers: own, token }: Admission): Promise<Response> {
      const headers = new Headers(init.headers ?? request?.headers)
      for (const [name, value] of Object.entries(own)) headers.set(name, value)
      // The platform takes only `Authorization` from a redirect that leads to another origin.
      const isSafe = token.header.toLowerCase() === 'authorization'
      const redirect = init.redirect ?? request?.redirect ?? 'follow'
      const mode = isSafe || redirect !== 'follow' ? redirect : 'error'
      return fetch(request?.clone() ?? url, { ...init, headers, redirect: mode })
    }
    /** The answer of another origin, to which a redirect led, says nothing of the token. */
    function isRefused(response: Response, { token }: Admission): boolean {
      return token.refusedBy.includes(response.status) && new URL(response.url || url).origin === url.origin
    }

    const first = await authorize({ url, method, signal })
    if (!isAllowed(url, first.token))
      throw badRequest(
        `The token is not sent to ${url.protocol}//${url.host}: name it in the option origins if it may be.`,
      )
    const response = await send(first)
    if (!isRefused(response, first)) return response
    const second = await first.refused({ isFinal: !isRepeatable(response.status, method, init.body) })
    if (second === undefined || !isAllowed(url, second.token)) return response
    await response.body?.cancel()
    const last = await send(second)
    if (isRefused(last, second)) await second.refused()
    return last
  }
}

function isRepeatable(status: number, method: string, body: RequestInit['body']): boolean {
  // A service answers 401 before it acts.
  if (status !== 401 && !['GET', 'HEAD', 'OPTIONS'].includes(method)) return false
  const isReadOnce =
    typeof body === 'object' && body !== null && (Symbol.asyncIterator in body || 'pipe' in body)
  return !isReadOnce
}
