// The keeper: the one loop that asks the service, and the one variable that holds what came of it.
import type { Clock, Instant } from '../lib/clock.ts'
import { repeat, TryAgain } from '../lib/repeat.ts'
import type { FetchOutcome, FetchToken } from './outcome.ts'
import {
  afterAsked,
  afterGivenUp,
  afterLook,
  afterNeed,
  afterOperator,
  afterReload,
  afterReport,
  causeOf,
  dueAtMs,
  heldToken,
  nextExpiryMs,
  nextMomentMs,
  nextState,
  phaseOf,
  presumedFailed,
  usableToken,
  type Cause,
  type Policy,
  type Step,
  type TokenState,
  type Verdict,
} from './state.ts'

/** What the keeper tells. The facts are in `state()`; an event says only that there is something to look at. */
export type KeeperEvent =
  /** The loop is alive. At least every 15 s, and at each wake. */
  | { readonly type: 'looked' }
  /** The token or the phase is another than before. */
  | { readonly type: 'changed' }
  /** An attempt is over. */
  | {
      readonly type: 'attempted'
      readonly outcome: FetchOutcome
      readonly cause: Cause
      readonly tookMs: number
    }

/** Where the facts are kept for after a restart. Never fails: what cannot be written is told in the log. */
export interface Remember {
  (state: TokenState): Promise<void>
}

/** What is asked, and how. Replaced as a whole by a reload. */
export interface Asking {
  readonly fetchToken: FetchToken
  readonly policy: Policy
  readonly baseUrl: string
  /** Keyed fingerprint of `baseUrl` and credentials. */
  readonly subject: string
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
  report(fingerprint: string): Verdict
  /** An operator asks: resolves with the outcome when the attempt is over, or undefined when the signal is aborted first. */
  refresh(signal: AbortSignal): Promise<FetchOutcome | undefined>
  /** Goes on with other settings; with other credentials or another service, at once. */
  reload(asking: Asking): void
  /**
   * Resolves when `isMet` holds, and no later than after `waitMs` or when the signal is aborted. Looked at after
   * each event, so `isMet` must be cheap.
   */
  until(isMet: () => boolean, options: { waitMs: number; signal: AbortSignal }): Promise<void>
}

/** The loop looks at the clock at least this often: it covers suspend, clock jumps and the limit of timers. */
const LOOK_MS = 15_000

export function createKeeper(
  initial: TokenState,
  options: { asking: Asking; clock: Clock; random: () => number; remember: Remember },
): Keeper {
  const { clock, random, remember } = options
  let asking = options.asking
  let state = initial
  let told = signature(state, clock.now())
  let wake = (): void => undefined
  let giveUp = (): void => undefined
  const listeners = new Set<(event: KeeperEvent) => void>()

  const step = (): Step => ({ now: clock.now(), policy: asking.policy, random })

  function tell(event: KeeperEvent): void {
    for (const listener of listeners) listener(event)
  }

  /** The only place where the variable changes. */
  function become(next: TokenState): void {
    state = next
    const current = signature(state, clock.now())
    if (current === told) return
    told = current
    tell({ type: 'changed' })
  }

  function look(): void {
    become(afterLook(state, step()))
    tell({ type: 'looked' })
  }

  /** Looks at the clock, tells so, and sleeps until something is due. */
  async function untilDue(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      look()
      const now = clock.now()
      if (dueAtMs(state) <= now.bootMs) return
      await nap(Math.min(LOOK_MS, nextMomentMs(state, now) - now.bootMs), signal)
    }
  }

  /** Goes on looking while a request is under way, however long that takes: a token may expire meanwhile. */
  async function watch(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const now = clock.now()
      await nap(Math.min(LOOK_MS, nextExpiryMs(state, now) - now.bootMs), signal)
      if (!signal.aborted) look()
    }
  }

  async function nap(ms: number, signal: AbortSignal): Promise<void> {
    const alarm = new AbortController()
    wake = () => {
      alarm.abort()
    }
    signal.addEventListener('abort', wake)
    // Rounded up: a timer that fires a fraction of a millisecond early would only have us look twice.
    await clock.sleep(Math.ceil(ms), alarm.signal)
    signal.removeEventListener('abort', wake)
  }

  /** One request and what came of it. Throws TryAgain where it is to be repeated. */
  async function attempt(signal: AbortSignal): Promise<void> {
    const cause = causeOf(state, clock.now())
    const request = new AbortController()
    giveUp = () => {
      request.abort()
    }
    signal.addEventListener('abort', giveUp)
    try {
      become(afterAsked(state, cause, clock.now()))
      // Written before the request goes out, as if it failed: a crash loop then keeps its distance from the service.
      await remember(presumedFailed(state, step()))
      if (!request.signal.aborted) await settle(request.signal, cause)
    } finally {
      signal.removeEventListener('abort', giveUp)
      become(afterGivenUp(state))
    }
    if (request.signal.aborted) throw new TryAgain('Other settings apply now')
  }

  async function settle(requestSignal: AbortSignal, cause: Cause): Promise<void> {
    const askedAt = clock.now()
    const answered = new AbortController()
    const watching = watch(answered.signal)
    const answer = await asking.fetchToken(requestSignal).finally(() => {
      answered.abort()
    })
    await watching
    // Kept before anybody is told: after a crash from here on, what was refused is not asked again.
    if (answer.kind === 'permanent') await remember(nextState(state, answer, step()).state)
    if (requestSignal.aborted) return
    const { state: next, outcome } = nextState(state, answer, step())
    become(next)
    tell({ type: 'attempted', outcome, cause, tookMs: clock.now().bootMs - askedAt.bootMs })
    await remember(state)
    if (outcome.kind === 'transient') throw new TryAgain(outcome.detail)
  }

  async function run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await untilDue(signal)
      await repeat(() => attempt(signal), { between: () => untilDue(signal), signal }).catch(
        (error: unknown) => {
          if (!signal.aborted) throw error
        },
      )
    }
  }

  function onEvent(listener: (event: KeeperEvent) => void): () => void {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }

  async function until(
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

  /** What clients wish, however often, wakes the loop only where something follows from it. */
  function wish(next: TokenState): void {
    if (next === state) return
    become(next)
    wake()
  }

  async function refresh(signal: AbortSignal): Promise<FetchOutcome | undefined> {
    let outcome: FetchOutcome | undefined
    const endListening = onEvent((event) => {
      if (event.type === 'attempted') outcome ??= event.outcome
    })
    become(afterOperator(state))
    wake()
    await until(() => outcome !== undefined, { waitMs: Infinity, signal })
    endListening()
    return outcome
  }

  return {
    state: () => state,
    now: () => clock.now(),
    run,
    onEvent,
    need(minValidMs) {
      wish(afterNeed(state, minValidMs, clock.now()))
    },
    report(fingerprint) {
      const { state: next, verdict } = afterReport(state, fingerprint, clock.now())
      wish(next)
      return verdict
    },
    refresh,
    reload(next) {
      const isSubjectChanged = next.subject !== asking.subject
      asking = next
      become(afterReload(state, { baseUrl: next.baseUrl, isSubjectChanged }, step()))
      if (isSubjectChanged) giveUp()
      wake()
    },
    until,
  }
}

/** What listeners are told of when it changes. */
function signature(state: TokenState, now: Instant): string {
  const token = heldToken(state)
  const isUsable = usableToken(state, now) !== null
  return `${phaseOf(state, now)} ${token?.generation ?? 0} ${token?.expiresAtMs ?? 0} ${String(isUsable)}`
}
