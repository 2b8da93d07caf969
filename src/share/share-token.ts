// One token for a fleet: wraps what asks the service so that one host asks for all, and brings to the keeper what others were answered.
import { withTimeout, createWakeableSleep } from '../lib/clock.ts'
import type { StatusResult } from '../protocol.ts'
import type { Attempt, FetchOutcome, FetchToken } from '../token/outcome.ts'
import { askAlone, askForAll } from './ask.ts'
import {
  createMember,
  deliverAgain,
  forgetPlan,
  momentOf,
  noteLoss,
  nowOf,
  postponed,
  receive,
  sync,
  takeDelivery,
  type Member,
  type MemberOptions,
} from './member.ts'
import { askerOf, type KnownRecord } from './records.ts'
import type { SharedRecord } from './seal.ts'
import {
  afterHeld,
  afterPaced,
  afterPaused,
  afterTaken,
  isBeforeAct,
  leaseRequest,
  nextDelivery,
  storeClockMs,
  type Remembered,
} from './share-state.ts'
import { StoreError, type Lease, type StoredRecord } from './store.ts'
import type { ShareSample } from './telemetry.ts'

export interface ShareToken {
  readonly fetchToken: FetchToken
  /** Listens and looks until the signal is aborted. Then the store is closed. */
  run(signal: AbortSignal): Promise<void>
  status(): NonNullable<StatusResult['share']>
  sample(): ShareSample
  /** Closes the store, once an attempt that is under way has given its lease back. */
  close(): Promise<void>
  /** The facts that a restart has to know. */
  remembered(): Remembered
}

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

interface Situation {
  readonly signal: AbortSignal
  readonly attempt: Attempt
  readonly leaseMs: number
  readonly leaseCapMs: number
  /** Fence of the newest record before the attempt: an operator waits for a later one. */
  readonly knownBefore: number
  patienceMs: number
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
  const syncIfPossible = async (): Promise<void> =>
    sync(member).catch((error: unknown) => noteLoss(member, error))

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
    sample: () => telemetry.sample(),
    close,
    remembered() {
      const { adoptedFence, highestFence, own, hosts } = member.state
      return { adoptedFence, highestFence, own, hosts }
    },
  }
}

/** An attempt of the keeper's: takes what another host was answered, waits for one that asks, or asks for all. */
async function fetchToken(
  member: Member,
  given: { signal: AbortSignal; attempt: Attempt },
): Promise<FetchOutcome> {
  const rejectedAgeMs = given.attempt.cause === 'client' ? member.keeper.rejectedAgeMs() : null
  if (rejectedAgeMs !== null) member.telemetry.rejected(rejectedAgeMs)
  const ended = Promise.withResolvers<void>()
  member.underWay = ended.promise
  member.state = { ...member.state, lease: null }
  try {
    const outcome = await fetchShared(member, given).catch((error: unknown) => {
      noteLoss(member, error)
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
async function fetchShared(
  member: Member,
  { signal, attempt }: { signal: AbortSignal; attempt: Attempt },
): Promise<FetchOutcome> {
  const { requestTimeoutMs } = member.service()
  const leaseMs = requestTimeoutMs + LEASE_MARGIN_MS
  const situation: Situation = {
    signal,
    attempt,
    leaseMs,
    leaseCapMs: LEASE_CAP_IN_REQUESTS * requestTimeoutMs,
    knownBefore: member.state.highestFence,
    patienceMs: PATIENCE_IN_LEASES * leaseMs,
  }
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
  return newest !== null && isPast(member, newest, situation) ? null : takeDelivery(member)
}

function isPast(member: Member, known: KnownRecord, { attempt, knownBefore }: Situation): boolean {
  return isBeforeAct(known, { cause: attempt.cause, knownBefore, nowMs: nowOf(member) })
}

async function stepOf(member: Member, situation: Situation): Promise<Step> {
  const { attempt, leaseMs } = situation
  const takenAtMs = nowOf(member)
  const { newest } = member.state
  const isAct = newest !== null && isPast(member, newest, situation)
  const cause = isAct ? 'operator' : attempt.cause
  const request = leaseRequest(member.state, { ...situation, cause, nowMs: takenAtMs })
  const lease = await member.store.acquireLease(request)
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
      const { state, waitMs } = afterPaced(member.state, lease.waitMs, nowOf(member))
      member.state = state
      return waitMs > 0 ? postponed(waitMs) : 'again'
    }
    case 'yours':
    default:
      return askForAll(member, { ...lease, takenAtMs, leaseMs }, situation)
  }
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
  const pause = { waitMs, record: stored, isReadable: record !== null }
  const wait = afterPaused(member.state, pause, nowOf(member))
  member.state = wait.state
  if (record === null || wait.waitMs <= 0) return 'again'
  // Every other host comes before the one that has just failed.
  const laterMs = record.by === host ? AFTER_LEASE_MS : AFTER_LEASE_MS * random()
  return heldBy(member, record, wait.waitMs + laterMs)
}

/** A refusal holds until an operator lifts it; another failure is over after the wait. */
function heldBy({ host }: Member, record: SharedRecord, retryAfterMs: number): FetchOutcome {
  if (record.kind === 'ok') return postponed(retryAfterMs)
  const { detail } = record
  const by = askerOf(record, host)
  if (record.kind === 'transient') return postponed(retryAfterMs, { ...by, reason: record.reason, detail })
  return { kind: 'permanent', reason: record.reason, detail, status: record.status, ...by }
}

/**
 * Another host asks: its answer is the answer here, unless it dies first. The store is asked again after each
 * `share.timeout`, so that one that hangs is noticed after two of them.
 */
async function stepAfterTaken(
  member: Member,
  lease: Extract<Lease, { verdict: 'taken' }>,
  situation: Situation,
): Promise<Step> {
  const answer = answerTo(member, situation)
  if (answer !== null) return answer
  const startMs = nowOf(member)
  const { state, waitMs } = afterTaken(member.state, lease, { ...situation, nowMs: startMs })
  member.state = state
  if (waitMs <= 0) return 'again'
  if (situation.patienceMs <= 0) throw new StoreError('lost', 'Other hosts hold the lease for too long')
  const restMs = Math.min(waitMs, situation.leaseMs) + AFTER_LEASE_MS * member.random()
  await member.waiting.sleep(Math.min(restMs, member.share.timeoutMs, situation.patienceMs), situation.signal)
  situation.patienceMs -= Math.max(SHORTEST_WAIT_MS, nowOf(member) - startMs)
  return answerTo(member, situation) ?? 'waited'
}
