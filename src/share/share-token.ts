// One token for a fleet: wraps what asks the service so that one host asks for all, and brings to the keeper what others were answered.
import type { Config, ShareConfig } from '../config/config.ts'
import { createWakeableSleep, withTimeout } from '../lib/clock.ts'
import type { StatusResult } from '../protocol.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import { CLIENT_INTERVAL_MS } from '../token/rejections.ts'
import { askAlone, askForAll, PAUSE_MS, postponed, type Given } from './ask.ts'
import {
  createMember,
  deliverAgain,
  forgetPlan,
  momentOf,
  nowOf,
  receive,
  sync,
  takeDelivery,
  type Member,
  type MemberOptions,
} from './member.ts'
import { askerOf, failureIn, type KnownRecord } from './records.ts'
import { openRedisStore } from './redis-store.ts'
import { createSeal, type SharedRecord } from './seal.ts'
import {
  afterHeld,
  afterHold,
  isBeforeAct,
  leaseRequest,
  nextDelivery,
  storeClockMs,
  type Hold,
  type Remembered,
} from './share-state.ts'
import { StoreError, type Lease, type StoredRecord } from './store.ts'
import type { ShareSample } from './telemetry.ts'

export interface ShareToken {
  readonly fetchToken: FetchToken
  /** Listens and looks until the signal is aborted. Then the store is closed. */
  run(signal: AbortSignal): Promise<void>
  status(): NonNullable<StatusResult['share']>
  sample(): ShareSample & Pick<NonNullable<StatusResult['share']>, 'state' | 'hosts'>
  /** Closes the store, once an attempt that is under way has given its lease back. */
  close(): Promise<void>
  /** The facts that a restart has to know. */
  remembered(): Remembered
}

export type OpenStore = typeof openRedisStore

const SYNC_EVERY_MS = 15_000
const SYNC_EVERY_WHILE_DENIED_MS = 60_000
/** Beyond the request itself: for the answer's way to the store. */
const LEASE_MARGIN_MS = 2_000
/** A lease that lasts longer than this many requests counts as not there. */
const LEASE_CAP_IN_REQUESTS = 2
/** The leases of others, one after the other, hold a host up for no longer than this many of its own. */
const PATIENCE_IN_LEASES = 2
/** Hosts that waited for a lease that has ended look so long after it at most, each at its own time. */
const AFTER_LEASE_MS = 500
/** So many answers without use, and the store is as good as none. */
const MAX_USELESS = 5
/** However often a waiting host is woken, it takes no more steps than this allows. */
const SHORTEST_WAIT_MS = 50

/** The next step after an answer of the store: an outcome, or the store is asked again. */
type Step = FetchOutcome | 'again' | 'waited'

interface Situation extends Given {
  readonly leaseMs: number
  /** Fence of the newest record before the attempt: an operator waits for a later one. */
  readonly knownBefore: number
  patienceMs: number
}

/** A session with the shared store of one account. Connects in the background: never fails. */
export async function openSession(
  { baseUrl, service, credentials, share }: Config & { readonly share: ShareConfig },
  {
    openStore = openRedisStore,
    ...options
  }: Omit<MemberOptions, 'store' | 'seal' | 'share'> & { openStore?: OpenStore | undefined },
): Promise<ShareToken> {
  const seal = createSeal({ baseUrl, description: service.description, credentials, key: share.key })
  const store = await openStore(share, { accountKey: seal.accountKey, ...options })
  return shareToken({ ...options, store, seal, share })
}

export function shareToken(options: MemberOptions): ShareToken {
  const member = createMember(options)
  const { store, telemetry, clock } = member
  const resting = createWakeableSleep(clock)

  async function syncAgainAndAgain(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const isDenied = telemetry.storeState().state === 'denied'
      await resting.sleep(isDenied ? SYNC_EVERY_WHILE_DENIED_MS : SYNC_EVERY_MS, signal)
      if (!signal.aborted) await syncIfPossible()
    }
  }
  const syncIfPossible = async (): Promise<void> => sync(member).catch(telemetry.failed)

  async function close(): Promise<void> {
    if (member.underWay !== null) await withTimeout(2 * member.share.timeoutMs, member.underWay, clock)
    member.closed.abort()
    store.close()
  }

  return {
    fetchToken: async (signal, attempt) => fetchToken(member, { signal, attempt }),
    async run(signal) {
      const watching = store.watch(
        {
          onRecord(record) {
            const storeNowMs = storeClockMs(member.state, nowOf(member))
            if (storeNowMs !== null) telemetry.lag(storeNowMs - record.nowMs)
            receive(member, record, 'push')
            if (member.state.own !== null) resting.wake()
          },
          onReleased: () => member.waiting.wake(),
          onSubscribed: resting.wake,
          onConnected: resting.wake,
        },
        signal,
      )
      await syncIfPossible()
      await Promise.all([watching, syncAgainAndAgain(signal)])
      await close()
    },
    status() {
      const { hosts, newest } = member.state
      return { ...telemetry.storeState(), server: store.server, hosts, askedBy: newest?.record.by ?? null }
    },
    sample: () => ({
      ...telemetry.sample(),
      state: telemetry.storeState().state,
      hosts: member.state.hosts,
    }),
    close,
    remembered() {
      const { adoptedFence, highestFence, own, hosts } = member.state
      return { adoptedFence, highestFence, own, hosts }
    },
  }
}

/** An attempt of the keeper's: takes what another host was answered, waits for one that asks, or asks for all. */
async function fetchToken(member: Member, given: Given): Promise<FetchOutcome> {
  const { telemetry, keeper } = member
  const rejection = given.attempt.cause === 'client' ? keeper.state().rejection : null
  if (rejection !== null) telemetry.rejected(rejection.ageMs)
  const ended = Promise.withResolvers<void>()
  member.underWay = ended.promise
  // A host has the same name in each of its leases.
  member.state = { ...member.state, holds: { ...member.state.holds, lease: null } }
  try {
    const outcome = await fetchShared(member, given).catch((error: unknown) => {
      telemetry.failed(error)
      return askAlone(member, given)
    })
    // A record that came meanwhile is better than anything but a token.
    return outcome.kind === 'ok' ? outcome : (takeDelivery(member) ?? outcome)
  } finally {
    member.underWay = null
    ended.resolve()
    if (nextDelivery(member.state, momentOf(member)) !== null) void deliverAgain(member)
  }
}

/** Rejects with a StoreError if the store cannot be used. */
async function fetchShared(member: Member, given: Given): Promise<FetchOutcome> {
  const { signal } = given
  const leaseMs = member.service().requestTimeoutMs + LEASE_MARGIN_MS
  const knownBefore = member.state.highestFence
  const situation = { ...given, leaseMs, knownBefore, patienceMs: PATIENCE_IN_LEASES * leaseMs }
  const early = answerTo(member, situation)
  if (early !== null) return early
  // A token that this host obtained alone may be newer than the store's.
  if (member.state.own !== null || !member.share.asks) await sync(member)
  if (!member.share.asks) return takeDelivery(member) ?? postponed(SYNC_EVERY_MS, { reason: 'not-asked' })
  for (let useless = 0; useless < MAX_USELESS && !signal.aborted;) {
    const step = await stepOf(member, situation)
    if (step === 'again') useless += 1
    if (typeof step === 'string') continue
    member.telemetry.connected()
    forgetPlan(member)
    return step
  }
  if (signal.aborted) return postponed(0)
  throw new StoreError('lost', 'The shared store gives nothing that can be used')
}

/** The newest record, if it answers this attempt: an operator's act is answered by what comes after it. */
function answerTo(member: Member, situation: Situation): FetchOutcome | null {
  const { newest, highestFence } = member.state
  if (situation.attempt.cause === 'operator' && highestFence <= situation.knownBefore) return null
  return isPast(member, newest, situation) ? null : takeDelivery(member)
}

function isPast(member: Member, known: KnownRecord | null, { attempt, knownBefore }: Situation): boolean {
  return known !== null && isBeforeAct(known, { cause: attempt.cause, knownBefore, nowMs: nowOf(member) })
}

async function stepOf(member: Member, situation: Situation): Promise<Step> {
  const { attempt, leaseMs } = situation
  const nowMs = nowOf(member)
  const cause = isPast(member, member.state.newest, situation) ? 'operator' : attempt.cause
  const lease = await member.store.acquireLease(leaseRequest(member.state, { cause, leaseMs, nowMs }))
  switch (lease.verdict) {
    case 'newer':
      receive(member, lease.record, 'take')
      return answerTo(member, situation) ?? 'again'
    case 'taken':
      return stepAfterTaken(member, lease, situation)
    case 'held':
      return stepAfterHeld(member, lease.record, situation)
    case 'paused':
      return stepAfterPaused(member, lease)
    case 'paced': {
      const waitMs = heldUp(member, 'pace', { id: '', waitMs: lease.waitMs, capMs: CLIENT_INTERVAL_MS })
      return waitMs > 0 ? postponed(waitMs) : 'again'
    }
    case 'yours':
    default:
      return askForAll(member, { ...lease, takenAtMs: nowMs }, situation)
  }
}

/** The wait that the store asks for, within its cap; 0: it counts as not there. */
function heldUp(
  member: Member,
  hold: Hold,
  wait: { id: string | number; waitMs: number; capMs: number },
): number {
  const { state, waitMs } = afterHold(member.state, { hold, ...wait }, nowOf(member))
  member.state = state
  return waitMs
}

function opened({ seal, telemetry }: Member, stored: StoredRecord): SharedRecord | null {
  const record = seal.decrypt(stored.sealed, stored)
  if (record === null) telemetry.unreadable(stored.fence)
  return record
}

function stepAfterHeld(member: Member, stored: StoredRecord, situation: Situation): Step {
  const record = opened(member, stored)
  const { state, known, waitMs } = afterHeld(member.state, { stored, record }, momentOf(member))
  member.state = state
  if (known === null || isPast(member, known, situation)) return 'again'
  return heldBy(member, known.record, waitMs)
}

function stepAfterPaused(
  member: Member,
  { record: stored, waitMs }: Extract<Lease, { verdict: 'paused' }>,
): Step {
  const { host, random } = member
  const record = opened(member, stored)
  const { fence: id, atMs, nowMs } = stored
  // The store's clock says, too, when it was written.
  const capMs = record === null ? 0 : Math.min(PAUSE_MS, atMs + PAUSE_MS - nowMs)
  const leftMs = heldUp(member, 'pause', { id, waitMs, capMs })
  if (record === null || leftMs <= 0) return 'again'
  // Every other host comes before the one that has just failed.
  const laterMs = record.by === host ? AFTER_LEASE_MS : AFTER_LEASE_MS * random()
  return heldBy(member, record, leftMs + laterMs)
}

/** A refusal holds until an operator lifts it; another failure is over after the wait. */
function heldBy({ host }: Member, record: SharedRecord, retryAfterMs: number): FetchOutcome {
  if (record.kind === 'permanent') return failureIn(record, { host, retryAfterMs })
  if (record.kind === 'ok') return postponed(retryAfterMs)
  const { reason, detail } = record
  return postponed(retryAfterMs, { ...askerOf(record, host), reason, detail })
}

/**
 * Another host asks: its answer is the answer here, unless it dies first. The store is asked again after each
 * `share.timeout`, so that one that hangs is noticed after two of them.
 */
async function stepAfterTaken(
  member: Member,
  { holder: id, waitMs: askedMs }: Extract<Lease, { verdict: 'taken' }>,
  situation: Situation,
): Promise<Step> {
  const answer = answerTo(member, situation)
  if (answer !== null) return answer
  const startMs = nowOf(member)
  const capMs = LEASE_CAP_IN_REQUESTS * member.service().requestTimeoutMs
  const waitMs = heldUp(member, 'lease', { id, waitMs: askedMs, capMs })
  if (waitMs <= 0) return 'again'
  if (situation.patienceMs <= 0) throw new StoreError('lost', 'Other hosts hold the lease for too long')
  const restMs = Math.min(waitMs, situation.leaseMs) + AFTER_LEASE_MS * member.random()
  await member.waiting.sleep(Math.min(restMs, member.share.timeoutMs, situation.patienceMs), situation.signal)
  situation.patienceMs -= Math.max(SHORTEST_WAIT_MS, nowOf(member) - startMs)
  return answerTo(member, situation) ?? 'waited'
}
