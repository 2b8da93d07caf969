// The keeper: the one loop that asks the service, one request at a time, and sets the one variable.
import { fingerprintOf, type RejectVerdict } from '../protocol.ts'
import type { FetchOutcome, FetchToken } from './outcome.ts'
import { next, nextExpiryMs } from './selectors.ts'
import { recordOf, type Files, type TokenState } from './state.ts'
import * as transitions from './transitions.ts'
import { createVariable, type Attempted, type VariableOptions } from './variable.ts'

/** A pair, and how it is asked. */
export interface Source {
  /** Keyed fingerprint of the pair. */
  readonly id: string
  readonly fetchToken: FetchToken
  /** Reads a ready-made assertion. Null: there is none. Never rejects. */
  readonly readAssertion?: (() => Promise<string | null>) | undefined
}

export type Keeper = ReturnType<typeof createKeeper>
/** The part of it that the reports use. */
export type KeeperView = Pick<Keeper, 'state' | 'now' | 'isAlive' | 'onEvent'>

/** The attempt brought no token. */
class AttemptFailed extends Error {}

/** `initial`: the state of `afterStart`. `sourceOf`: of the newest pair, or of the running one. */
export function createKeeper(
  initial: TokenState,
  options: VariableOptions & { readonly sourceOf: (pair: string) => Source },
) {
  const { clock, sourceOf } = options
  const variable = createVariable(initial, options)
  const { get, set, save, change, step, tick, emit, onEvent, waitUntil } = variable
  let request = new AbortController()

  /** Reads the ready-made assertion of each refused pair: another one lifts the refusal. */
  async function watchAssertions(): Promise<void> {
    const { newest, running } = get()
    for (const pair of new Set([newest, running])) {
      const { readAssertion } = sourceOf(pair)
      if (readAssertion === undefined || recordOf(get(), pair).refusal === null) continue
      const text = await readAssertion()
      if (text !== null) change(transitions.afterAssertion(get(), pair, fingerprintOf(text), clock.now()))
    }
  }

  /** Ticks, and sleeps until an attempt is due; while one is under way, until the signal is aborted. */
  async function untilDue(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      tick()
      await watchAssertions()
      const now = clock.now()
      const { atMs } = next(get(), now)
      if (atMs <= now.bootMs) return
      await variable.sleepUntil(Math.min(atMs, nextExpiryMs(get(), now)), signal)
    }
  }

  /** Makes the next attempt, whoever's pair it is. Null: its answer does not count. */
  async function attempt(stop: AbortSignal): Promise<FetchOutcome | null> {
    await untilDue(stop)
    const plan = next(get(), clock.now())
    if (stop.aborted || plan.atMs > clock.now().bootMs) return null
    set(transitions.afterBegin(get(), plan))
    const { cause } = get().inFlight!
    request = new AbortController()
    const signal = AbortSignal.any([stop, request.signal])
    const over = new AbortController()
    // A token may expire meanwhile.
    const ticking = untilDue(over.signal)
    try {
      const serviceMs = get().clocks.serviceMs
      const serviceWallMs = serviceMs === null ? undefined : clock.now().bootMs + serviceMs
      const how = { cause, beforeRequest, serviceWallMs }
      const outcome = await sourceOf(plan.pair)
        .fetchToken(signal, how)
        .finally(() => over.abort())
      await ticking
      return signal.aborted ? null : await conclude(outcome)
    } finally {
      set(transitions.afterAbort(get()))
    }
  }

  /** Before the request goes out, the state is saved, with the attempt as failed. */
  async function beforeRequest(assertion?: string): Promise<void> {
    set(transitions.afterRequest(get(), step(), assertion))
    await save()
  }

  async function conclude(answer: FetchOutcome): Promise<FetchOutcome | null> {
    const answeredAt = step()
    const answered = () => transitions.afterAnswer(get(), answer, answeredAt)
    // The answer to a request is saved before anybody sees it: it outlives a crash from then on. What happens
    // meanwhile counts, too.
    if (get().inFlight?.sentAtMs !== null) await save(answered().state)
    const { inFlight, running } = get()
    const { state, outcome } = answered()
    set(state)
    void save()
    if (inFlight === null || outcome === null) return null
    const { pair, cause, sentAtMs } = inFlight
    const type = pair === running || outcome.kind === 'ok' ? 'attempted' : 'tried'
    emit({ type, outcome, cause, tookMs: sentAtMs === null ? null : answeredAt.now.bootMs - sentAtMs })
    return outcome
  }

  /**
   * The loop, until the signal is aborted: p-retry repeats an attempt until there is a token or a refusal. Its own
   * timers are off: they ignore suspend, a reload and an operator, and have no jitter at the cap.
   */
  async function run(signal: AbortSignal): Promise<void> {
    const { default: pRetry } = await import('p-retry')
    const once = async (): Promise<void> => {
      const outcome = await attempt(signal)
      // A refusal is final, too: 500 "Your account is not active", 404 "Account not found".
      const isFinal = outcome?.kind === 'ok' || outcome?.kind === 'permanent'
      if (!isFinal && !signal.aborted) throw new AttemptFailed()
    }
    const shouldRetry = ({ error }: { error: Error }): boolean => error instanceof AttemptFailed
    while (!signal.aborted) await pRetry(once, { retries: Infinity, minTimeout: 0, shouldRetry })
  }

  return {
    state: get,
    now: () => clock.now(),
    isAlive: variable.isAlive,
    onEvent,
    waitUntil,
    run,
    /** A client needs a token with this life left, in ms: wakes the loop if a new one can have it. */
    need(minValidMs: number): void {
      change(transitions.afterNeed(get(), minValidMs, clock.now()))
    },
    /** A client reports the token with this fingerprint as refused by the service. */
    reject(fingerprint: string): { verdict: RejectVerdict; retryAfterMs?: number } {
      const { state, ...decision } = transitions.afterReport(get(), fingerprint, clock.now())
      change(state)
      return decision
    },
    /**
     * An operator asks: the candidate first, if there is one, and the running pair where that gives no token. Both
     * attempts are made whatever the signal does. `candidate`: the answer to it, if it gave no token. Null: the
     * signal was aborted before the answer came.
     */
    refresh: async (signal: AbortSignal) => {
      const answers: Record<Attempted['type'], FetchOutcome | null> = { attempted: null, tried: null }
      const endListening = onEvent((event) => {
        if ('outcome' in event) answers[event.type] = event.outcome
      })
      change(transitions.afterOperator(get()))
      const isPending = (): boolean => get().wish !== null || get().inFlight?.isOperators === true
      await waitUntil(() => answers.attempted !== null && !isPending(), { waitMs: Infinity, signal })
      endListening()
      return answers.attempted && { outcome: answers.attempted, candidate: answers.tried }
    },
    /** Uses what the files hold from now on. Of another service the request that is under way is given up. */
    reload(files: Files): void {
      const before = get().service.id
      change(transitions.afterFiles(get(), files, step()))
      if (files.service.id !== before) request.abort()
    },
    /** Uses an outcome of another host; false: an attempt is under way or wished, and nothing has changed. */
    offer(offered: FetchOutcome): boolean {
      const { inFlight, wish, running: pair } = get()
      if (inFlight !== null || wish !== null) return false
      const asked = transitions.afterBegin(get(), { pair, by: 'plan' })
      const { state, outcome } = transitions.afterAnswer(asked, offered, step())
      change(state)
      if (outcome !== null) emit({ type: 'attempted', outcome, cause: 'fleet', tookMs: null })
      return true
    },
    /** Has these facts kept over a restart. */
    remember(notes: TokenState['notes']): void {
      change({ ...get(), notes: { ...get().notes, ...notes } })
    },
  }
}
