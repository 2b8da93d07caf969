// The rule for a token that the API refuses: a process reports it once, only the refused call waits for another
// one, and a call that is refused with that one, too, is refused for a reason of its own.
import type { RejectResult } from '../protocol.ts'
import { badRequest } from './errors.ts'
import type { Authorization, ClientToken, GetOptions } from './token-source.ts'

/** How long a refused call waits for another token. */
const WAIT_SECONDS = 10
/** For this long the refusals of a place that refused two tokens concern their callers alone. */
const OWN_MS = 5 * 60_000
/** So many are remembered: a call with an earlier token may be refused some tokens later. */
const MAX_REPORTS = 16
const MAX_PLACES = 64

/** An authorization for a call that the client makes itself. */
export interface Admission extends Authorization {
  /** `isFinal`: the call cannot be repeated, so the token is reported, and no other one awaited. */
  readonly refused: (call?: { isFinal?: boolean }) => Promise<Admission | undefined>
}

interface RefusedCall {
  /** Method, origin and path of the call; undefined: the caller did not say them. */
  readonly place: string | undefined
  /** The call has been repeated already: this token is its second one. */
  readonly isRepetition: boolean
  /** The call cannot be repeated: another token would not help it. */
  readonly isFinal: boolean
  readonly signal: AbortSignal | undefined
}

export function createRefusals(options: {
  readonly monotonicMs: () => number
  /** Reports it to the daemon. */
  readonly reject: (fingerprint: string) => Promise<RejectResult>
  readonly get: (request: GetOptions) => Promise<ClientToken>
}) {
  const { monotonicMs } = options
  /** The daemon's answers by fingerprint; undefined: the report did not reach the daemon. */
  const reports = new Map<string, Promise<RejectResult | undefined>>()
  /** Places that refuse for reasons of their own, each with the time until which that is believed, in ms. */
  const ownUntilMs = new Map<string, number>()

  /** Reports the token, also one that was reported before. */
  function report(fingerprint: string): Promise<RejectResult> {
    const answer = options.reject(fingerprint)
    const noted = answer.catch(() => {
      if (reports.get(fingerprint) === noted) reports.delete(fingerprint)
      return undefined
    })
    remember(reports, MAX_REPORTS, fingerprint, noted)
    return answer
  }

  /**
   * The token for sending the refused call once more; undefined: the refusal is its answer. Rejects with the
   * reason of its signal.
   */
  async function nextToken(
    { fingerprint }: ClientToken,
    { place, isRepetition, isFinal, signal }: RefusedCall,
  ): Promise<ClientToken | undefined> {
    signal?.throwIfAborted()
    if (place !== undefined && (ownUntilMs.get(place) ?? 0) > monotonicMs()) return undefined
    if (!isRepetition && !reports.has(fingerprint)) void report(fingerprint).catch(() => undefined)
    const result = isRepetition ? undefined : await reports.get(fingerprint)
    signal?.throwIfAborted()
    if (isRepetition || result?.verdict === 'unchanged') {
      if (place !== undefined) remember(ownUntilMs, MAX_PLACES, place, monotonicMs() + OWN_MS)
      return undefined
    }
    return isFinal || !canFollow(result) ? undefined : tokenAfter(fingerprint, signal)
  }

  async function tokenAfter(
    notFingerprint: string,
    signal: AbortSignal | undefined,
  ): Promise<ClientToken | undefined> {
    try {
      const token = await options.get({ notFingerprint, waitSeconds: WAIT_SECONDS, signal })
      return token.fingerprint === notFingerprint ? undefined : token
    } catch {
      // There is no token, or no daemon: then the refusal is the answer.
      signal?.throwIfAborted()
      return undefined
    }
  }

  return {
    report,
    nextToken,
    /** Reports whether this process reported the token. */
    has: (fingerprint: string): boolean => reports.has(fingerprint),
  }
}

/** Method, origin and path of a call. Throws `bad-request`. */
export function placeOf(url: string | URL, method: string): string {
  if (!URL.canParse(String(url))) throw badRequest('url must be an absolute URL.')
  const { origin, pathname } = new URL(url)
  return `${method.toUpperCase()} ${origin}${pathname}`
}

/** Reports whether another token may come while a call waits. */
function canFollow(result: RejectResult | undefined): boolean {
  if (result === undefined || result.verdict === 'refused') return false
  return result.verdict !== 'held' || (result.retryAfterSeconds ?? 0) <= WAIT_SECONDS
}

/** Sets the entry; of too many the oldest goes. */
function remember<T>(entries: Map<string, T>, max: number, key: string, value: T): void {
  entries.delete(key)
  entries.set(key, value)
  const [oldest] = entries.keys()
  if (entries.size > max && oldest !== undefined) entries.delete(oldest)
}
