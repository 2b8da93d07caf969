// The keeper: the one loop that asks the service, one request at a time, and sets the one variable.
import type { Clock, Instant } from '../lib/clock.ts'
import { createAttempts, type SaveState } from './attempts.ts'
import { afterCandidate, isTrying } from './candidate.ts'
import { afterClientNeed, afterReject, type RejectDecision } from './client-requests.ts'
import type { FetchOutcome } from './outcome.ts'
import { dueAtMs, nextMomentMs, trialDueAtMs, type TokenState } from './state.ts'
import { afterReload, afterRenewal, nextState } from './transitions.ts'
import { createOperatorRefresh } from './operator-refresh.ts'
import { createVariable, type RefreshSettings } from './variable.ts'

export type { Refreshed } from './operator-refresh.ts'
export { createLiveness, type Attempted, type KeeperEvent, type RefreshSettings } from './variable.ts'

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
  const { get, set, change, step } = variable
  const attempts = createAttempts(variable, options)

  /** Ticks, and sleeps until an attempt is due. */
  async function untilDue(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      variable.tick()
      const now = clock.now()
      if (Math.min(dueAtMs(get()), trialDueAtMs(get())) <= now.bootMs) return
      await variable.sleepUntil(nextMomentMs(get(), now), signal)
    }
  }

  return {
    state: get,
    now: (): Instant => clock.now(),
    onEvent: variable.onEvent,
    listenUntil: variable.listenUntil,
    waitUntil: variable.waitUntil,
    /**
     * The loop, until the signal is aborted. p-retry repeats an attempt until there is a token or a refusal.
     * Its own timers are off: they ignore suspend, a reload and an operator, and have no jitter at the cap.
     */
    async run(signal: AbortSignal): Promise<void> {
      const { default: pRetry, AbortError } = await import('p-retry')
      const once = async (): Promise<void> => {
        const outcome = await attempts.makeDue(signal)
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
          await pRetry(once, { retries: Infinity, minTimeout: 0, signal, onFailedAttempt })
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
    refresh: createOperatorRefresh(variable, clock),
    /** The ready-made assertion was renewed. */
    renewed(): void {
      change(afterRenewal(get(), clock.now()))
    },
    /** Uses other settings from now on; with other credentials or another service, at once. */
    reload(next: RefreshSettings): void {
      if (next.credentialsId !== variable.settings().credentialsId) attempts.cancel()
      variable.use(next)
      change(afterReload(get(), next, step()))
    },
    /**
     * Has this pair, for the running service, tried until it gives a token, and then used; one that is the
     * candidate already is asked once more. Null: there is none, or the files have the running pair again.
     */
    setCandidate(next: RefreshSettings | null): void {
      const before = get()
      const state = afterCandidate(before, next?.credentialsId ?? null, clock.now())
      const isOther = state.candidate?.credentialsId !== before.candidate?.credentialsId
      if (isTrying(before) && isOther) attempts.cancel()
      variable.setCandidate(next)
      change(state)
      if (isOther) void attempts.save()
    },
    /** The end of the credentials was logged: not again after a restart. */
    async setLoggedEnd(loggedEnd: string): Promise<void> {
      set({ ...get(), loggedEnd })
      await attempts.save()
    },
    /** Uses an outcome of another host; false: an attempt is under way, and nothing has changed. */
    offer(offered: FetchOutcome): boolean {
      if (get().inFlight !== null) return false
      const { state, outcome } = nextState(get(), offered, step())
      change(state)
      void attempts.report({ outcome, cause: 'fleet', tookMs: null })
      return true
    },
  }
}
