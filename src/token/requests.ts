// One request at a time: saved before it goes out, with ticks while it is under way, and reported when it is over.
import { withTimeout, type Clock, type Instant } from '../lib/clock.ts'
import type { Cause, FetchOutcome } from './outcome.ts'
import { nextExpiryMs, type TokenState } from './state.ts'
import { afterAttemptEnded, afterRequest } from './transitions.ts'
import type { Attempted, RefreshSettings, Variable } from './variable.ts'

/** Saves the facts for after a restart. Never fails: a file that cannot be written is logged. */
export type SaveState = (state: TokenState) => Promise<void>

export type Requests = ReturnType<typeof createRequests>

/** The loop reads the clock at least this often: it covers suspend, clock jumps and the limit of timers. */
const TICK_MS = 15_000
/** A request waits no longer for its save: a disk that hangs must not cost the token. */
const SAVE_TIMEOUT_MS = 2_000

export function createRequests({
  variable,
  clock,
  saveState,
  sleep,
}: {
  variable: Variable
  clock: Clock
  saveState: SaveState
  sleep: (ms: number, signal: AbortSignal) => Promise<void>
}) {
  let cancel = (): void => undefined

  /** Saves the state. A disk that hangs is waited for only so long. */
  const save = async (state = variable.get()): Promise<void> =>
    withTimeout(SAVE_TIMEOUT_MS, saveState(state), clock)

  /** Sleeps until that moment on the boot clock, or the next tick. */
  const sleepUntil = async (atMs: number, signal: AbortSignal): Promise<void> =>
    sleep(Math.min(TICK_MS, atMs - clock.now().bootMs), signal)

  /** Ticks while a request is under way, however long that takes: a token may expire meanwhile. */
  async function keepTicking(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleepUntil(nextExpiryMs(variable.get(), clock.now()), signal)
      if (!signal.aborted) variable.tick()
    }
  }

  return {
    /**
     * One attempt with these settings, whose beginning is in the state. `assumed` is saved before the request goes out,
     * as if it had failed: a crash loop then keeps its distance from the service. The outcome is undefined where the
     * attempt was cancelled.
     */
    async ask(
      settings: RefreshSettings,
      { cause, assumed, signal }: { cause: Cause; assumed: () => TokenState; signal: AbortSignal },
    ): Promise<{ outcome: FetchOutcome | undefined; tookMs: number | null }> {
      const request = new AbortController()
      const answered = new AbortController()
      let requestedAt: Instant | null = null
      const abort = (): void => request.abort()
      cancel = abort
      const beforeRequest = async (): Promise<void> => {
        requestedAt = clock.now()
        variable.set(afterRequest(variable.get(), cause, requestedAt))
        await save(assumed())
      }
      signal.addEventListener('abort', abort)
      const ticking = keepTicking(answered.signal)
      try {
        const outcome = await settings.fetchToken(request.signal, { cause, beforeRequest })
        const tookMs = requestedAt === null ? null : clock.now().bootMs - (requestedAt as Instant).bootMs
        return { outcome: request.signal.aborted ? undefined : outcome, tookMs }
      } finally {
        answered.abort()
        await ticking
        signal.removeEventListener('abort', abort)
        variable.set(afterAttemptEnded(variable.get()))
      }
    },
    save,
    /** Emits the event, and saves the state. */
    async report(attempted: Omit<Attempted, 'type'>): Promise<void> {
      variable.emit({ type: 'attempted', ...attempted })
      if (attempted.outcome.kind !== 'postponed') await save()
    },
    /** Cancels the request that is under way. */
    cancel: (): void => cancel(),
    sleepUntil,
  }
}
