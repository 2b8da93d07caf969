// The keeper: the one loop that asks the service, and the one variable that holds the result.
import { createWakeableSleep, type Clock, type Instant } from '../lib/clock.ts'
import { createAttempts, type SaveState } from './attempts.ts'
import type { FetchOutcome } from './outcome.ts'
import { afterClientNeed, afterReject, type RejectDecision } from './rejections.ts'
import { causeOf, dueAtMs, nextMomentMs, type TokenState } from './state.ts'
import {
  afterAttemptBegan,
  afterOperator,
  afterReload,
  assumeFailed,
  isAboutCredentials,
  nextState,
  withClientRequestAgain,
} from './transitions.ts'
import { createVariable, type RefreshSettings } from './variable.ts'

export type { SaveState } from './attempts.ts'
export type { KeeperEvent, RefreshSettings } from './variable.ts'

export type Keeper = ReturnType<typeof createKeeper>

/** Failed, put off, or cancelled: p-retry repeats it. */
class AttemptFailed extends Error {
  override readonly name = 'AttemptFailed'
}

export function createKeeper(
  initial: TokenState,
  options: { settings: RefreshSettings; clock: Clock; random: () => number; saveState: SaveState },
) {
  const { clock } = options
  const variable = createVariable(initial, options)
  const { get, set, step } = variable
  const { sleep, wake } = createWakeableSleep(clock)
  const attempts = createAttempts({ ...options, variable, sleep, wake })

  /** Ticks, tries waiting credentials, and sleeps until an attempt is due. */
  async function untilDue(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      variable.tick()
      const now = clock.now()
      if (attempts.trialAtMs() <= now.bootMs) await attempts.tryNow(signal)
      else if (dueAtMs(get()) <= now.bootMs) return
      else await attempts.sleepUntil(Math.min(attempts.trialAtMs(), nextMomentMs(get(), now)), signal)
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
    const { outcome: answer, tookMs } = await attempts.ask(settings, { cause, assumed, signal })
    if (answer === undefined) throw new AttemptFailed()
    // Other credentials that lie in the files may be the right ones by now.
    if (isAboutCredentials(answer) && (await attempts.tryInstead(signal))) return
    if (settings.credentialsId !== get().credentialsId) throw new AttemptFailed()
    const { state: next, outcome } = nextState(get(), answer, step())
    if (outcome.kind === 'permanent') await saveRefusal(next)
    else set(outcome.kind === 'postponed' && cause === 'client' ? withClientRequestAgain(next) : next)
    await attempts.report({ outcome, cause, tookMs })
    if (outcome.kind !== 'ok' && outcome.kind !== 'permanent') throw new AttemptFailed()
  }

  /** Saved before it is announced: after a crash from then on, the service is not asked again. */
  async function saveRefusal(next: TokenState): Promise<void> {
    variable.setQuietly(next)
    await attempts.save()
    set(get())
  }

  /**
   * Attempts until there is a token or a refusal. p-retry repeats and stops; its own timers are off, because they are
   * deaf to suspend, to a reload and to an operator, and have no jitter at the cap.
   */
  async function untilToken(signal: AbortSignal): Promise<void> {
    const { default: pRetry } = await import('p-retry')
    const attemptWhenDue = async (): Promise<void> => {
      await untilDue(signal)
      if (!signal.aborted) await attempt(signal)
    }
    await pRetry(attemptWhenDue, {
      retries: Infinity,
      minTimeout: 0,
      signal,
      shouldRetry: ({ error }) => error instanceof AttemptFailed,
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
    now: (): Instant => clock.now(),
    onEvent: variable.onEvent,
    waitUntil: variable.waitUntil,
    tryCredentials: attempts.tryCredentials,
    /** The loop. Ends when the signal is aborted. */
    async run(signal: AbortSignal): Promise<void> {
      try {
        while (!signal.aborted) await untilToken(signal)
      } catch (error) {
        // Being stopped is no failure.
        if (!signal.aborted) throw error
      }
    },
    /** A client needs a token that lives so long, in ms: wakes the loop if that helps. */
    need(minValidMs: number): void {
      applyClientChange(afterClientNeed(get(), minValidMs, clock.now()))
    },
    /** A client reports the token with this fingerprint as refused by the service. */
    reject(fingerprint: string): RejectDecision {
      const { state, verdict } = afterReject(get(), fingerprint, clock.now())
      applyClientChange(state)
      return verdict
    },
    /** An operator asks: resolves with the outcome when the attempt is over, or undefined when the signal is aborted first. */
    async refresh(signal: AbortSignal): Promise<FetchOutcome | undefined> {
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
    /** Uses other settings from now on; with other credentials or another service, at once. */
    reload(next: RefreshSettings): void {
      const isChanged = next.credentialsId !== variable.settings().credentialsId
      variable.use(next)
      set(afterReload(get(), next, step()))
      attempts.giveUpTrial()
      if (isChanged) attempts.cancel()
      wake()
    },
    /** Takes an outcome that another host obtained; false: an attempt is under way, and it was not taken. */
    offer(outcome: FetchOutcome): boolean {
      if (get().inFlight !== null) return false
      const next = nextState(get(), outcome, step())
      const { forcedCause } = next.state
      // A token answers a reload that waited for its time; an operator waits for a request that is made from then on.
      const isAnswered = next.outcome.kind === 'ok' && forcedCause !== 'operator'
      set(isAnswered ? { ...next.state, forcedCause: null } : next.state)
      void attempts.report({ outcome: next.outcome, cause: 'fleet', tookMs: null })
      wake()
      return true
    },
  }
}
