// Attempts of the loop, one at a time: each is saved before its request goes out, the loop ticks while it is
// under way, and it is reported when it is over.
import { createWakeableSleep, withTimeout, type Clock } from '../lib/clock.ts'
import type { Cause } from './outcome.ts'
import { nextExpiryMs, type TokenState } from './state.ts'
import { afterRequest } from './transitions.ts'
import type { Attempted, RefreshSettings, Variable } from './variable.ts'

/** Saves the facts for after a restart. Never fails: a file that cannot be written is logged. */
export type SaveState = (state: TokenState) => Promise<void>

/** The loop reads the clock at least this often: it covers suspend, clock jumps and the limit of timers. */
const TICK_MS = 15_000
/** The longest time that a request waits for its save: a disk that hangs must not cost the token. */
const SAVE_TIMEOUT_MS = 2_000

export type Attempts = ReturnType<typeof createAttempts>
/** What came of an attempt, and how long its request took. */
export type Answer = Pick<Attempted, 'outcome' | 'tookMs'>

export function createAttempts(
  variable: Variable,
  { clock, saveState }: { readonly clock: Clock; readonly saveState: SaveState },
) {
  const { get, set } = variable
  const { sleep, wake } = createWakeableSleep(clock)
  let request = new AbortController()

  /** Saves the state, and waits for the disk for 2 s at most. */
  const save = async (state = get()): Promise<void> => withTimeout(SAVE_TIMEOUT_MS, saveState(state), clock)

  /** Sleeps until that moment on the boot clock, or the next tick. */
  const sleepUntil = async (atMs: number, signal: AbortSignal): Promise<void> =>
    sleep(Math.min(TICK_MS, atMs - clock.now().bootMs), signal)

  /** Ticks while a request is under way, however long that takes: a token may expire meanwhile. */
  async function keepTicking(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleepUntil(nextExpiryMs(get(), clock.now()), signal)
      if (!signal.aborted) variable.tick()
    }
  }

  return {
    save,
    sleepUntil,
    wake,
    cancel: (): void => request.abort(),
    /**
     * Makes one attempt with these settings. Before its request goes out, `assumed` is saved, the state after
     * a failure: so a crash loop keeps to the backoff. Null: the attempt was cancelled.
     */
    async ask(
      settings: RefreshSettings,
      { cause, assumed, stop }: { cause: Cause; assumed: () => TokenState; stop: AbortSignal },
    ): Promise<Answer | null> {
      request = new AbortController()
      const signal = AbortSignal.any([stop, request.signal])
      const answered = new AbortController()
      let requestedAtMs: number | null = null
      const beforeRequest = async (): Promise<void> => {
        const now = clock.now()
        requestedAtMs = now.bootMs
        set(afterRequest(get(), cause, now))
        await save(assumed())
      }
      const ticking = keepTicking(answered.signal)
      try {
        const outcome = await settings.fetchToken(signal, { cause, beforeRequest })
        const tookMs = requestedAtMs === null ? null : clock.now().bootMs - requestedAtMs
        return signal.aborted ? null : { outcome, tookMs }
      } finally {
        answered.abort()
        await ticking
      }
    },
    /** Emits the event, and saves the state. */
    async report(attempted: Omit<Attempted, 'type'>): Promise<void> {
      variable.emit({ type: 'attempted', ...attempted })
      if (attempted.outcome.kind !== 'postponed') await save()
    },
  }
}
