// The keeper: the one loop that asks the service, and the one variable that holds the result.
import { type Clock, type Instant, createWakeableSleep } from '../lib/clock.ts'
import type { FetchOutcome } from './outcome.ts'
import { afterClientNeed, afterReject, type RejectDecision } from './rejections.ts'
import { createRequests, type SaveState } from './requests.ts'
import { afterReload } from './settings-transitions.ts'
import { causeOf, dueAtMs, nextMomentMs, type TokenState } from './state.ts'
import {
  afterAttemptBegan,
  afterOperator,
  assumeFailed,
  isAboutCredentials,
  nextState,
  withClientRequestAgain,
} from './transitions.ts'
import { createTrials, type Trials } from './trials.ts'
import { createVariable, type RefreshSettings, type Variable } from './variable.ts'

export type { SaveState } from './requests.ts'
export type { KeeperEvent, RefreshSettings } from './variable.ts'

export interface Keeper extends Pick<Variable, 'onEvent' | 'waitUntil'>, Pick<Trials, 'tryCredentials'> {
  state(): TokenState
  now(): Instant
  /** The loop. Ends when the signal is aborted. */
  run(signal: AbortSignal): Promise<void>
  /** A client needs a token that lives so long, in ms: wakes the loop where that helps. */
  need(minValidMs: number): void
  /** A client reports the token with this fingerprint as refused by the service. */
  reject(fingerprint: string): RejectDecision
  /** An operator asks: resolves with the outcome when the attempt is over, or undefined when the signal is aborted first. */
  refresh(signal: AbortSignal): Promise<FetchOutcome | undefined>
  /** Goes on with other settings; with other credentials or another service, at once. */
  reload(settings: RefreshSettings): void
  /** Takes an outcome that another host obtained; false: an attempt is under way, and it was not taken. */
  offer(outcome: FetchOutcome): boolean
}

/** Failed in passing, put off, or cancelled: p-retry repeats it. */
class AttemptFailed extends Error {
  override readonly name = 'AttemptFailed'
}

export function createKeeper(
  initial: TokenState,
  options: { settings: RefreshSettings; clock: Clock; random: () => number; saveState: SaveState },
): Keeper {
  const { clock } = options
  const variable = createVariable(initial, options)
  const { get, set, step } = variable
  const { sleep, wake } = createWakeableSleep(clock)
  const requests = createRequests({ ...options, variable, sleep })
  const trials = createTrials({ variable, requests, wake })

  /** Ticks, tries waiting credentials, and sleeps until an attempt is due. */
  async function untilDue(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      variable.tick()
      const now = clock.now()
      if (trials.dueAtMs() <= now.bootMs) await trials.tryNow(signal)
      else if (dueAtMs(get()) <= now.bootMs) return
      else await requests.sleepUntil(Math.min(trials.dueAtMs(), nextMomentMs(get(), now)), signal)
    }
  }

  /** One attempt, and the state that follows from it. Throws AttemptFailed where it is to be repeated. */
  async function attempt(signal: AbortSignal): Promise<void> {
    // Another host's token may have come since the attempt was due.
    if (dueAtMs(get()) > clock.now().bootMs) return
    const cause = causeOf(get(), clock.now())
    const settings = variable.settings()
    set(afterAttemptBegan(get(), cause, clock.now()))
    const assumed = (): TokenState => assumeFailed(get(), step())
    const { outcome: answer, tookMs } = await requests.ask(settings, { cause, assumed, signal })
    if (answer === undefined) throw new AttemptFailed()
    // Other credentials that lie in the files may be the right ones by now.
    if (isAboutCredentials(answer) && (await trials.tryInstead(signal))) return
    if (settings.credentialsId !== get().credentialsId) throw new AttemptFailed()
    const { state: next, outcome } = nextState(get(), answer, step())
    if (outcome.kind === 'permanent') await saveRefusal(next)
    else set(outcome.kind === 'postponed' && cause === 'client' ? withClientRequestAgain(next) : next)
    await requests.report({ outcome, cause, tookMs })
    if (outcome.kind !== 'ok' && outcome.kind !== 'permanent') throw new AttemptFailed()
  }

  /** Saved before it is announced: after a crash from then on, the service is not asked again. */
  async function saveRefusal(next: TokenState): Promise<void> {
    variable.setQuietly(next)
    await requests.save()
    set(get())
  }

  /**
   * Repeats the attempt until there is a token or a refusal. p-retry repeats and stops; its own timers are off, because
   * they are deaf to suspend, to a reload and to an operator, and have no jitter at the cap.
   */
  async function untilToken(signal: AbortSignal): Promise<void> {
    const { default: pRetry } = await import('p-retry')
    await pRetry(() => attempt(signal), {
      retries: Infinity,
      minTimeout: 0,
      signal,
      shouldRetry: ({ error }) => error instanceof AttemptFailed,
      onFailedAttempt: async ({ error }) => {
        if (error instanceof AttemptFailed) await untilDue(signal)
      },
    })
  }

  /** Wakes the loop only where clients' wishes, however frequent, have a consequence. */
  function applyClientChange(next: TokenState): void {
    if (next === get()) return
    set(next)
    wake()
  }

  return {
    state: get,
    now: () => clock.now(),
    onEvent: variable.onEvent,
    waitUntil: variable.waitUntil,
    tryCredentials: trials.tryCredentials,
    async run(signal) {
      try {
        while (!signal.aborted) {
          await untilDue(signal)
          await untilToken(signal)
        }
      } catch (error) {
        // Being stopped is no failure.
        if (!signal.aborted) throw error
      }
    },
    need(minValidMs) {
      applyClientChange(afterClientNeed(get(), minValidMs, clock.now()))
    },
    reject(fingerprint) {
      const { state, verdict } = afterReject(get(), fingerprint, clock.now())
      applyClientChange(state)
      return verdict
    },
    async refresh(signal) {
      let outcome: FetchOutcome | undefined
      const ask = (): void => {
        set(afterOperator(get()))
        wake()
      }
      const endListening = variable.onEvent((event) => {
        if (event.type !== 'attempted' || outcome !== undefined) return
        // An attempt that was put off has asked no service, and is no answer.
        if (event.outcome.kind === 'postponed' && event.cause !== 'operator') ask()
        else outcome = event.outcome
      })
      ask()
      await variable.waitUntil(() => outcome !== undefined, { waitMs: Infinity, signal })
      endListening()
      return outcome
    },
    reload(next) {
      const isChanged = next.credentialsId !== variable.settings().credentialsId
      variable.use(next)
      set(afterReload(get(), next, step()))
      trials.cancel()
      if (isChanged) requests.cancel()
      wake()
    },
    offer(outcome) {
      if (get().inFlight !== null) return false
      const next = nextState(get(), outcome, step())
      const { forcedCause } = next.state
      // A token answers a reload that waited for its time; an operator waits for a request that is made from then on.
      const isAnswered = next.outcome.kind === 'ok' && forcedCause !== 'operator'
      set(isAnswered ? { ...next.state, forcedCause: null } : next.state)
      void requests.report({ outcome: next.outcome, cause: 'fleet', tookMs: null })
      wake()
      return true
    },
  }
}
