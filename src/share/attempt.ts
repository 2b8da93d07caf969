// One attempt of the keeper in a fleet: it takes the answer that another host got, waits for a host that
// asks, asks for all hosts, or, while the store is of no use, asks by itself.
import type { Clock, Instant } from '../lib/clock.ts'
import { randomHex } from '../lib/crypto.ts'
import type { Log } from '../lib/log.ts'
import type { Keeper } from '../token/keeper.ts'
import type { Attempt, FetchOutcome, Postponed } from '../token/outcome.ts'
import { refusalOf, usableToken, usableUntilMs, type Policy, type TokenState } from '../token/state.ts'
import { createAct } from './act.ts'
import {
  formatKnown,
  isLarger,
  isOfUse,
  NOTHING,
  outcomeOf,
  spreadMs,
  type Known,
  type Plan,
} from './known.ts'
import type { Link } from './link.ts'
import { request, type Service } from './request.ts'
import type { Seal } from './seal.ts'
import { StoreError, type Acquired, type Store } from './store.ts'
import type { createTelemetry } from './telemetry.ts'

/** The time between two looks at the store, and the longest wait of an attempt without it. */
export const LOOK_EVERY_MS = 15_000
/** The part of a lease beyond the request itself, for writing the answer to the store. */
const LEASE_MARGIN_MS = 2_000
/** The longest lease of any host: that of `request.timeout` 10m. */
const MAX_LEASE_MS = 602_000
/** The longest time for which leases of others delay a host, as a number of its own leases. */
const PATIENCE_IN_LEASES = 2
/** After this number of useless texts in one attempt the store is of no use. */
const MAX_USELESS = 5
/** Hosts that waited for a lease come within this time after its end, each at a moment drawn at random. */
const AFTER_LEASE_MS = 500
/** The shortest time between two requests of the fleet that clients cause. */
const CLIENT_INTERVAL_MS = 30_000

const LIVE_LEASE = /^[\da-f]{16}$/

export interface AttemptOptions {
  readonly store: Store
  readonly seal: Seal
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  /** The name of this host to the others. */
  readonly host: string
  readonly credentialsId: string
  readonly share: { readonly asks: boolean; readonly whenAlone: 'fetch' | 'wait' }
  readonly service: () => Service
  readonly keeper: Pick<Keeper, 'state'> & { readonly policy: () => Policy }
  readonly link: Link
  readonly telemetry: ReturnType<typeof createTelemetry>
  /** Sleeps, or is woken by a message. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>
}

/** One attempt under way. */
interface Trip {
  readonly id: string
  readonly attempt: Attempt
  readonly signal: AbortSignal
  /** What is known counts again: a refusal that stands, or for an act that a young refusal may answer. */
  isAnew: boolean
  /** Texts that were of no use. */
  useless: number
  /** The time for which leases of others may still delay it. */
  patienceMs: number
  /** The end of a wait of the fleet that the act goes through, on the boot clock: a failure does not shorten it. */
  heldUntilMs: number
}
/** Null: the store is of no use now; undefined: it is asked again. */
type Step = FetchOutcome | null | undefined

export function createAttempts(options: AttemptOptions) {
  const { store, seal, clock, random, log, host, share, service, keeper, link, telemetry } = options
  const act = createAct()
  /** When this host asks by itself; drawn once for each loss of the store, and again after each request. */
  let plan: Plan | null = null
  const waits = createWaits({ ...options, act })

  const leaseMs = (): number => service().requestTimeoutMs + LEASE_MARGIN_MS
  const around = () => ({ now: clock.now(), account: seal.accountKey, hosts: link.hosts() })
  const requesting = () => ({ service: service(), link, seal, clock, policy: keeper.policy(), host })

  /** The answer that is known, for the keeper. Null: there is none. */
  function knownOutcome(): FetchOutcome | null {
    const { answer, ...known } = link.known()
    return answer && outcomeOf({ ...known, answer }, { ...around(), host })
  }

  /** The keeper has the answer that is known, of another host. */
  function adopted(): void {
    const { by, sentAtMs } = link.known()
    plan = null
    link.delivered()
    telemetry.counted('adopted')
    const ageMs = Math.round(link.bootMs() - sentAtMs)
    log('debug', 'Took over what another host was answered', { event: 'share-adopted', by, ageMs })
  }

  /**
   * The answer that is known, if the keeper does not have it (or `isAnew`) and it counts for this attempt.
   */
  function takeKnown({ isAnew }: { isAnew: boolean }): FetchOutcome | null {
    if (!(isAnew || link.isNew()) || !act.isAnsweredBy(link.known())) return null
    const outcome = knownOutcome()
    if (outcome !== null) adopted()
    return outcome
  }
  const takeNew = (): FetchOutcome | null => takeKnown({ isAnew: false })

  async function make(attempt: Attempt, signal: AbortSignal): Promise<FetchOutcome> {
    act.begin(attempt.cause, link.known())
    const state = keeper.state()
    const isRefused = refusalOf(state) !== null && state.credentialsId === options.credentialsId
    const isAnew = act.stands() ? act.isReload() : isRefused
    const id = randomHex(8)
    const trip = { id, attempt, signal, isAnew, useless: 0, patienceMs: Infinity, heldUntilMs: 0 }
    const outcome = await shared(trip).catch((error: unknown) => {
      telemetry.failed(error)
      return null
    })
    const made = outcome ?? (await alone(trip))
    // A record that came meanwhile is larger than all that this host has.
    return signal.aborted ? made : (takeNew() ?? made)
  }

  /** Null: the store is of no use now. Rejects with a StoreError if it cannot be used. */
  async function shared(trip: Trip): Promise<FetchOutcome | null> {
    const { id, attempt, signal } = trip
    while (trip.useless < MAX_USELESS && !signal.aborted) {
      if (!share.asks || !link.known().isWritten) await link.look()
      const found = takeNew()
      if (found !== null) return found
      if (!share.asks) {
        act.reached(link.bootMs())
        return postponed(LOOK_EVERY_MS, { reason: 'not-asked' })
      }
      const paceMs = link.known().sentAtMs + CLIENT_INTERVAL_MS - link.bootMs()
      if (attempt.cause === 'client' && paceMs > 0) return postponed(paceMs)
      const known = trip.isAnew ? NOTHING : link.known()
      const reply = await link.call((drop) => store.acquire({ drop, id, leaseMs: leaseMs(), known }))
      act.reached(reply.atMs)
      const step = await after(reply, trip)
      if (step) telemetry.connected()
      if (step !== undefined) return step
    }
    if (signal.aborted) return postponed(0)
    throw new StoreError('lost', 'What is in the shared store is of no use')
  }

  async function after(reply: Acquired & { atMs: number }, trip: Trip): Promise<Step> {
    if (reply.verdict === 'yours') return askForAll(trip, reply.atMs)
    if (reply.verdict === 'newer') {
      const taken = link.take(reply.record)
      if (taken === 'useless') trip.useless += 1
      trip.isAnew = false
      return (taken === 'same' ? takeKnown({ isAnew: true }) : null) ?? undefined
    }
    const { lease, leftMs } = reply
    if (LIVE_LEASE.test(lease) && leftMs <= MAX_LEASE_MS) {
      // The time has been planned for being alone: nobody is waited for.
      return plan !== null && !act.stands() ? null : waitForOther(lease, { leftMs, trip })
    }
    const wait = waits.read(lease, trip)
    if (wait !== null) return wait
    link.discard(lease)
    trip.useless += 1
    return undefined
  }

  /** Another host asks: waits for its answer, or the end of its lease. */
  async function waitForOther(
    lease: string,
    { leftMs, trip }: { leftMs: number; trip: Trip },
  ): Promise<Step> {
    const fromMs = link.bootMs()
    const usableMs = usableLeftMs(keeper.state(), clock.now())
    const patienceMs = Math.min(PATIENCE_IN_LEASES * leaseMs(), usableMs > 0 ? usableMs / 2 : Infinity)
    trip.patienceMs = Math.min(trip.patienceMs, patienceMs)
    await options.sleep(Math.min(leftMs + AFTER_LEASE_MS * random(), trip.patienceMs), trip.signal)
    trip.patienceMs -= link.bootMs() - fromMs
    const isAnswered = link.isNew() && act.isAnsweredBy(link.known())
    if (trip.patienceMs > 0 || trip.signal.aborted || isAnswered) return undefined
    link.discard(lease)
    throw new StoreError('lost', 'Another host has held the lease for too long')
  }

  /**
   * Asks the service under the lease, and writes what it says to the store. Undefined: the lease had become
   * too old before.
   */
  async function askForAll(trip: Trip, takenAtMs: number): Promise<Step> {
    const asked = await request({ ...trip, takenAtMs }, requesting())
    if (asked === null) {
      trip.useless += 1
      return undefined
    }
    plan = null
    const { outcome, own, kept } = asked
    if (own !== null) {
      hold(own, 'asked')
      await link.write().catch(telemetry.failed)
      log('info', 'Asked the service for the fleet', { event: 'share-asked', hosts: link.hosts() })
      return toldOwn(outcome)
    }
    const { id } = trip
    if (kept !== null) waits.isOwn(id)
    // If this fails, the lease ends by itself.
    const written = await link
      .call((drop) => store.write({ drop, id, record: null, kept }))
      .catch(telemetry.failed)
    if (written?.record) link.take(written.record)
    return outcome
  }

  /**
   * The store is of no use: the request is put off to the time that is planned for this host, and then made.
   */
  async function alone(trip: Trip): Promise<FetchOutcome> {
    const { asks, whenAlone } = share
    if (!asks || (whenAlone === 'wait' && !act.stands())) {
      const detail = 'The shared store cannot be used, and this host is not to ask by itself'
      return postponed(LOOK_EVERY_MS, { reason: asks ? 'share-lost' : 'not-asked', detail })
    }
    const inMs = act.stands() ? 0 : planned(trip.attempt).atMs - link.bootMs()
    if (inMs > 0) return postponed(Math.min(LOOK_EVERY_MS, inMs))
    const asked = await request({ ...trip, id: randomHex(8), takenAtMs: Infinity }, requesting())
    plan = null
    if (asked === null || asked.own === null) return asked?.outcome ?? postponed(0)
    hold(asked.own, 'alone')
    return toldOwn(asked.outcome)
  }

  /** An urgent plan may come before one that is not. */
  function planned({ cause }: Attempt): Plan {
    const isUrgent = cause === 'client' || keeper.state().rejection?.isUnchanged === false
    if (plan !== null && (plan.isUrgent || !isUrgent)) return plan
    const nowMs = link.bootMs()
    // Another host's lease may be waited for: the token must live as long.
    const withinMs = spreadMs({
      leftMs: usableLeftMs(keeper.state(), clock.now()) - leaseMs(),
      hosts: link.hosts(),
      isUrgent,
    })
    plan = { atMs: Math.min(plan?.atMs ?? Infinity, nowMs + random() * withinMs), isUrgent }
    telemetry.alone({ spreadMs: Math.round(withinMs), inMs: Math.round(plan.atMs - nowMs) })
    return plan
  }

  function hold(own: Known, how: 'asked' | 'alone'): void {
    act.end()
    link.setOwn(own)
    telemetry.counted(how)
  }

  /**
   * The outcome of this host's own request, with the text that is saved. A larger record that has come is
   * told instead. The life of its token is counted from the request: this host may have been stopped since.
   */
  function toldOwn(outcome: FetchOutcome): FetchOutcome {
    const isForAll = outcome.kind === 'ok' || outcome.kind === 'permanent'
    if (!isForAll || link.isNew()) return outcome
    const known = formatKnown(link.known(), around())
    if (outcome.kind === 'permanent') return { ...outcome, known }
    return { ...outcome, known, ageMs: link.bootMs() - link.known().sentAtMs }
  }

  return { make, knownOutcome, adopted }
}

/** The waits that hosts whose request failed keep in place of their lease. */
function createWaits(
  options: Pick<AttemptOptions, 'seal' | 'link' | 'telemetry' | 'random' | 'host'> & {
    readonly act: ReturnType<typeof createAct>
  },
) {
  const { seal, link, telemetry, random, host, act } = options
  /** The one that was seen last: it delays this host no longer than it says itself, counted from then. */
  let held = { id: '', untilMs: 0 }
  let ownId = ''

  return {
    /** Of the last attempt of this host that failed. */
    isOwn(id: string): void {
      ownId = id
    },
    /** Why no host is to ask, and until when; null: the text is of no use, or an act goes through it. */
    read(text: string, trip: Trip): Postponed | null {
      const wait = seal.open('lease', text)
      if (wait === null) telemetry.unreadable()
      if (wait === null || !isOfUse(wait, link.storeMs()) || !isLarger(wait, link.known())) return null
      const { id, at, end, reason, detail, by } = wait
      const nowMs = link.bootMs()
      if (act.overrules({ sentAtMs: at - link.storeMs(0), reason })) {
        trip.heldUntilMs = nowMs + end - link.storeMs()
        return null
      }
      if (held.id !== id) held = { id, untilMs: nowMs + end - at }
      const leftMs = Math.min(end - link.storeMs(), held.untilMs - nowMs)
      const laterMs = AFTER_LEASE_MS * (id === ownId ? 1 : random())
      const askedBy = by === host ? {} : { askedBy: by }
      return leftMs > 0 ? postponed(leftMs + laterMs, { reason, detail, ...askedBy }) : null
    },
  }
}

/** The time until which the token in use can be used, from now; 0: there is none. */
function usableLeftMs(state: TokenState, now: Instant): number {
  const token = usableToken(state, now)
  return token === null ? 0 : usableUntilMs(token) - now.bootMs
}

function postponed(retryAfterMs: number, more: Partial<Postponed> = {}): Postponed {
  return { kind: 'postponed', retryAfterMs, ...more }
}
