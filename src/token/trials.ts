// Trials: other credentials are tried, again and again where that fails for another reason, and used once they give a token.
import type { FetchOutcome, TrialOptions } from './outcome.ts'
import type { Requests } from './requests.ts'
import type { Failure } from './state.ts'
import { withCredentials, withOtherBound } from './settings-transitions.ts'
import { isAboutCredentials, nextState } from './transitions.ts'
import type { RefreshSettings, Variable } from './variable.ts'

export type Trials = ReturnType<typeof createTrials>

interface Trial extends Omit<TrialOptions, 'signal'> {
  readonly settings: RefreshSettings
  failure: Failure | null
  retryAtMs: number
  readonly end: (outcome: FetchOutcome | undefined) => void
}

export function createTrials({
  variable,
  requests,
  wake,
}: {
  variable: Variable
  requests: Requests
  wake: () => void
}) {
  const { step } = variable
  let trial: Trial | null = null
  let isUnderWay = false

  /** Time before which the service asked for no request with these credentials. */
  const boundMs = ({ settings }: Trial): number =>
    variable.get().otherBounds[settings.credentialsId] ?? -Infinity

  /** Tries the credentials that wait. Only for the loop, while no other attempt is under way. */
  async function tryNow(signal: AbortSignal): Promise<void> {
    if (trial === null) return
    const current = trial
    const { settings, cause } = current
    if (settings.credentialsId === variable.get().credentialsId) return cancel()
    isUnderWay = true
    const { credentialsId } = settings
    variable.set({ ...variable.get(), inFlight: { since: step().now, cause, credentialsId } })
    const answer = await requests.ask(settings, { cause, assumed: variable.get, signal }).finally(() => {
      isUnderWay = false
    })
    // Given up meanwhile.
    if (trial !== current || answer.outcome === undefined) return
    const outcome = await conclude(current, answer.outcome, answer.tookMs)
    if (outcome.kind !== 'ok' && !isAboutCredentials(outcome))
      return current.onFailed?.(outcome, current.retryAtMs)
    if (trial === current) trial = null
    current.end(outcome)
  }

  async function conclude(
    current: Trial,
    answer: FetchOutcome,
    tookMs: number | null,
  ): Promise<FetchOutcome> {
    const { settings, cause } = current
    const before = { ...withCredentials(variable.get(), settings, step()), failure: current.failure }
    const { state: next, outcome } = nextState(before, answer, step())
    if (outcome.kind === 'ok') {
      // An operator who asked meanwhile has a new token now.
      variable.set({ ...next, forcedCause: null })
      variable.use(settings)
      await requests.report({ outcome, cause, tookMs })
      return outcome
    }
    current.failure = next.failure
    current.retryAtMs = next.postponedUntilMs ?? next.failure?.retryAtMs ?? Infinity
    // The pace of `rejected` holds for the running credentials: changed files are tried at once.
    if (next.notBeforeMs !== null && !isAboutCredentials(outcome)) {
      const { credentialsId } = settings
      const bound = { credentialsId, notBeforeMs: next.notBeforeMs }
      variable.set(withOtherBound(variable.get(), bound, step().now))
      await requests.save()
    }
    return outcome
  }

  /** Gives up the trial that waits or is under way. */
  function cancel(): void {
    trial?.end(undefined)
    trial = null
    if (isUnderWay) requests.cancel()
  }

  return {
    /**
     * Resolves with the token or the refusal; undefined: a reload, another trial or the signal ended it. `baseUrl` must
     * be the one of the running settings.
     */
    tryCredentials: (
      settings: RefreshSettings,
      { signal, ...options }: TrialOptions,
    ): Promise<FetchOutcome | undefined> =>
      new Promise((resolve) => {
        if (signal.aborted) return resolve(undefined)
        cancel()
        const onAbort = (): void => {
          if (trial === own) cancel()
        }
        const own: Trial = {
          ...options,
          settings,
          failure: null,
          retryAtMs: -Infinity,
          end(outcome) {
            signal.removeEventListener('abort', onAbort)
            resolve(outcome)
          },
        }
        signal.addEventListener('abort', onAbort)
        trial = own
        wake()
      }),
    /** Time at which the credentials that wait are to be tried, on the boot clock; Infinity: none wait. */
    dueAtMs(): number {
      if (trial === null) return Infinity
      const isFirst = trial.retryAtMs === -Infinity
      return isFirst && trial.cause === 'operator' ? -Infinity : Math.max(trial.retryAtMs, boundMs(trial))
    },
    tryNow,
    /** The running credentials were refused: tries the ones that wait, and reports whether they are in use now. */
    async tryInstead(signal: AbortSignal): Promise<boolean> {
      if (trial === null || boundMs(trial) > step().now.bootMs) return false
      const { credentialsId } = trial.settings
      await tryNow(signal)
      return variable.get().credentialsId === credentialsId
    },
    cancel,
  }
}
