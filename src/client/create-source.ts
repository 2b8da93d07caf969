// The methods of a client, over any connection to a daemon.
import { setMaxListeners } from 'node:events'
import { sleep } from '../lib/clock.ts'
import {
  FINGERPRINT_LENGTH,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
  type AlertTestResult,
  type RefreshResult,
  type RejectResult,
  type StatusResult,
  type TokenResult,
} from '../protocol.ts'
import { createFetch, type Admission } from './authorized-fetch.ts'
import { answerMsFor, call, createSharing, isWithoutToken, unlessAborted, type Call } from './call.ts'
import type { Connect } from './connection.ts'
import { badRequest, closedError } from './errors.ts'
import { createRefusals } from './refusals.ts'
import { createSubscriptions } from './subscription.ts'
import type { AuthorizeOptions, ClientOptions, ClientToken, GetOptions, TokenSource } from './token-source.ts'

/** How the API wants the token, where an older daemon does not say it. */
const DEFAULT_USE = { header: 'Authorization', prefix: 'Bearer ', refusedBy: [401] }
const DEFAULT_WAIT_SECONDS = 10
/** After an answer without a token, until the daemon is asked again. */
const PAUSE_MS = 250
/** One attempt at the service, and one that is under way before it. */
const REFRESH_MS = 120_000

/** The token that a caller wants, and what it waits for. */
interface Wish {
  readonly minValidSeconds: number
  readonly notFingerprint: string | undefined
  readonly waitSeconds: number
  /** Also for a daemon that was never there. */
  readonly waitsForStart: boolean
  /** For one call to the API, and not for the program. */
  readonly isForCall: boolean
}

/** Throws TypeError if one of `origins` is no URL. */
export function createSource(
  { name, origins, signal: endsAll, ...options }: ClientOptions,
  connect: Connect,
): TokenSource & { alertTest: () => Promise<AlertTestResult> } {
  /** Ends every wait of this client, also those that begin later. */
  const closing = new AbortController()
  setMaxListeners(0, closing.signal)
  const close = (): void => closing.abort(closedError())
  if (endsAll?.aborted === true) close()
  endsAll?.addEventListener('abort', close, { signal: closing.signal })

  let last: { token: TokenResult; expiresAtMs: number } | undefined
  const connection = connect(({ type, data }) => {
    if (type !== 'token.result' && type !== 'token.changed') return
    const token = data as unknown as TokenResult
    last = { token, expiresAtMs: monotonicMs() + Date.parse(token.expiresAt) - Date.now() }
  }, closing.signal)
  const { monotonicMs } = connection
  const subscribe = createSubscriptions(connection, { name, signal: closing.signal })
  const share = createSharing<ClientToken>()
  const refusals = createRefusals({
    monotonicMs,
    get,
    reject: (fingerprint) =>
      ask<RejectResult>({ type: 'token.reject', data: () => ({ fingerprint, client: name }) }),
  })

  const ask = <T>({
    signal,
    ...question
  }: Omit<Call<T>, 'signals'> & { signal?: AbortSignal | undefined }): Promise<T> =>
    call(connection, { ...question, signals: [closing.signal, signal] })

  /**
   * The last token, if it is as good as asked for. Its life is counted on two clocks: one stops during
   * suspend, the other may be set. A reported one is given for a call alone: another call may have had its
   * own reason.
   */
  function cached({ minValidSeconds, notFingerprint, isForCall }: Wish): ClientToken | undefined {
    if (last === undefined || last.token.fingerprint === notFingerprint) return undefined
    if (!isForCall && refusals.has(last.token.fingerprint)) return undefined
    const leftMs = Math.min(Date.parse(last.token.expiresAt) - Date.now(), last.expiresAtMs - monotonicMs())
    return leftMs > 0 && leftMs >= minValidSeconds * 1_000
      ? { ...DEFAULT_USE, ...last.token, cached: true }
      : undefined
  }

  /** One request for a token, shared by all callers who wish for the same. */
  function askForToken(wish: Wish, waitMs: number, signal?: AbortSignal): Promise<ClientToken> {
    const { minValidSeconds, notFingerprint, waitsForStart } = wish
    const begin = (end: AbortSignal): Promise<ClientToken> =>
      ask({
        type: 'token.get',
        data: (leftMs) => {
          const waitSeconds = Math.round(leftMs) / 1_000
          return { minValidSeconds, notFingerprint, waitSeconds, client: name }
        },
        waitMs,
        answerMs: answerMsFor(waitMs),
        waitsForStart,
        signal: end,
        fallback: () => cached(wish),
      })
    return share(JSON.stringify(wish), begin, signal)
  }

  async function get(request: GetOptions = {}, { isForCall = false } = {}): Promise<ClientToken> {
    const { minValidSeconds = 0, notFingerprint, waitSeconds = DEFAULT_WAIT_SECONDS, signal } = request
    checkRange('minValidSeconds', minValidSeconds, MAX_MIN_VALID_SECONDS)
    checkRange('waitSeconds', waitSeconds, MAX_WAIT_SECONDS)
    const waitsForStart = request.waitSeconds !== undefined
    const wish = { minValidSeconds, notFingerprint, waitSeconds, waitsForStart, isForCall }
    const untilMs = monotonicMs() + waitSeconds * 1_000
    // A daemon that stops, or a request that began earlier, answers before this caller's time is over.
    const isFinal = (): boolean => !connection.mayStop || untilMs - monotonicMs() < PAUSE_MS
    for (let waitMs = waitSeconds * 1_000; ; waitMs = untilMs - monotonicMs()) {
      try {
        const token = await askForToken(wish, waitMs, signal)
        if (token.fingerprint !== notFingerprint || isFinal()) return { ...DEFAULT_USE, ...token }
      } catch (error) {
        if (!isWithoutToken(error) || isFinal()) throw error
      }
      await unlessAborted(sleep(PAUSE_MS, closing.signal), signal)
    }
  }

  /** An authorization for a call to this place, if it is known. */
  async function admit({ place, ...request }: AuthorizeOptions & { place?: string }): Promise<Admission> {
    const { signal } = request
    const admissionOf = (token: ClientToken, { isRepetition }: { isRepetition: boolean }): Admission => ({
      headers: { [token.header]: `${token.prefix}${token.accessToken}` },
      token,
      async refused({ isFinal = false } = {}) {
        const next = await refusals.another(token, { place, isRepetition, isFinal, signal })
        return next === undefined ? undefined : admissionOf(next, { isRepetition: true })
      },
    })
    return admissionOf(await get(request, { isForCall: true }), { isRepetition: false })
  }

  return {
    get: async (request) => get(request),
    authorize: async (request = {}) => admit(request),
    fetch: createFetch({ ...options, origins: origins?.map((origin) => new URL(origin).origin) }, admit),
    subscribe,
    async reject(token) {
      return refusals.report(typeof token === 'string' ? await fingerprintOf(token) : token.fingerprint)
    },
    status: async () => ask<StatusResult>({ type: 'status.get' }),
    refresh: async ({ signal } = {}) =>
      ask<RefreshResult>({ type: 'refresh.request', answerMs: REFRESH_MS, isOnce: true, signal }),
    alertTest: async () => ask<AlertTestResult>({ type: 'alert.test', isOnce: true }),
    close,
    [Symbol.dispose]: close,
  }
}

function checkRange(name: string, value: number, max: number): void {
  if (!(value >= 0 && value <= max)) throw badRequest(`${name} must be from 0 to ${max}.`)
}

async function fingerprintOf(token: string): Promise<string> {
  const { createHash } = await import('node:crypto')
  return createHash('sha256').update(token).digest('hex').slice(0, FINGERPRINT_LENGTH)
}
