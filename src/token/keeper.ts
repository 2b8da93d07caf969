// The keeper: the one loop that asks the service, and the one variable that holds the result.
import type { Clock, Instant } from '../lib/clock.ts'
import { createWakeableSleep } from '../lib/wakeable-sleep.ts'
import type { FetchOutcome, FetchToken } from './outcome.ts'
import { createAttempts, type Attempted, type Variable } from './attempts.ts'
import { afterClientNeed, afterReject, type RejectDecision } from './rejections.ts'
import {
  type Asked,
  dueAtMs,
  nextExpiryMs,
  nextMomentMs,
  signatureOf,
  type Policy,
  type Step,
  type TokenState,
} from './state.ts'
import { afterRefusals, afterReload, afterStart, type Refuses } from './settings-transitions.ts'
import { afterOperator, afterTick, nextState } from './transitions.ts'
import { createTrials, type Trials } from './trials.ts'

/** An event says only that the facts in `state()` are worth reading again. */
export type KeeperEvent =
  /** The loop is alive. At least every 15 s, and at each wake. */
  | { readonly type: 'tick' }
  /** The token or the phase is another than before. */
  | { readonly type: 'changed' }
  /** An attempt is over. */
  | ({ readonly type: 'attempted' } & Attempted)

/** Saves the facts for after a restart. Never fails: a file that cannot be written is logged. */
export interface SaveState {
  (state: TokenState): Promise<void>
}

/** The service, the credentials and the plan. Replaced as a whole by a reload. */
export interface RefreshSettings extends Asked {
  readonly fetchToken: FetchToken
  readonly policy: Policy
  readonly refuses?: Refuses
}

export interface Keeper {
  state(): TokenState
  now(): Instant
  /** The loop. Ends when the signal is aborted. */
  run(signal: AbortSignal): Promise<void>
  /** Calls the listener at each event; returns a function that ends it. */
  onEvent(listener: (event: KeeperEvent) => void): () => void
  /** A client needs a token that lives so long, in ms: wakes the loop where that helps. */
  need(minValidMs: number): void
  /** A client reports the token with this fingerprint as refused by the service. */
  reject(fingerprint: string): RejectDecision
  /** An operator asks: resolves with the outcome when the attempt is over, or undefined when the signal is aborted first. */
  refresh(signal: AbortSignal): Promise<FetchOutcome | undefined>
  /** Goes on with other settings; with other credentials or another service, at once. */
  reload(settings: RefreshSettings): void
  /** Tries other credentials with one request, and goes on with them only if they give a token. */
  tryCredentials: Trials['tryCredentials']
  /** Takes an outcome that another host obtained; false: an attempt is under way, and it was not taken. */
  offer(outcome: FetchOutcome): boolean
  /**
   * Resolves when `isMet` holds, and no later than after `waitMs` or when the signal is aborted. Evaluated after
   * each event, so `isMet` must be cheap.
   */
  waitUntil(isMet: () => boolean, options: { waitMs: number; signal: AbortSignal }): Promise<void>
}

/** The loop reads the clock at least this often: it covers suspend, clock jumps and the limit of timers. */
const TICK_MS = 15_000

export function createKeeper(
  initial: TokenState,
  options: { settings: RefreshSettings; clock: Clock; random: () => number; saveState: SaveState },
): Keeper {
  const { clock, random } = options
  let settings = options.settings
  const step = (): Step => ({ now: clock.now(), policy: settings.policy, random })
  let state = afterRefusals(afterStart(initial, step()), settings.refuses)
  let lastSignature = signatureOf(state, clock.now())
  const { sleep, wake } = createWakeableSleep(clock)
  const listeners = new Set<(event: KeeperEvent) => void>()

  const variable: Variable = {
    get: () => state,
    set: setState,
    setQuietly(next) {
      state = next
    },
  }
  const attempts = createAttempts({
    ...options,
    variable,
    step,
    settings: () => settings,
    emit,
    keepTicking,
    untilDue,
  })
  const trials = createTrials({
    variable,
    step,
    attempts,
    wake,
    takeOver(next) {
      settings = next
    },
  })

  function emit(event: KeeperEvent): void {
    for (const listener of listeners) listener(event)
  }

  function setState(next: TokenState): void {
    state = next
    const current = signatureOf(state, clock.now())
    if (current === lastSignature) return
    lastSignature = current
    emit({ type: 'changed' })
  }

  function tick(): void {
    setState(afterTick(state, step()))
    emit({ type: 'tick' })
  }

  /** Ticks, tries waiting credentials, and sleeps until an attempt is due. */
  async function untilDue(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      tick()
      const now = clock.now()
      if (trials.dueAtMs() <= now.bootMs) await trials.tryNow(signal)
      else if (dueAtMs(state) <= now.bootMs) return
      else {
        const nextMs = Math.min(trials.dueAtMs(), nextMomentMs(state, now))
        await sleep(Math.min(TICK_MS, nextMs - now.bootMs), signal)
      }
    }
  }

  /** Ticks while an attempt is under way, however long that takes: a token may expire meanwhile. */
  async function keepTicking(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const now = clock.now()
      await sleep(Math.min(TICK_MS, nextExpiryMs(state, now) - now.bootMs), signal)
      if (!signal.aborted) tick()
    }
  }

  async function run(signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted) {
        await untilDue(signal)
        await attempts.untilToken(signal)
      }
    } catch (error) {
      // Being stopped is no failure.
      if (!signal.aborted) throw error
    }
  }

  function onEvent(listener: (event: KeeperEvent) => void): () => void {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }

  async function waitUntil(
    isMet: () => boolean,
    { waitMs, signal }: { waitMs: number; signal: AbortSignal },
  ): Promise<void> {
    if (isMet() || waitMs <= 0 || signal.aborted) return
    const end = new AbortController()
    const stop = (): void => {
      end.abort()
    }
    signal.addEventListener('abort', stop)
    const endListening = onEvent(() => {
      if (isMet()) stop()
    })
    await clock.sleep(waitMs, end.signal)
    endListening()
    signal.removeEventListener('abort', stop)
  }

  /** Wakes the loop only where clients' wishes, however frequent, have a consequence. */
  function applyClientChange(next: TokenState): void {
    if (next === state) return
    setState(next)
    wake()
  }

  async function refresh(signal: AbortSignal): Promise<FetchOutcome | undefined> {
    let outcome: FetchOutcome | undefined
    const endListening = onEvent((event) => {
      if (event.type === 'attempted') outcome ??= event.outcome
    })
    setState(afterOperator(state))
    wake()
    await waitUntil(() => outcome !== undefined, { waitMs: Infinity, signal })
    endListening()
    return outcome
  }

  return {
    state: () => state,
    now: () => clock.now(),
    run,
    onEvent,
    need(minValidMs) {
      applyClientChange(afterClientNeed(state, minValidMs, clock.now()))
    },
    reject(fingerprint) {
      const { state: next, verdict } = afterReject(state, fingerprint, clock.now())
      applyClientChange(next)
      return verdict
    },
    refresh,
    reload(next) {
      const isChanged = next.credentialsId !== settings.credentialsId
      settings = next
      setState(afterReload(state, next, step()))
      trials.cancel()
      if (isChanged) attempts.cancel()
      wake()
    },
    tryCredentials: async (next, signal) => trials.tryCredentials(next, signal),
    offer(outcome) {
      if (state.inFlight !== null) return false
      const next = nextState(state, outcome, step())
      setState(next.state)
      void attempts.report({ outcome: next.outcome, cause: 'fleet', tookMs: null })
      wake()
      return true
    },
    waitUntil,
  }
}
