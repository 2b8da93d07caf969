// Trials of other credentials, repeated until they give a token, and are used, or are refused.
import type { Clock } from '../lib/clock.ts'
import { raceAbort } from '../lib/tasks.ts'
import type { Answer, Attempts } from './attempts.ts'
import { isAboutCredentials, type FetchOutcome, type TrialOptions } from './outcome.ts'
import { dueAtMs, isAsking, notBeforeMs, plannedAttempt, type TokenState } from './state.ts'
import { afterAttemptEnded, nextState, withCredentials, withNotBefore } from './transitions.ts'
import type { RefreshSettings, Variable } from './variable.ts'

interface Trial extends TrialOptions {
  readonly settings: RefreshSettings
  readonly ended: PromiseWithResolvers<FetchOutcome | undefined>
  /** When they are tried, and after which failure: facts as the state has them for the running ones. */
  plan: Pick<TokenState, 'failure' | 'next'>
}

export function createTrials(variable: Variable, attempts: Attempts, clock: Clock) {
  const { get, set, step } = variable
  let trial: Trial | null = null

  /** The state as it is with the credentials that are tried. */
  const stateOf = ({ settings, plan }: Trial): TokenState => ({
    ...withCredentials(get(), settings, clock.now()),
    ...plan,
  })

  /** Tries the credentials that wait. Only for the loop, while no other attempt is under way. */
  async function tryNow(signal: AbortSignal): Promise<void> {
    if (trial === null) return
    const current = trial
    const { settings } = current
    const { credentialsId } = settings
    if (credentialsId === get().credentialsId) return giveUp()
    const { cause } = plannedAttempt(stateOf(current))
    current.plan = { ...current.plan, next: null }
    set({ ...get(), inFlight: { since: clock.now(), cause, credentialsId } })
    try {
      const answer = await attempts.ask(settings, { cause, assumed: get, stop: signal })
      // The trial was given up, or the attempt cancelled, meanwhile.
      if (trial === current && answer !== null) await end(current, answer)
    } finally {
      set(afterAttemptEnded(get()))
    }
  }

  async function end(current: Trial, { outcome: answer, tookMs }: Answer): Promise<void> {
    const { settings, cause } = current
    const { credentialsId } = settings
    const { state, outcome } = nextState(stateOf(current), answer, step())
    if (outcome.kind === 'ok') {
      // An operator who asked meanwhile has a new token now.
      set({ ...state, next: null })
      variable.use(settings)
      // Before the save, which may take 2 s: whoever ends the trial meanwhile comes too late.
      conclude(outcome)
      return attempts.report({ outcome, cause, tookMs })
    }
    if (isAboutCredentials(outcome)) return conclude(outcome)
    const { failure, next } = state
    // Only the first try is the act itself, unless it was put off: the others keep to every wait.
    const isPutOff = outcome.kind === 'postponed'
    current.plan = { failure, next: next && { ...next, cause: isPutOff ? next.cause : 'retry' } }
    const atMs = notBeforeMs(state)
    if (atMs > clock.now().bootMs) {
      set(withNotBefore(get(), { credentialsId, atMs }, clock.now()))
      await attempts.save()
    }
    current.onFailed?.(outcome, plannedAttempt(state).atMs)
  }

  /** The trial, if there is one, is over with this outcome; undefined: it was given up. */
  function conclude(outcome: FetchOutcome | undefined): void {
    trial?.ended.resolve(outcome)
    trial = null
  }

  /** Gives up the trial that waits or is under way. */
  function giveUp(): void {
    conclude(undefined)
    if (!isAsking(get())) attempts.cancel()
  }

  /**
   * Resolves with the token or the refusal; undefined: a reload, another trial or the signal ended it. The
   * `baseUrl` must be the running one.
   */
  async function tryCredentials(
    settings: RefreshSettings,
    options: TrialOptions,
  ): Promise<FetchOutcome | undefined> {
    if (options.signal.aborted) return undefined
    giveUp()
    const ended = Promise.withResolvers<FetchOutcome | undefined>()
    const next = { cause: options.cause, atMs: 0 }
    const own: Trial = { ...options, settings, ended, plan: { failure: null, next } }
    trial = own
    attempts.wake()
    await raceAbort(ended.promise, options.signal)
    if (trial === own) giveUp()
    return ended.promise
  }

  return {
    tryCredentials,
    /** Time at which the credentials that wait are to be tried, on the boot clock; Infinity: none wait. */
    dueAtMs: (): number => (trial === null ? Infinity : dueAtMs(stateOf(trial))),
    tryNow,
    /**
     * The running credentials were refused: tries those that wait, and reports whether they are in use now.
     */
    async tryInstead(signal: AbortSignal): Promise<boolean> {
      const waiting = trial?.settings.credentialsId
      if (waiting === undefined || notBeforeMs(get(), waiting) > clock.now().bootMs) return false
      await tryNow(signal)
      return get().credentialsId === waiting
    },
    giveUp,
  }
}
