// The keeper: the one loop that asks the service, one request at a time, and sets the one variable.
import type { Clock, Instant } from '../lib/clock.ts'
import { createAttempts, type SaveState } from './attempts.ts'
import { afterClientNeed, afterReject, type RejectDecision } from './client-requests.ts'
import { isAboutCredentials, type FetchOutcome } from './outcome.ts'
import { dueAtMs, nextMomentMs, plannedAttempt, type TokenState } from './state.ts'
import {
  afterAttemptBegan,
  afterAttemptEnded,
  afterOperator,
  afterReload,
  afterRenewal,
  assumeFailed,
  nextState,
} from './transitions.ts'
import { createTrials } from './trials.ts'
import { createVariable, type RefreshSettings } from './variable.ts'

export type { KeeperEvent, RefreshSettings } from './variable.ts'

interface KeeperOptions {
  readonly settings: RefreshSettings
  readonly clock: Clock
  readonly random: () => number
  readonly saveState: SaveState
}

export type Keeper = ReturnType<typeof createKeeper>
/** The part of it that the reports use. */
export type KeeperView = Pick<Keeper, 'state' | 'now' | 'onEvent' | 'listenUntil'>

/** The attempt brought no token. */
class AttemptFailed extends Error {}

export function createKeeper(initial: TokenState, options: KeeperOptions) {
  const { clock } = options
  const variable = createVariable(initial, options)
  const { get, set, step } = variable
  const attempts = createAttempts(variable, options)
  const trials = createTrials(variable, attempts, clock)

  /** Ticks, tries waiting credentials, and sleeps until an attempt is due. */
  async function untilDue(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      variable.tick()
      const now = clock.now()
      if (trials.dueAtMs() <= now.bootMs) await trials.tryNow(signal)
      else if (dueAtMs(get()) <= now.bootMs) return
      else await attempts.sleepUntil(Math.min(trials.dueAtMs(), nextMomentMs(get(), now)), signal)
    }
  }

  /** Makes one attempt and sets the state that follows. Null: none was needed, or it was cancelled. */
  async function attempt(signal: AbortSignal): Promise<FetchOutcome | null> {
    // Another host's token may have come since the attempt was due.
    if (signal.aborted || dueAtMs(get()) > clock.now().bootMs) return null
    const { cause } = plannedAttempt(get())
    const { credentialsId } = get()
    set(afterAttemptBegan(get(), cause, clock.now()))
    try {
      const assumed = (): TokenState => assumeFailed(get(), step())
      const answer = await attempts.ask(variable.settings(), { cause, assumed, stop: signal })
      if (answer === null) return null
      // One moment and one draw: the state that is saved and the one that is set have the same plan.
      const answeredAt = step()
      const answered = () => nextState(get(), answer.outcome, answeredAt)
      const { outcome, state } = answered()
      // A failure is saved before anybody sees it: a crash from then on leads to no sooner request.
      if (outcome.kind === 'permanent' || outcome.kind === 'transient') await attempts.save(state)
      // The files may hold other credentials, which may be the right ones.
      if (isAboutCredentials(outcome) && (await trials.tryInstead(signal))) return null
      if (credentialsId !== get().credentialsId) return null
      set(answered().state)
      await attempts.report({ outcome, cause, tookMs: answer.tookMs })
      return outcome
    } finally {
      set(afterAttemptEnded(get()))
    }
  }

  /** Changes the state and wakes the loop, if it is another one: most wishes of clients change nothing. */
  function change(next: TokenState): void {
    if (next === get()) return
    set(next)
    attempts.wake()
  }

  return {
    state: get,
    now: (): Instant => clock.now(),
    onEvent: variable.onEvent,
    listenUntil: variable.listenUntil,
    waitUntil: variable.waitUntil,
    tryCredentials: trials.tryCredentials,
    /**
     * The loop, until the signal is aborted. p-retry repeats an attempt until there is a token or a refusal.
     * Its own timers are off: they ignore suspend, a reload and an operator, and have no jitter at the cap.
     */
    async run(signal: AbortSignal): Promise<void> {
      const { default: pRetry, AbortError } = await import('p-retry')
      const refresh = async (): Promise<void> => {
        const outcome = await attempt(signal)
        // A refusal is final: 500 "Your account is not active", 404 "Account not found".
        if (outcome?.kind === 'permanent') throw new AbortError(new AttemptFailed())
        // It failed, was put off or was cancelled.
        if (outcome?.kind !== 'ok') throw new AttemptFailed()
      }
      const onFailedAttempt = async ({ error }: { error: Error }): Promise<void> => {
        if (!(error instanceof AttemptFailed)) throw error
        await untilDue(signal)
      }
      while (!signal.aborted) {
        await untilDue(signal)
        try {
          await pRetry(refresh, { retries: Infinity, minTimeout: 0, signal, onFailedAttempt })
        } catch (error) {
          // A stop is no failure, and neither is a refusal, after which `untilDue` waits for an operator.
          if (!(error instanceof AttemptFailed) && !signal.aborted) throw error
        }
      }
    },
    /** A client needs a token with this life left, in ms: wakes the loop if that helps. */
    need(minValidMs: number): void {
      change(afterClientNeed(get(), minValidMs, clock.now()))
    },
    /** A client reports the token with this fingerprint as refused by the service. */
    reject(fingerprint: string): RejectDecision {
      const { state, decision } = afterReject(get(), fingerprint, clock.now())
      change(state)
      return decision
    },
    /** An operator asks. Resolves with the outcome; undefined: the signal was aborted before it came. */
    async refresh(signal: AbortSignal): Promise<FetchOutcome | undefined> {
      for (;;) {
        change(afterOperator(get(), clock.now()))
        const attempted = await variable.nextAttempted(signal)
        if (attempted === undefined) return undefined
        // What was put off, or asked by another host, is no answer to an operator who has come meanwhile.
        const isAnswer = attempted.outcome.kind !== 'postponed' && attempted.cause !== 'fleet'
        if (isAnswer || attempted.cause === 'operator') return attempted.outcome
      }
    },
    /** The ready-made assertion was renewed. */
    renewed(): void {
      change(afterRenewal(get(), clock.now()))
    },
    /** Uses other settings from now on; with other credentials or another service, at once. */
    reload(next: RefreshSettings): void {
      trials.giveUp()
      if (next.credentialsId !== variable.settings().credentialsId) attempts.cancel()
      variable.use(next)
      change(afterReload(get(), next, step()))
    },
    /** The end of the credentials was logged: not again after a restart. */
    async setLoggedEnd(loggedEnd: string): Promise<void> {
      set({ ...get(), loggedEnd })
      await attempts.save()
    },
    /** Takes an outcome that another host obtained; false: an attempt is under way, and it was not taken. */
    offer(offered: FetchOutcome): boolean {
      if (get().inFlight !== null) return false
      const { state, outcome } = nextState(get(), offered, step())
      change(state)
      void attempts.report({ outcome, cause: 'fleet', tookMs: null })
      return true
    },
  }
}
