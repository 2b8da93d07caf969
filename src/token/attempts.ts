// One request at a time, of the loop or of a trial: saved before it goes out, with ticks while it is under way, and reported when it is over.
import { withTimeout, type Clock } from '../lib/clock.ts'
import type { Cause, FetchOutcome, TrialOptions } from './outcome.ts'
import { nextExpiryMs, type Failure, type TokenState } from './state.ts'
import {
  afterAttemptEnded,
  afterRequest,
  isAboutCredentials,
  nextState,
  withCredentials,
  withOtherBound,
} from './transitions.ts'
import type { Attempted, RefreshSettings, Variable } from './variable.ts'

/** Saves the facts for after a restart. Never fails: a file that cannot be written is logged. */
export type SaveState = (state: TokenState) => Promise<void>

/** The loop reads the clock at least this often: it covers suspend, clock jumps and the limit of timers. */
const TICK_MS = 15_000
/** A request waits no longer for its save: a disk that hangs must not cost the token. */
const SAVE_TIMEOUT_MS = 2_000

interface Trial extends Omit<TrialOptions, 'signal'> {
  readonly settings: RefreshSettings
  failure: Failure | null
  retryAtMs: number
  readonly end: (outcome: FetchOutcome | undefined) => void
}

export function createAttempts({
  variable,
  clock,
  saveState,
  sleep,
  wake,
}: {
  variable: Variable
  clock: Clock
  saveState: SaveState
  sleep: (ms: number, signal: AbortSignal) => Promise<void>
  wake: () => void
}) {
  const { get, set, step } = variable
  let cancel = (): void => undefined
  /** Other credentials: tried again and again if that fails for another reason, and used once they give a token. */
  let trial: Trial | null = null
  let isTrying = false

  /** Saves the state. A disk that hangs is waited for only so long. */
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

  /**
   * One attempt with these settings, whose beginning is in the state. `assumed` is saved before the request goes out,
   * as if it had failed: a crash loop then keeps its distance from the service. The outcome is undefined if the attempt
   * was cancelled.
   */
  async function ask(
    settings: RefreshSettings,
    { cause, assumed, signal }: { cause: Cause; assumed: () => TokenState; signal: AbortSignal },
  ): Promise<{ outcome: FetchOutcome | undefined; tookMs: number | null }> {
    const request = new AbortController()
    const answered = new AbortController()
    let requestedAtMs: number | null = null
    const abort = (): void => request.abort()
    cancel = abort
    const beforeRequest = async (): Promise<void> => {
      const now = clock.now()
      requestedAtMs = now.bootMs
      set(afterRequest(get(), cause, now))
      await save(assumed())
    }
    signal.addEventListener('abort', abort)
    const ticking = keepTicking(answered.signal)
    try {
      const outcome = await settings.fetchToken(request.signal, { cause, beforeRequest })
      const tookMs = requestedAtMs === null ? null : clock.now().bootMs - requestedAtMs
      return { outcome: request.signal.aborted ? undefined : outcome, tookMs }
    } finally {
      answered.abort()
      await ticking
      signal.removeEventListener('abort', abort)
      set(afterAttemptEnded(get()))
    }
  }

  /** Emits the event, and saves the state. */
  async function report(attempted: Omit<Attempted, 'type'>): Promise<void> {
    variable.emit({ type: 'attempted', ...attempted })
    if (attempted.outcome.kind !== 'postponed') await save()
  }

  /** Time before which the service asked for no request with these credentials. */
  const boundMs = ({ settings }: Trial): number => get().otherBounds[settings.credentialsId] ?? -Infinity

  /** Tries the credentials that wait. Only for the loop, while no other attempt is under way. */
  async function tryNow(signal: AbortSignal): Promise<void> {
    if (trial === null) return
    const current = trial
    const { settings, cause } = current
    const { credentialsId } = settings
    if (credentialsId === get().credentialsId) return giveUpTrial()
    isTrying = true
    set({ ...get(), inFlight: { since: clock.now(), cause, credentialsId } })
    const { outcome: answer, tookMs } = await ask(settings, { cause, assumed: get, signal }).finally(() => {
      isTrying = false
    })
    // Given up meanwhile.
    if (trial !== current || answer === undefined) return
    const before = { ...withCredentials(get(), settings, step()), failure: current.failure }
    const { state: next, outcome } = nextState(before, answer, step())
    if (outcome.kind === 'ok') {
      // An operator who asked meanwhile has a new token now.
      set({ ...next, forcedCause: null })
      variable.use(settings)
      await report({ outcome, cause, tookMs })
    } else if (!isAboutCredentials(outcome)) {
      current.failure = next.failure
      current.retryAtMs = next.postponedUntilMs ?? next.failure?.retryAtMs ?? Infinity
      // The pace of `rejected` holds for the running credentials alone: changed files are tried at once.
      if (next.notBeforeMs !== null) {
        set(withOtherBound(get(), { credentialsId, notBeforeMs: next.notBeforeMs }, clock.now()))
        await save()
      }
      return current.onFailed?.(outcome, current.retryAtMs)
    }
    if (trial === current) trial = null
    current.end(outcome)
  }

  /** Gives up the trial that waits or is under way. */
  function giveUpTrial(): void {
    trial?.end(undefined)
    trial = null
    if (isTrying) cancel()
  }

  return {
    ask,
    save,
    report,
    /** Cancels the request that is under way. */
    cancel: (): void => cancel(),
    sleepUntil,
    /**
     * Resolves with the token or the refusal; undefined: a reload, another trial or the signal ended it. `baseUrl` must
     * be the one of the running settings.
     */
    tryCredentials: (
      settings: RefreshSettings,
      { signal, ...options }: TrialOptions,
    ): Promise<FetchOutcome | undefined> =>
      new Promise((resolve) => {
        if (signal.aborted) return resolve(undefined)
        giveUpTrial()
        const onAbort = (): void => {
          if (trial === own) giveUpTrial()
        }
        const own: Trial = {
          ...options,
          settings,
          failure: null,
          retryAtMs: -Infinity,
          end(outcome) {
            signal.removeEventListener('abort', onAbort)
            resolve(outcome)
          },
        }
        signal.addEventListener('abort', onAbort)
        trial = own
        wake()
      }),
    /** Time at which the credentials that wait are to be tried, on the boot clock; Infinity: none wait. */
    trialAtMs(): number {
      if (trial === null) return Infinity
      const isFirst = trial.retryAtMs === -Infinity
      return isFirst && trial.cause === 'operator' ? -Infinity : Math.max(trial.retryAtMs, boundMs(trial))
    },
    tryNow,
    /** The running credentials were refused: tries the ones that wait, and reports whether they are in use now. */
    async tryInstead(signal: AbortSignal): Promise<boolean> {
      if (trial === null || boundMs(trial) > clock.now().bootMs) return false
      const { credentialsId } = trial.settings
      await tryNow(signal)
      return get().credentialsId === credentialsId
    },
    giveUpTrial,
  }
}
