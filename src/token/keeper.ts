// The keeper: the one loop that asks the service, one request at a time, and sets the one variable.
import { createWakeableSleep, withTimeout, type Clock, type Instant } from '../lib/clock.ts'
import { raceAbort } from '../lib/tasks.ts'
import { afterClientNeed, afterReject, type RejectDecision } from './client-requests.ts'
import type { Cause, FetchOutcome, TrialOptions } from './outcome.ts'
import {
  notBeforeMs,
  dueAtMs,
  isAsking,
  nextExpiryMs,
  nextMomentMs,
  plannedAttempt,
  type TokenState,
} from './state.ts'
import {
  afterAttemptBegan,
  afterAttemptEnded,
  afterOperator,
  afterReload,
  afterRequest,
  assumeFailed,
  isAboutCredentials,
  nextState,
  withNotBefore,
  withCredentials,
} from './transitions.ts'
import { createVariable, type Attempted, type RefreshSettings, type Variable } from './variable.ts'

export type { KeeperEvent, RefreshSettings } from './variable.ts'

/** Saves the facts for after a restart. Never fails: a file that cannot be written is logged. */
export type SaveState = (state: TokenState) => Promise<void>

interface KeeperOptions {
  readonly settings: RefreshSettings
  readonly clock: Clock
  readonly random: () => number
  readonly saveState: SaveState
}

export type Keeper = ReturnType<typeof createKeeper>
/** The part of it that the reports use. */
export type KeeperView = Pick<Keeper, 'state' | 'now' | 'onEvent' | 'listenUntil'>

/** The loop reads the clock at least this often: it covers suspend, clock jumps and the limit of timers. */
const TICK_MS = 15_000
/** The longest time that a request waits for its save: a disk that hangs must not cost the token. */
const SAVE_TIMEOUT_MS = 2_000

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
          // After a refusal until an operator acts. A stop is no failure.
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
    /** Uses other settings from now on; with other credentials or another service, at once. */
    reload(next: RefreshSettings): void {
      trials.giveUp()
      if (next.credentialsId !== variable.settings().credentialsId) attempts.cancel()
      variable.use(next)
      change(afterReload(get(), next, step()))
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

type Attempts = ReturnType<typeof createAttempts>
type Answer = Awaited<ReturnType<Attempts['ask']>>

/**
 * Attempts of the loop and of trials, one at a time: each is saved before its request goes out, ticks go on
 * while it is under way, and it is reported when it is over.
 */
function createAttempts(variable: Variable, { clock, saveState }: KeeperOptions) {
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
    ): Promise<Pick<Attempted, 'outcome' | 'tookMs'> | null> {
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

interface Trial extends TrialOptions {
  readonly settings: RefreshSettings
  readonly ended: PromiseWithResolvers<FetchOutcome | undefined>
  /** When they are tried, and after which failure: facts as the state has them for the running ones. */
  plan: Pick<TokenState, 'failure' | 'next'>
}

/** Trials of other credentials, repeated until they give a token, and are used, or are refused. */
function createTrials(variable: Variable, attempts: Attempts, clock: Clock) {
  const { get, set, step } = variable
  let trial: Trial | null = null

  /** The state as it is with the credentials that are tried. */
  const stateOf = ({ settings, plan }: Trial): TokenState => ({
    ...withCredentials(get(), settings, clock.now()),
    ...plan,
  })

  /** Tries the credentials that wait. Only for the loop, while no other attempt is under way. */
  async function tryNow(signal: AbortSignal): Promise<void> {
    if (trial === null) return
    const current = trial
    const { settings } = current
    const { credentialsId } = settings
    if (credentialsId === get().credentialsId) return giveUp()
    const { cause } = plannedAttempt(stateOf(current))
    current.plan = { ...current.plan, next: null }
    set({ ...get(), inFlight: { since: clock.now(), cause, credentialsId } })
    try {
      const answer = await attempts.ask(settings, { cause, assumed: get, stop: signal })
      // The trial was given up, or the attempt cancelled, meanwhile.
      if (trial === current && answer !== null) await end(current, answer)
    } finally {
      set(afterAttemptEnded(get()))
    }
  }

  async function end(current: Trial, { outcome: answer, tookMs }: NonNullable<Answer>): Promise<void> {
    const { settings, cause } = current
    const { credentialsId } = settings
    const { state, outcome } = nextState(stateOf(current), answer, step())
    if (outcome.kind === 'ok') {
      // An operator who asked meanwhile has a new token now.
      set({ ...state, next: null })
      variable.use(settings)
      // Before the save, which may take 2 s: whoever ends the trial meanwhile comes too late.
      trial = null
      current.ended.resolve(outcome)
      return attempts.report({ outcome, cause, tookMs })
    }
    if (isAboutCredentials(outcome)) {
      trial = null
      return current.ended.resolve(outcome)
    }
    const { failure, next } = state
    // Only the first try is the act itself: the others keep to every wait.
    current.plan = { failure, next: next && { ...next, cause: 'retry' } }
    const atMs = notBeforeMs(state)
    if (atMs > clock.now().bootMs) {
      set(withNotBefore(get(), { credentialsId, atMs }, clock.now()))
      await attempts.save()
    }
    current.onFailed?.(outcome, plannedAttempt(state).atMs)
  }

  /** Gives up the trial that waits or is under way. */
  function giveUp(): void {
    trial?.ended.resolve(undefined)
    trial = null
    if (!isAsking(get())) attempts.cancel()
  }

  /**
   * Resolves with the token or the refusal; undefined: a reload, another trial or the signal ended it. The
   * `baseUrl` must be the running one.
   */
  async function tryCredentials(
    settings: RefreshSettings,
    options: TrialOptions,
  ): Promise<FetchOutcome | undefined> {
    if (options.signal.aborted) return undefined
    giveUp()
    const ended = Promise.withResolvers<FetchOutcome | undefined>()
    const next = { cause: options.cause, atMs: 0 }
    const own: Trial = { ...options, settings, ended, plan: { failure: null, next } }
    trial = own
    attempts.wake()
    await raceAbort(ended.promise, options.signal)
    if (trial === own) giveUp()
    return ended.promise
  }

  return {
    tryCredentials,
    /** Time at which the credentials that wait are to be tried, on the boot clock; Infinity: none wait. */
    dueAtMs: (): number => (trial === null ? Infinity : dueAtMs(stateOf(trial))),
    tryNow,
    /**
     * The running credentials were refused: tries those that wait, and reports whether they are in use now.
     */
    async tryInstead(signal: AbortSignal): Promise<boolean> {
      const waiting = trial?.settings.credentialsId
      if (waiting === undefined || notBeforeMs(get(), waiting) > clock.now().bootMs) return false
      await tryNow(signal)
      return get().credentialsId === waiting
    },
    giveUp,
  }
}
