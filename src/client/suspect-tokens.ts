// The rule for a token that the API refuses: it is reported once and is suspect. Then one call at a time is sent with it, a
// probe, and one good answer to a probe clears it for all calls.
import { sleep } from '../lib/clock.ts'
import type { RejectResult, TokenResult } from '../protocol.ts'
import type { ClientToken, TokenSource } from './token-source.ts'
import { waitFor } from './call.ts'

/** The longest time that a call waits, to be a probe and for another token together. */
const WAIT_MS = 10_000
/** While calls wait, the next probe is sent this long after the one before, at the latest. */
const PROBE_EVERY_MS = 1_000
/** The pause after a refused probe doubles from here up to PROBE_EVERY_MS: a revoked token is sent a few times only. */
const FIRST_PAUSE_MS = 50
/** For this long after a good answer a refusal concerns its caller alone, and is not reported. */
const CLEARED_MS = 30_000
/** The time between two reports of a token that the daemon is replacing, or that could not be reported. */
const REVIEW_MS = 2_000
/** The pause between two requests for another token, in case the daemon does not wait. */
const PAUSE_MS = 500
/** Suspects are kept for a while: a call that began with an earlier token may still be refused two tokens later. */
const MAX_SUSPECTS = 16

/** One call to the API with this token. `end` has to be called, even if the call fails. */
export interface ApiCall {
  readonly token: ClientToken
  /** Says what the API's answer means for the token. */
  readonly end: (meaning: 'good' | 'refused' | 'nothing') => void
  /**
   * After a refusal: reports the token if that is due, and gives a call with another token. Undefined if none comes
   * within 10 s, none can come, none is of use, or the refusal concerns this caller alone. Rejects with the signal's reason.
   */
  readonly another: (how: {
    isOfUse: boolean
    signal: AbortSignal | undefined
  }) => Promise<ApiCall | undefined>
}

interface Suspect {
  readonly fingerprint: string
  readonly waiting: Set<Waiting>
  /** The report that is under way; `search` may have repeated it. */
  reporting?: Promise<RejectResult> | undefined
  /** From the daemon's answer to the last report. */
  plan: ReturnType<typeof planAfter>
  /** A second after the last probe began, or when that probe ends: at once, or after a refusal with a pause that grows. */
  nextProbeAtMs: number
  refusedProbes: number
  clearedAtMs?: number
  /** For the next probe. */
  timer?: NodeJS.Timeout
  /** Ends the search for another token, which goes on while calls wait. */
  search?: AbortController | undefined
}

interface Waiting {
  /** The token of a call that waits to be sent; undefined: the call was refused, and waits for another token. */
  readonly token: ClientToken | undefined
  readonly untilMs: number
  readonly signal: AbortSignal | undefined
  readonly settle: (token: ClientToken | undefined) => void
}

export function createSuspectTokens(options: {
  monotonicMs: () => number
  get: TokenSource['get']
  /** Sends the report. */
  reject: (fingerprint: string) => Promise<RejectResult>
}) {
  const { monotonicMs } = options
  /** By fingerprint; also those that were cleared. */
  const known = new Map<string, Suspect>()

  function suspectOf(fingerprint: string): Suspect | undefined {
    const suspect = known.get(fingerprint)
    return suspect?.clearedAtMs === undefined ? suspect : undefined
  }

  function addSuspect(fingerprint: string): Suspect {
    for (const [key, { waiting }] of known)
      if (known.size >= MAX_SUSPECTS && waiting.size === 0) known.delete(key)
    const plan = planAfter(undefined, monotonicMs())
    const suspect: Suspect = { fingerprint, waiting: new Set(), plan, nextProbeAtMs: 0, refusedProbes: 0 }
    known.set(fingerprint, suspect)
    return suspect
  }

  async function report(suspect: Suspect): Promise<RejectResult> {
    const reporting = options.reject(suspect.fingerprint)
    suspect.reporting = reporting
    const onEnd = (result?: RejectResult): void => {
      suspect.reporting = undefined
      suspect.plan = planAfter(result, monotonicMs())
      serve(suspect)
    }
    void reporting.then(onEnd, () => onEnd())
    return reporting
  }

  /** Settles every wait that is over, and sends the probe that is due. */
  function serve(suspect: Suspect): void {
    clearTimeout(suspect.timer)
    const { waiting, clearedAtMs, plan } = suspect
    for (const { token, untilMs, settle } of waiting) {
      if (clearedAtMs !== undefined) settle(token)
      else if (token === undefined && plan.otherTokenAtMs > untilMs) settle(undefined)
    }
    const queue = [...waiting].filter(({ token }) => token !== undefined)
    // Chosen by chance: in order of arrival, calls that are refused for a reason of their own would hold up all later ones.
    const next = queue[Math.floor(Math.random() * queue.length)]
    if (next === undefined) return
    const leftMs = suspect.nextProbeAtMs - monotonicMs()
    if (leftMs > 0) suspect.timer = setTimeout(() => serve(suspect), leftMs)
    else {
      next.settle(next.token)
      serve(suspect)
    }
  }

  /** Asks for another token while calls wait, and repeats the report if that is due. */
  async function search(suspect: Suspect, signal: AbortSignal): Promise<void> {
    // A failure is the daemon's, which is asked again; a token arrives at `onToken`.
    const ignore = (): void => undefined
    const untilReportMs = (): number => Math.max(0, suspect.plan.retryAtMs - monotonicMs())
    while (!signal.aborted) {
      await (suspect.reporting ?? (untilReportMs() === 0 ? report(suspect) : undefined))?.catch(ignore)
      const waitSeconds = Math.min(WAIT_MS, untilReportMs()) / 1_000
      const request = { notFingerprint: suspect.fingerprint, waitSeconds, signal }
      if (!signal.aborted) await options.get(request).then(ignore, ignore)
      await sleep(PAUSE_MS, signal)
    }
  }

  function wait(suspect: Suspect, call: Omit<Waiting, 'settle'>): Promise<ApiCall | undefined> {
    const leftMs = (): number => call.untilMs - monotonicMs()
    const waited = waitFor<ApiCall | undefined>({
      forMs: leftMs(),
      signal: call.signal,
      onDeadline: ({ resolve }) => resolve(undefined),
      begin: ({ resolve }) => {
        const waiting: Waiting = { ...call, settle: (token) => resolve(token && startCall(token, leftMs())) }
        suspect.waiting.add(waiting)
        return () => {
          suspect.waiting.delete(waiting)
          if (suspect.waiting.size > 0) return
          clearTimeout(suspect.timer)
          suspect.search?.abort()
          suspect.search = undefined
        }
      },
    })
    serve(suspect)
    if (suspect.waiting.size > 0 && suspect.search === undefined) {
      suspect.search = new AbortController()
      void search(suspect, suspect.search.signal)
    }
    return waited
  }

  /** `leftMs`: the time for which the call may wait for another token later. */
  function startCall(token: ClientToken, leftMs: number): ApiCall {
    const { fingerprint } = token
    const probed = suspectOf(fingerprint)
    if (probed !== undefined) probed.nextProbeAtMs = monotonicMs() + PROBE_EVERY_MS
    return {
      token,
      end(meaning) {
        if (probed === undefined) return
        const pauseMs = meaning === 'refused' ? FIRST_PAUSE_MS * 2 ** probed.refusedProbes++ : 0
        probed.nextProbeAtMs = Math.min(probed.nextProbeAtMs, monotonicMs() + pauseMs)
        if (meaning === 'good') probed.clearedAtMs ??= monotonicMs()
        serve(probed)
      },
      async another({ isOfUse, signal }) {
        const { clearedAtMs = -Infinity } = known.get(fingerprint) ?? {}
        if (monotonicMs() < clearedAtMs + CLEARED_MS) return undefined
        let suspect = suspectOf(fingerprint)
        if (suspect === undefined) {
          suspect = addSuspect(fingerprint)
          const reporting = report(suspect).catch(() => undefined)
          if (!isOfUse) await reporting
        }
        const untilMs = monotonicMs() + leftMs
        return isOfUse ? wait(suspect, { token: undefined, untilMs, signal }) : undefined
      },
    }
  }

  return {
    has: (fingerprint: string): boolean => suspectOf(fingerprint) !== undefined,
    /** Reports the token, whatever is known of it. */
    report: async (fingerprint: string): Promise<RejectResult> =>
      report(suspectOf(fingerprint) ?? addSuspect(fingerprint)),
    /** Call it with each token that the daemon gives: the calls that wait are sent with that one. */
    onToken(token: TokenResult): void {
      if (suspectOf(token.fingerprint) !== undefined) return
      for (const { fingerprint, waiting } of known.values())
        if (fingerprint !== token.fingerprint) for (const { settle } of waiting) settle(token)
    },
    /**
     * Gives a call with this token. If that is suspect, the call waits to be a probe or for another token; undefined after
     * 10 s. Rejects with the signal's reason.
     */
    async admit(token: ClientToken, signal: AbortSignal | undefined): Promise<ApiCall | undefined> {
      const suspect = suspectOf(token.fingerprint)
      if (suspect === undefined) return startCall(token, WAIT_MS)
      return wait(suspect, { token, untilMs: monotonicMs() + WAIT_MS, signal })
    },
    /** Time until the daemon asks the service about this token. */
    retryAfterMs: (fingerprint: string): number =>
      (known.get(fingerprint)?.plan.retryAtMs ?? 0) - monotonicMs(),
    /** Ends all waits. */
    close(): void {
      for (const { waiting } of known.values()) for (const { settle } of waiting) settle(undefined)
    },
  }
}

/** `result`: the daemon's answer to a report; undefined: there is none yet, or the report failed. */
function planAfter(result: RejectResult | undefined, nowMs: number) {
  const { verdict, retryAfterSeconds = WAIT_MS / 1_000 } = result ?? {}
  const isOpen = verdict === undefined || verdict === 'refreshing' || verdict === 'replaced'
  const retryAtMs = nowMs + (isOpen ? REVIEW_MS : retryAfterSeconds * 1_000)
  return {
    /** When the daemon asks the service about the token, or may be asked again, for callers. */
    retryAtMs,
    /** When another token may come, at the earliest. */
    otherTokenAtMs: verdict === 'held' ? retryAtMs : isOpen ? 0 : Infinity,
  }
}
