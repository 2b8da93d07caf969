// The rule for a token that the API refuses: it is reported once, only the refused call waits for another,
// and a call that is refused with that one, too, is refused for a reason of its own.
import type { RejectResult } from '../protocol.ts'
import { unlessAborted } from './signals.ts'
import type { ClientToken, GetOptions } from './token-source.ts'

/** How long a refused call waits for another token. */
const WAIT_SECONDS = 10
/** How long an answer to a report holds if it does not say so: the daemon asks no sooner again. */
const HOLDS_MS = 30_000
/** For this long the refusals of a place that refused two tokens concern their callers alone. */
const OWN_MS = 5 * 60_000
/** So many are remembered: a call with an earlier token may be refused some tokens later. */
const MAX_REPORTS = 16
const MAX_PLACES = 64

interface RefusedCall {
  /** Method, origin and path of the call, if they are known. */
  readonly place?: string | undefined
  /** The call has been repeated already: this token is its second one. */
  readonly isRepetition: boolean
  /** The call cannot be repeated: another token would not help it. */
  readonly isFinal: boolean
  readonly signal: AbortSignal | undefined
}

interface Report {
  /** Undefined: the report did not reach the daemon. */
  readonly answer: Promise<RejectResult | undefined>
  holdsUntilMs: number
}

export function createRefusals(options: {
  readonly monotonicMs: () => number
  /** Reports it to the daemon. */
  readonly reject: (fingerprint: string) => Promise<RejectResult>
  readonly get: (request: GetOptions) => Promise<ClientToken>
}) {
  const { monotonicMs } = options
  /** By fingerprint. */
  const reports = new Map<string, Report>()
  /** Places that refuse for reasons of their own, each with the time until which that is believed, in ms. */
  const ownUntilMs = new Map<string, number>()

  /** Reports the token, whatever is known of it. */
  function report(fingerprint: string): Promise<RejectResult> {
    const answer = options.reject(fingerprint)
    const known: Report = { answer: answer.catch(() => undefined), holdsUntilMs: Infinity }
    remember(reports, MAX_REPORTS, fingerprint, known)
    void noteHold(known)
    return answer
  }

  /** Notes how long the answer holds; one that did not come does not. */
  async function noteHold(known: Report): Promise<void> {
    const { retryAfterSeconds = HOLDS_MS / 1_000 } = (await known.answer) ?? { retryAfterSeconds: 0 }
    known.holdsUntilMs = monotonicMs() + retryAfterSeconds * 1_000
  }

  /** The daemon's answer to the report of this token, which is sent if no answer holds. */
  async function reportOnce(fingerprint: string): Promise<RejectResult | undefined> {
    const known = reports.get(fingerprint)
    if (known !== undefined && known.holdsUntilMs > monotonicMs()) return known.answer
    return report(fingerprint).catch(() => undefined)
  }

  /**
   * The token for sending the refused call once more; undefined: the refusal is its answer. Rejects with the
   * reason of its signal.
   */
  async function nextToken(
    { fingerprint }: ClientToken,
    call: RefusedCall,
  ): Promise<ClientToken | undefined> {
    const { place = '', isRepetition, isFinal, signal } = call
    signal?.throwIfAborted()
    if ((ownUntilMs.get(place) ?? 0) > monotonicMs()) return undefined
    const result = isRepetition ? undefined : await unlessAborted(reportOnce(fingerprint), signal)
    if (isRepetition || result?.verdict === 'unchanged') {
      if (place !== '') remember(ownUntilMs, MAX_PLACES, place, monotonicMs() + OWN_MS)
      return undefined
    }
    if (isFinal || !canFollow(result)) return undefined
    return tokenAfter(fingerprint, signal)
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
    /** True if the token was reported. */
    has: (fingerprint: string): boolean => reports.has(fingerprint),
  }
}

/** Another token may come while a call waits. */
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
