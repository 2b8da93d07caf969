// Attempts of the loop, one at a time: each is saved before its request goes out, the loop ticks while it is
// under way, the state that follows is set, and it is reported.
import { withTimeout, type Clock } from '../lib/clock.ts'
import { afterTrial, afterTrialBegan, assumeTrialFailed, hasCandidate } from './candidate.ts'
import { isAboutCredentials, type Cause, type FetchOutcome } from './outcome.ts'
import {
  dueAtMs,
  nextExpiryMs,
  plannedAttempt,
  plannedTrial,
  trialDueAtMs,
  type TokenState,
} from './state.ts'
import { afterAttemptBegan, afterAttemptEnded, afterRequest, assumeFailed, nextState } from './transitions.ts'
import type { Attempted, RefreshSettings, Variable } from './variable.ts'

/** Saves the facts for after a restart. Never fails: a file that cannot be written is logged. */
export type SaveState = (state: TokenState) => Promise<void>

/** The longest time that a request waits for its save: a disk that hangs must not cost the token. */
const SAVE_TIMEOUT_MS = 2_000

/** What came of an attempt, and how long its request took. */
type Answer = Pick<Attempted, 'outcome' | 'tookMs'>

export function createAttempts(
  variable: Variable,
  { clock, saveState }: { readonly clock: Clock; readonly saveState: SaveState },
) {
  const { get, set, step } = variable
  let request = new AbortController()

  /** Saves the state, and waits for the disk for 2 s at most. */
  const save = async (state = get()): Promise<void> => withTimeout(SAVE_TIMEOUT_MS, saveState(state), clock)

  /** Ticks while a request is under way, however long that takes: a token may expire meanwhile. */
  async function keepTicking(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await variable.sleepUntil(nextExpiryMs(get(), clock.now()), signal)
      if (!signal.aborted) variable.tick()
    }
  }

  /**
   * Makes one attempt with these settings. Before its request goes out, `assumed` is saved, the state after
   * a failure: so a crash loop keeps to the backoff. Null: the attempt was cancelled.
   */
  async function ask(
    settings: RefreshSettings,
    { cause, assumed, stop }: { cause: Cause; assumed: () => TokenState; stop: AbortSignal },
  ): Promise<Answer | null> {
    request = new AbortController()
    const signal = AbortSignal.any([stop, request.signal])
    const answered = new AbortController()
    let requestedAtMs: number | null = null
    const beforeRequest = async (): Promise<void> => {
      const now = clock.now()
      requestedAtMs = now.bootMs
      set(afterRequest(get(), cause, now))
      await save(assumed())
    }
    const ticking = keepTicking(answered.signal)
    try {
      const outcome = await settings.fetchToken(signal, { cause, beforeRequest })
      const tookMs = requestedAtMs === null ? null : clock.now().bootMs - requestedAtMs
      return signal.aborted ? null : { outcome, tookMs }
    } finally {
      answered.abort()
      await ticking
    }
  }

  /** Emits the event, and saves the state. */
  async function report(attempted: Omit<Attempted, 'type'>): Promise<void> {
    variable.emit({ type: 'attempted', ...attempted })
    if (attempted.outcome.kind !== 'postponed') await save()
  }

  /** Makes one attempt with the running pair and sets the state that follows. */
  async function refreshToken(signal: AbortSignal): Promise<FetchOutcome | null> {
    const { cause } = plannedAttempt(get())
    const { credentialsId } = get()
    set(afterAttemptBegan(get(), cause, clock.now()))
    try {
      const assumed = (): TokenState => assumeFailed(get(), step())
      const answer = await ask(variable.settings(), { cause, assumed, stop: signal })
      if (answer === null) return null
      // One moment and one draw: the state that is saved and the one that is set have the same plan.
      const answeredAt = step()
      const answered = () => nextState(get(), answer.outcome, answeredAt)
      const { outcome, state } = answered()
      // A failure is saved before anybody sees it: a crash from then on leads to no sooner request.
      if (outcome.kind === 'permanent' || outcome.kind === 'transient') await save(state)
      // A candidate that has not been tried yet may be the right pair.
      const isUntried = get().candidate?.failure === null && trialDueAtMs(get()) <= clock.now().bootMs
      if (isAboutCredentials(outcome) && isUntried) {
        set(afterAttemptEnded(get()))
        await tryCandidate(signal)
      }
      if (credentialsId !== get().credentialsId) return null
      set(answered().state)
      await report({ outcome, cause, tookMs: answer.tookMs })
      return outcome
    } finally {
      set(afterAttemptEnded(get()))
    }
  }

  /** Makes one attempt with the candidate, which comes into use by a token. */
  async function tryCandidate(signal: AbortSignal): Promise<FetchOutcome | null> {
    const [settings, before] = [variable.candidate(), get()]
    if (settings === null || !hasCandidate(before)) return null
    const { cause } = plannedTrial(before)!
    set(afterTrialBegan(before, cause, clock.now()))
    try {
      const assumed = (): TokenState => assumeTrialFailed(get(), step())
      const answer = await ask(settings, { cause, assumed, stop: signal })
      const answeredAt = step()
      // Null: it was replaced meanwhile.
      const answered = () => {
        const state = get()
        const isSame = hasCandidate(state) && state.candidate.credentialsId === settings.credentialsId
        return isSame && answer !== null ? afterTrial(state, answer.outcome, answeredAt) : null
      }
      const first = answered()
      if (answer === null || first === null) return null
      const { outcome, state } = first
      if (outcome.kind === 'ok') {
        // A reload may have changed its settings since the request went out.
        variable.use(variable.candidate() ?? settings)
        set(state)
        await report({ outcome, cause, tookMs: answer.tookMs })
        return outcome
      }
      if (outcome.kind !== 'postponed') await save(state)
      const last = answered()
      if (last === null) return null
      set(last.state)
      variable.emit({ type: 'tried', outcome })
      return outcome
    } finally {
      set(afterAttemptEnded(get()))
    }
  }

  /** Makes the attempt that is due, the candidate's first. Null: none is, or it was cancelled. */
  async function makeDue(signal: AbortSignal): Promise<FetchOutcome | null> {
    const { bootMs } = clock.now()
    if (signal.aborted) return null
    if (trialDueAtMs(get()) <= bootMs) return tryCandidate(signal)
    // Another host's token may have come since the attempt was due.
    return dueAtMs(get()) <= bootMs ? refreshToken(signal) : null
  }

  return { makeDue, save, report, cancel: (): void => request.abort() }
}
