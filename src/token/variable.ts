// The program's one variable: read by everybody, changed by the keeper, with events and waits for its changes.
import { withTimeout, type Clock, type Instant } from '../lib/clock.ts'
import type { Cause, FetchOutcome } from './outcome.ts'
import { phaseOf, usableToken } from './selectors.ts'
import type { Step, TokenState } from './state.ts'
import { afterTick } from './transitions.ts'

/** An event says only that the facts in the state are worth reading again. */
export type KeeperEvent =
  /** The loop is alive. At least every 15 s, and at each wake. */
  | { readonly type: 'tick' }
  /** The token or the phase is another than before. */
  | { readonly type: 'changed' }
  | Attempted
/** An attempt is over. */
export interface Attempted {
  /**
   * `attempted`: with the running pair, or the candidate has given a token and is the running pair. `tried`: with the
   * candidate, and it gave none.
   */
  readonly type: 'attempted' | 'tried'
  readonly outcome: FetchOutcome
  readonly cause: Cause
  /** Duration of the request; null: this host made none. */
  readonly tookMs: number | null
}

export interface VariableOptions {
  readonly clock: Clock
  readonly random: () => number
  /** Saves the facts for after a restart. Never fails: a file that cannot be written is logged. */
  readonly save: (state: TokenState) => Promise<void>
}

/** The loop reads the clock at least this often: it covers suspend, clock jumps and the limit of timers. */
const TICK_MS = 15_000
/** The loop is alive for so long after its last tick. */
const ALIVE_MS = 3 * TICK_MS
/** The longest time that a request waits for its save: a disk that hangs must not cost the token. */
const SAVE_MS = 2_000

export function createVariable(initial: TokenState, { clock, random, save: write }: VariableOptions) {
  let state = initial
  let lastSignature = signatureOf(state, clock.now())
  let tickedAwakeMs = clock.awakeMs()
  const listeners = new Set<(event: KeeperEvent) => void>()
  /** Ends the sleep of the loop. */
  let woken = new AbortController()

  const save = async (facts = state): Promise<void> => withTimeout(SAVE_MS, write(facts), clock)

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

  /** Calls the listener, which must not throw, at each event; returns a function that ends it. */
  function onEvent(listener: (event: KeeperEvent) => void): () => void {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }

  return {
    get: (): TokenState => state,
    set,
    /** Saves these facts, for 2 s at most. */
    save,
    /** Changes the state, saves it and wakes the loop, if it is another one: most wishes of clients change nothing. */
    change: (changed: TokenState): void => {
      if (changed === state) return
      set(changed)
      void save()
      woken.abort()
    },
    step: (): Step => ({ now: clock.now(), drawn: random() }),
    /** Sleeps until that moment on the boot clock, the next tick or a change. */
    async sleepUntil(atMs: number, signal: AbortSignal): Promise<void> {
      woken = new AbortController()
      // It is rounded up: a timer that fires a fraction of a millisecond early would only cost another turn.
      const ms = Math.ceil(Math.min(TICK_MS, atMs - clock.now().bootMs))
      await clock.sleep(ms, AbortSignal.any([signal, woken.signal]))
    },
    tick: (): void => {
      const before = state
      const awakeMs = clock.awakeMs()
      set(afterTick(state, clock.now(), awakeMs - tickedAwakeMs))
      tickedAwakeMs = awakeMs
      emit({ type: 'tick' })
      if (state !== before) void save()
    },
    /** Reports whether the loop ticks, which it does during a request, too. A suspended one need not. */
    isAlive: (): boolean => clock.awakeMs() - tickedAwakeMs < ALIVE_MS,
    emit,
    onEvent,
    /**
     * Resolves when `isMet` returns true, after `waitMs`, or when the signal is aborted. `isMet` is called at
     * each event: it must be cheap. Thousands may wait: an AbortController for each would take a third of the
     * heap.
     */
    waitUntil: (
      isMet: () => boolean,
      { waitMs, signal }: { waitMs: number; signal: AbortSignal },
    ): Promise<void> =>
      new Promise((resolve) => {
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
      }),
  }
}

/** The facts whose change is an event. */
function signatureOf(state: TokenState, now: Instant): string {
  const { generation, token, service } = state
  const isUsable = usableToken(state, now) !== null
  return JSON.stringify([phaseOf(state, now), generation, token?.expiresAtMs, isUsable, service])
}
