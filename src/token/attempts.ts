// Attempts: one request at a time, saved before it goes out, and repeated by p-retry until there is a token or a refusal.
import { withTimeout, type Clock, type Instant } from '../lib/clock.ts'
import type { KeeperEvent, RefreshSettings, SaveState } from './keeper.ts'
import type { Cause, FetchOutcome } from './outcome.ts'
import { causeOf, dueAtMs, type Step, type TokenState } from './state.ts'
import {
  afterAttemptBegan,
  afterAttemptEnded,
  afterRequest,
  assumeFailed,
  nextState,
  withClientRequestAgain,
} from './transitions.ts'

/** The one variable of the program, seen from its writers. */
export interface Variable {
  get(): TokenState
  /** Changes it, with an event where the token or the phase is another one then. */
  set(next: TokenState): void
  /** Changes it without an event. */
  setQuietly(next: TokenState): void
}

export interface Attempted {
  readonly outcome: FetchOutcome
  readonly cause: Cause
  /** Duration of the request; null: this host made none. */
  readonly tookMs: number | null
}

export interface Attempts {
  /** One attempt, ticking meanwhile. The outcome is undefined where the attempt was cancelled. */
  ask(
    settings: RefreshSettings,
    options: { cause: Cause; assumed: () => TokenState; signal: AbortSignal },
  ): Promise<{ outcome: FetchOutcome | undefined; tookMs: number | null }>
  /** Saves the state. A disk that hangs is waited for only so long. */
  save(state: TokenState): Promise<void>
  /** Emits the event, and saves the state. */
  report(attempted: Attempted): Promise<void>
  /** Repeats the attempt until there is a token or a refusal. Rejects when the signal is aborted. */
  untilToken(signal: AbortSignal): Promise<void>
  /** Cancels the attempt that is under way. */
  cancel(): void
}

/** A request waits no longer for its save: a disk that hangs must not cost the token. */
const SAVE_TIMEOUT_MS = 2_000

/** Failed in passing, put off, or cancelled: p-retry repeats it. */
class AttemptFailed extends Error {
  override readonly name = 'AttemptFailed'
  readonly report: () => Promise<void>
  constructor(report: () => Promise<void>) {
    super('The attempt gave no token')
    this.report = report
  }
}

export function createAttempts({
  variable,
  clock,
  saveState,
  step,
  settings,
  emit,
  keepTicking,
  untilDue,
}: {
  variable: Variable
  clock: Clock
  saveState: SaveState
  step: () => Step
  settings: () => RefreshSettings
  emit: (event: KeeperEvent) => void
  keepTicking: (signal: AbortSignal) => Promise<void>
  untilDue: (signal: AbortSignal) => Promise<void>
}): Attempts {
  let cancelRequest = (): void => undefined

  const save = async (state: TokenState): Promise<void> =>
    withTimeout(SAVE_TIMEOUT_MS, saveState(state), clock)

  async function ask(
    asked: RefreshSettings,
    { cause, assumed, signal }: { cause: Cause; assumed: () => TokenState; signal: AbortSignal },
  ): Promise<{ outcome: FetchOutcome | undefined; tookMs: number | null }> {
    const request = new AbortController()
    const answered = new AbortController()
    let requestedAt: Instant | null = null
    cancelRequest = () => {
      request.abort()
    }
    const beforeRequest = async (): Promise<void> => {
      requestedAt = clock.now()
      variable.set(afterRequest(variable.get(), cause, requestedAt))
      // Saved before the request goes out, as if it failed: a crash loop then keeps its distance from the service.
      await save(assumed())
    }
    signal.addEventListener('abort', cancelRequest)
    const ticking = keepTicking(answered.signal)
    try {
      const outcome = await asked.fetchToken(request.signal, { cause, beforeRequest })
      const tookMs = requestedAt === null ? null : clock.now().bootMs - (requestedAt as Instant).bootMs
      return { outcome: request.signal.aborted ? undefined : outcome, tookMs }
    } finally {
      answered.abort()
      await ticking
      signal.removeEventListener('abort', cancelRequest)
      variable.set(afterAttemptEnded(variable.get()))
    }
  }

  /** One attempt, and the state that follows from it. Throws AttemptFailed where it is to be repeated. */
  async function attempt(signal: AbortSignal): Promise<void> {
    // Another host's token may have come since the attempt was due.
    if (dueAtMs(variable.get()) > clock.now().bootMs) return
    const cause = causeOf(variable.get(), clock.now())
    variable.set(afterAttemptBegan(variable.get(), cause, clock.now()))
    const assumed = (): TokenState => assumeFailed(variable.get(), step())
    const { outcome: answer, tookMs } = await ask(settings(), { cause, assumed, signal })
    if (answer === undefined) throw new AttemptFailed(() => Promise.resolve())
    const { state: next, outcome } = nextState(variable.get(), answer, step())
    if (outcome.kind === 'permanent') await saveRefusal(next)
    else if (outcome.kind === 'postponed' && cause === 'client') variable.set(withClientRequestAgain(next))
    else variable.set(next)
    const attempted = { outcome, cause, tookMs }
    if (outcome.kind === 'ok' || outcome.kind === 'permanent') await report(attempted)
    else throw new AttemptFailed(() => report(attempted))
  }

  /** Saved before it is announced: after a crash from then on, the service is not asked again. */
  async function saveRefusal(next: TokenState): Promise<void> {
    variable.setQuietly(next)
    await save(next)
    variable.set(variable.get())
  }

  async function report(attempted: Attempted): Promise<void> {
    emit({ type: 'attempted', ...attempted })
    if (attempted.outcome.kind !== 'postponed') await save(variable.get())
  }

  /**
   * Repeats the attempt until there is a token or a refusal. p-retry repeats, reports failures and stops; its own
   * timers are off, because they are deaf to suspend, to a reload and to an operator, and have no jitter at the cap.
   */
  async function untilToken(signal: AbortSignal): Promise<void> {
    const { default: pRetry } = await import('p-retry')
    await pRetry(() => attempt(signal), {
      retries: Infinity,
      minTimeout: 0,
      signal,
      shouldRetry: ({ error }) => error instanceof AttemptFailed,
      onFailedAttempt: async ({ error }) => {
        if (!(error instanceof AttemptFailed)) return
        await error.report()
        await untilDue(signal)
      },
    })
  }

  return {
    save,
    ask,
    report,
    untilToken,
    cancel() {
      cancelRequest()
    },
  }
}
