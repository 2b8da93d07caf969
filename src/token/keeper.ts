// The keeper: the one loop that asks the service, one request at a time, and sets the one variable.
import { withTimeout, type Clock, type Instant } from '../lib/clock.ts'
import { afterNeed, afterReport, type RejectDecision } from './clients.ts'
import type { FetchOutcome, FetchToken, ReadyAssertion } from './outcome.ts'
import { next } from './schedule.ts'
import { nextExpiryMs } from './selectors.ts'
import { recordOf, type Notes, type Policy, type Service, type TokenState } from './state.ts'
import {
  afterAbort,
  afterAnswer,
  afterAssertion,
  afterBegin,
  afterFiles,
  afterOffer,
  afterOperator,
  afterRequest,
} from './transitions.ts'
import { fingerprintOf } from './token.ts'
import { createVariable, type Variable } from './variable.ts'

export { createLiveness, type Attempted, type KeeperEvent } from './variable.ts'

/** A pair, and how it is asked. */
export interface Source {
  /** Keyed fingerprint of the pair. */
  readonly id: string
  readonly fetchToken: FetchToken
  /** Where the assertion is ready-made: reads it, and judges its end by this wall clock. Never rejects. */
  readonly readAssertion?: ((wallMs: number) => Promise<ReadyAssertion>) | undefined
}
/** What the files hold. */
export interface Settings {
  readonly service: Service
  readonly policy: Policy
  readonly newest: Source
  /** The running pair with the settings of the files; null: it is the newest. */
  readonly running: Source | null
}

interface KeeperOptions {
  readonly settings: Settings
  readonly clock: Clock
  readonly random: () => number
  /** Saves the facts for after a restart. Never fails: a file that cannot be written is logged. */
  readonly save: (state: TokenState) => Promise<void>
}

export type Keeper = ReturnType<typeof createKeeper>
/** The part of it that the reports use. */
export type KeeperView = Pick<Keeper, 'state' | 'now' | 'onEvent' | 'listenUntil'>

/** The result of an operator's request; `candidate`: the answer to the pair that was asked first, if it gave no token. */
export interface Refreshed {
  readonly outcome: FetchOutcome
  readonly candidate: FetchOutcome | null
}

/** The longest time that a request waits for its save: a disk that hangs must not cost the token. */
const SAVE_MS = 2_000
/** The longest time for which a loop waits for the file of an assertion. */
const READ_MS = 2_000

/** The attempt brought no token. */
class AttemptFailed extends Error {}

/** `initial`: the state of `afterStart`. */
export function createKeeper(initial: TokenState, options: KeeperOptions) {
  const { clock } = options
  const variable = createVariable(initial, options)
  const { get, set, wake, step, emit, onEvent, waitUntil } = variable
  let { settings } = options
  let request = new AbortController()

  const save = async (state = get()): Promise<void> => withTimeout(SAVE_MS, options.save(state), clock)

  /** Changes the state, saves it and wakes the loop, if it is another one: most wishes of clients change nothing. */
  function change(changed: TokenState): void {
    if (changed === get()) return
    set(changed)
    void save()
    wake()
  }

  function sourceOf(pair: string): Source {
    const { newest, running } = settings
    return running?.id === pair ? running : newest
  }

  function tick(): void {
    const before = get()
    variable.tick()
    if (get() !== before) void save()
  }

  /** Ticks while a request is under way, however long that takes: a token may expire meanwhile. */
  async function keepTicking(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await variable.sleepUntil(nextExpiryMs(get(), clock.now()), signal)
      if (!signal.aborted) tick()
    }
  }

  /** The service's clock as far as it is known, else ours: that may be wrong, and may be set meanwhile. */
  function serviceWallMs(): number {
    const { bootMs, wallMs } = clock.now()
    const { serviceMs } = get().clocks
    return serviceMs === null ? wallMs : bootMs + serviceMs
  }

  /** Reads the ready-made assertion. Null: the service takes none. */
  async function readAssertion({ readAssertion: readFile }: Source): Promise<ReadyAssertion | null> {
    if (readFile === undefined) return null
    const reading = withTimeout(READ_MS, readFile(serviceWallMs()), clock)
    const read = (await reading) ?? { problem: 'The disk of the assertion does not answer' }
    change(afterAssertion(get(), 'text' in read ? fingerprintOf(read.text) : null))
    return read
  }

  /** While a pair waits for another assertion, its file is read at each wake of the loop. */
  async function watchAssertion(): Promise<void> {
    const { newest, running } = get()
    for (const pair of new Set([newest, running])) {
      const { refusedWith, unasked } = recordOf(get(), pair)
      if (refusedWith !== null || unasked !== null) await readAssertion(sourceOf(pair))
    }
  }

  /** Asks once. Before its request goes out, the state is saved, with the attempt as failed. Null: it was given up. */
  async function ask(
    source: Source,
    assertion: string | undefined,
    stop: AbortSignal,
  ): Promise<{ outcome: FetchOutcome; tookMs: number | null } | null> {
    const { cause } = get().inFlight!
    request = new AbortController()
    const signal = AbortSignal.any([stop, request.signal])
    const answered = new AbortController()
    let requestedAtMs: number | null = null
    const beforeRequest = async (): Promise<void> => {
      requestedAtMs = clock.now().bootMs
      set(afterRequest(get(), step()))
      await save()
    }
    const ticking = keepTicking(answered.signal)
    try {
      const how = { cause, beforeRequest, serviceWallMs: serviceWallMs(), assertion }
      const outcome = await source.fetchToken(signal, how)
      if (signal.aborted) return null
      return { outcome, tookMs: requestedAtMs === null ? null : clock.now().bootMs - requestedAtMs }
    } finally {
      answered.abort()
      await ticking
    }
  }

  /** Makes the attempt that is due, whoever's pair it is. Null: none is, or its answer does not count. */
  async function attempt(stop: AbortSignal): Promise<FetchOutcome | null> {
    const { pair } = next(get(), clock.now())
    const source = sourceOf(pair)
    const read = await readAssertion(source)
    const plan = next(get(), clock.now())
    if (stop.aborted || plan.pair !== pair || plan.atMs > clock.now().bootMs) return null
    set(afterBegin(get(), plan, clock.now()))
    try {
      if (read !== null && 'problem' in read) {
        const outcome = { kind: 'transient', reason: 'assertion', detail: read.problem } as const
        return await conclude({ outcome, tookMs: null })
      }
      const answer = await ask(source, read?.text, stop)
      return answer && (await conclude(answer))
    } finally {
      set(afterAbort(get()))
    }
  }

  async function conclude(answer: {
    outcome: FetchOutcome
    tookMs: number | null
  }): Promise<FetchOutcome | null> {
    const { pair, cause } = get().inFlight!
    const answeredAt = step()
    const answered = () => afterAnswer(get(), answer.outcome, answeredAt)
    // An answer is saved before anybody sees it: it outlives a crash from then on. What happens meanwhile counts,
    // too.
    await save(answered().state)
    const isCandidate = pair !== get().running
    const { state, outcome } = answered()
    set(state)
    if (outcome === null) return null
    if (!isCandidate || outcome.kind === 'ok')
      emit({ type: 'attempted', outcome, cause, tookMs: answer.tookMs })
    else emit({ type: 'tried', outcome })
    void save()
    return outcome
  }

  /** Ticks, and sleeps until an attempt is due. */
  async function untilDue(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      tick()
      await watchAssertion()
      const now = clock.now()
      const { atMs } = next(get(), now)
      if (atMs <= now.bootMs) return
      await variable.sleepUntil(Math.min(atMs, nextExpiryMs(get(), now)), signal)
    }
  }

  return {
    state: get,
    now: (): Instant => clock.now(),
    onEvent,
    listenUntil: variable.listenUntil,
    waitUntil,
    /** The loop, until the signal is aborted. */
    run: async (signal: AbortSignal): Promise<void> => repeat({ attempt, untilDue }, signal),
    /** A client needs a token with this life left, in ms: wakes the loop if a new one can have it. */
    need(minValidMs: number): void {
      change(afterNeed(get(), minValidMs, clock.now()))
    },
    /** A client reports the token with this fingerprint as refused by the service. */
    reject(fingerprint: string): RejectDecision {
      const { state, decision } = afterReport(get(), fingerprint, clock.now())
      change(state)
      return decision
    },
    refresh: createRefresh(variable, change),
    /** Uses what the files hold from now on. Of another service the request that is under way is given up. */
    reload(read: Settings): void {
      const before = get().service.id
      settings = read
      const { service, policy, newest } = read
      change(afterFiles(get(), { service, policy, pair: newest.id }, step()))
      if (service.id !== before) request.abort()
    },
    /** Uses an outcome of another host; false: an attempt is under way, and nothing has changed. */
    offer(offered: FetchOutcome): boolean {
      if (get().inFlight !== null) return false
      const { state, outcome } = afterOffer(get(), offered, step())
      change(state)
      if (outcome !== null) emit({ type: 'attempted', outcome, cause: 'fleet', tookMs: null })
      return true
    },
    /** Has these facts kept over a restart; see `notesOf`. */
    remember(notes: Partial<Notes>): void {
      change({ ...get(), notes: { ...get().notes, ...notes } })
    },
  }
}

/**
 * p-retry repeats an attempt until there is a token or a refusal. Its own timers are off: they ignore suspend, a
 * reload and an operator, and have no jitter at the cap.
 */
async function repeat(
  {
    attempt,
    untilDue,
  }: {
    attempt: (signal: AbortSignal) => Promise<FetchOutcome | null>
    untilDue: (signal: AbortSignal) => Promise<void>
  },
  signal: AbortSignal,
): Promise<void> {
  const { default: pRetry, AbortError } = await import('p-retry')
  const once = async (): Promise<void> => {
    const outcome = await attempt(signal)
    // A refusal is final: 500 "Your account is not active", 404 "Account not found".
    if (outcome?.kind === 'permanent') throw new AbortError(new AttemptFailed())
    // It failed, was postponed or was given up.
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
}

function createRefresh(
  { get, onEvent, waitUntil }: Pick<Variable, 'get' | 'onEvent' | 'waitUntil'>,
  change: (changed: TokenState) => void,
) {
  /**
   * An operator asks: the candidate first, if there is one, and the running pair where that gives no token.
   * Both attempts are made whatever the signal does. Undefined: it was aborted before the answer came.
   */
  return async (signal: AbortSignal): Promise<Refreshed | undefined> => {
    let outcome: FetchOutcome | null = null
    let candidate: FetchOutcome | null = null
    const isPending = (): boolean => get().wish.length > 0 || get().inFlight?.isOperators === true
    const endListening = onEvent((event) => {
      if (event.type === 'tried') candidate = event.outcome
      else if (event.type === 'attempted' && event.cause !== 'fleet') outcome = event.outcome
    })
    change(afterOperator(get()))
    await waitUntil(() => outcome !== null && !isPending(), { waitMs: Infinity, signal })
    endListening()
    return outcome === null ? undefined : { outcome, candidate }
  }
}
