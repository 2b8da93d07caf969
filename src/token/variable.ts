// The program's one variable: read by everybody, changed by the keeper, with events and waits for its changes.
import type { Clock } from '../lib/clock.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { Cause, FetchOutcome, Grant } from './outcome.ts'
import { signatureOf } from './selectors.ts'
import type { Step, TokenState } from './state.ts'
import { afterTick } from './transitions.ts'

/** An event says only that the facts in the state are worth reading again. */
export type KeeperEvent =
  /** The loop is alive. At least every 15 s, and at each wake. */
  | { readonly type: 'tick' }
  /** The token or the phase is another than before. */
  | { readonly type: 'changed' }
  | Attempted
  /** An attempt with the candidate is over, and gave no token. */
  | { readonly type: 'tried'; readonly outcome: Exclude<FetchOutcome, Grant> }
/** An attempt with the running pair is over, or the candidate has given a token and is the running pair. */
export interface Attempted {
  readonly type: 'attempted'
  readonly outcome: FetchOutcome
  readonly cause: Cause
  /** Duration of the request; null: this host made none. */
  readonly tookMs: number | null
}

export type Variable = ReturnType<typeof createVariable>

/** The loop reads the clock at least this often: it covers suspend, clock jumps and the limit of timers. */
const TICK_MS = 15_000

export function createVariable(
  initial: TokenState,
  { clock, random }: { readonly clock: Clock; readonly random: () => number },
) {
  let state = initial
  let lastSignature = signatureOf(state, clock.now())
  let tickedAwakeMs = clock.awakeMs()
  const listeners = new Set<(event: KeeperEvent) => void>()
  /** Ends the sleep of the loop. */
  let woken = new AbortController()

  function emit(event: KeeperEvent): void {
    for (const listener of listeners) listener(event)
  }

  /** Changes the state, with an event if the token or the phase has changed by that. */
  function set(next: TokenState): void {
    state = next
    const signature = signatureOf(state, clock.now())
    if (signature === lastSignature) return
    lastSignature = signature
    emit({ type: 'changed' })
  }

  /** Calls the listener at each event; returns a function that ends it. */
  function onEvent(listener: (event: KeeperEvent) => void): () => void {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }

  /** Calls the listener, which must not throw, at each event. Resolves when the signal is aborted. */
  async function listenUntil(signal: AbortSignal, listener: (event: KeeperEvent) => void): Promise<void> {
    const endListening = onEvent(listener)
    await untilAborted(signal)
    endListening()
  }

  /**
   * Resolves when `isMet` returns true, after `waitMs`, or when the signal is aborted. `isMet` is called at
   * each event: it must be cheap. Thousands may wait: an AbortController for each would take a third of the
   * heap.
   */
  function waitUntil(
    isMet: () => boolean,
    { waitMs, signal }: { waitMs: number; signal: AbortSignal },
  ): Promise<void> {
    return new Promise((resolve) => {
      if (isMet() || waitMs <= 0 || signal.aborted) return resolve()
      const end = (): void => {
        cancel()
        endListening()
        signal.removeEventListener('abort', end)
        resolve()
      }
      const cancel = clock.schedule(waitMs, end)
      const endListening = onEvent(() => isMet() && end())
      signal.addEventListener('abort', end)
    })
  }

  return {
    get: (): TokenState => state,
    set,
    wake: (): void => woken.abort(),
    step: (): Step => ({ now: clock.now(), drawn: random() }),
    /** Sleeps until that moment on the boot clock, the next tick or a change. */
    async sleepUntil(atMs: number, signal: AbortSignal): Promise<void> {
      woken = new AbortController()
      // Rounded up: a timer that fires a fraction of a millisecond early would only cost another turn.
      const ms = Math.ceil(Math.min(TICK_MS, atMs - clock.now().bootMs))
      await clock.sleep(ms, AbortSignal.any([signal, woken.signal]))
    },
    tick(): void {
      const awakeMs = clock.awakeMs()
      set(afterTick(state, { now: clock.now() }, awakeMs - tickedAwakeMs))
      tickedAwakeMs = awakeMs
      emit({ type: 'tick' })
    },
    emit,
    onEvent,
    listenUntil,
    waitUntil,
  }
}

const ALIVE_MS = 3 * TICK_MS

/**
 * Returns a function that reports whether the loop is alive: it ticks during a request, too. `monotonicMs`
 * stops during suspend, because a suspended loop cannot tick.
 */
export function createLiveness(keeper: Pick<Variable, 'onEvent'>, monotonicMs: () => number): () => boolean {
  let tickedAtMs = monotonicMs()
  keeper.onEvent(({ type }) => {
    if (type === 'tick') tickedAtMs = monotonicMs()
  })
  return () => monotonicMs() - tickedAtMs < ALIVE_MS
}
