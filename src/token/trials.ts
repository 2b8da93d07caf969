// Trials: other credentials are tried with one request, and are gone on with only if they give a token.
import type { Attempts, Variable } from './attempts.ts'
import type { RefreshSettings } from './keeper.ts'
import type { FetchOutcome } from './outcome.ts'
import type { Step } from './state.ts'
import { withCredentials, withOtherBound } from './settings-transitions.ts'
import { nextState } from './transitions.ts'

export interface Trials {
  /**
   * Resolves with the outcome; undefined: a reload, another trial or the signal ended it. A wait that the service
   * asked for with these credentials is kept first. `baseUrl` must be the one of the running settings.
   */
  tryCredentials(settings: RefreshSettings, signal: AbortSignal): Promise<FetchOutcome | undefined>
  /** Time at which the credentials that wait are to be tried, on the boot clock; Infinity: none wait. */
  dueAtMs(): number
  /** Tries the credentials that wait. Only for the loop, while no other attempt is under way. */
  tryNow(signal: AbortSignal): Promise<void>
  /** Gives up the trial that waits or is under way. */
  cancel(): void
}

interface Trial {
  readonly settings: RefreshSettings
  readonly end: (outcome: FetchOutcome | undefined) => void
}

const CAUSE = 'reload'

export function createTrials(keeper: {
  variable: Variable
  step: () => Step
  attempts: Attempts
  wake: () => void
  takeOver: (settings: RefreshSettings) => void
}): Trials {
  const { step, variable, attempts } = keeper
  let trial: Trial | null = null
  let isUnderWay = false

  async function tryNow(signal: AbortSignal): Promise<void> {
    if (trial === null) return
    const current = trial
    const { settings } = current
    if (settings.credentialsId === variable.get().credentialsId) return cancel()
    isUnderWay = true
    variable.set({ ...variable.get(), inFlight: { since: step().now, cause: CAUSE } })
    const answer = await attempts
      .ask(settings, { cause: CAUSE, assumed: () => variable.get(), signal })
      .finally(() => {
        isUnderWay = false
        if (trial === current) trial = null
      })
    current.end(answer.outcome && (await conclude(settings, { ...answer, outcome: answer.outcome })))
  }

  async function conclude(
    settings: RefreshSettings,
    { outcome: answer, tookMs }: { outcome: FetchOutcome; tookMs: number | null },
  ): Promise<FetchOutcome> {
    const { state: next, outcome } = nextState(
      withCredentials(variable.get(), settings, step()),
      answer,
      step(),
    )
    if (outcome.kind === 'ok') {
      variable.set(next)
      keeper.takeOver(settings)
      await attempts.report({ outcome, cause: CAUSE, tookMs })
    } else if (next.notBeforeMs !== null) {
      const { credentialsId } = settings
      const bound = { credentialsId, notBeforeMs: next.notBeforeMs }
      variable.set(withOtherBound(variable.get(), bound, step().now))
      await attempts.save(variable.get())
    }
    return outcome
  }

  function cancel(): void {
    trial?.end(undefined)
    trial = null
    if (isUnderWay) attempts.cancel()
  }

  return {
    tryCredentials: (settings, signal) =>
      new Promise((resolve) => {
        if (signal.aborted) return resolve(undefined)
        cancel()
        const onAbort = (): void => {
          if (trial === own) trial = null
          own.end(undefined)
        }
        const own: Trial = {
          settings,
          end(outcome) {
            signal.removeEventListener('abort', onAbort)
            resolve(outcome)
          },
        }
        signal.addEventListener('abort', onAbort)
        trial = own
        keeper.wake()
      }),
    dueAtMs: () =>
      trial === null ? Infinity : (variable.get().otherBounds[trial.settings.credentialsId] ?? -Infinity),
    tryNow,
    cancel,
  }
}
