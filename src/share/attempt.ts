// One attempt of the keeper in a fleet. It takes the answer that another host got, waits for a host that asks the service, asks
// the service for all hosts, or, while the store cannot be used, by itself.
import type { Attempt, FetchOutcome, Postponed } from '../token/outcome.ts'
import { CLIENT_INTERVAL_MS } from './redis-store.ts'
import { isOthersToken } from '../token/state.ts'
import type { Member } from './share-token.ts'
import type { SharedRecord } from './seal.ts'
import {
  afterHold,
  afterOwnRecord,
  afterPlanned,
  askerOf,
  isForAll,
  keptMs,
  leaseRequest,
  NO_HOLDS,
  outcomeOf,
  recordOf,
  waitLeftMs,
  type Answer,
  type Hold,
  type KnownRecord,
} from './share-state.ts'
import { StoreError, type Lease } from './store.ts'

/** The time between two reads of the store, and the longest wait of an attempt while the store is away or this host never asks. */
export const SYNC_EVERY_MS = 15_000
/** The part of a lease beyond the request itself, for writing the answer to the store. */
const LEASE_MARGIN_MS = 2_000
/** A lease that lasts longer than this number of requests is ignored. */
const LEASE_CAP_IN_REQUESTS = 2
/** The longest time for which leases of others delay a host, as a number of its own leases. */
const PATIENCE_IN_LEASES = 2
/** After this number of useless answers the store counts as lost. */
const MAX_USELESS = 5
/** Hosts that waited for a lease ask the store within this time after its end, each at a moment drawn at random. */
const AFTER_LEASE_MS = 500
/** Each step of a waiting host counts as at least this long, so that its steps are limited, however often it is woken. */
const SHORTEST_WAIT_MS = 50
/** An operator who acts on many hosts does so within this time: a refusal that is older was given before the act. */
const SAME_ACT_MS = 30_000
/** The time for which no host asks after one has failed to reach the service. */
const PAUSE_MS = 5_000

type Verdict<V extends Lease['verdict']> = Extract<Lease, { verdict: V }>

export async function makeAttempt(
  member: Member,
  attempt: Attempt,
  signal: AbortSignal,
): Promise<FetchOutcome> {
  const { telemetry, host } = member
  const { rejection } = member.keeper.state()
  if (attempt.cause === 'client' && rejection !== null) {
    const { isAlone = false, by = host } = member.state.newest?.record ?? {}
    telemetry.rejected(rejection.ageMs, isAlone && by !== host ? by : null)
  }
  // The id of a lease is that of its host: what was noted of an earlier lease must not count for a later one.
  member.state = { ...member.state, holds: { ...member.state.holds, lease: null } }
  const outcome = await fetchShared(member, attempt, signal).catch((error: unknown) => {
    telemetry.failed(error)
    return askAlone(member, attempt, signal)
  })
  // A record that came meanwhile is newer.
  return member.takeDelivery() ?? outcome
}

function leaseMsOf(member: Member): number {
  return member.service().requestTimeoutMs + LEASE_MARGIN_MS
}

/** Rejects with a StoreError if the store cannot be used. */
async function fetchShared(member: Member, attempt: Attempt, signal: AbortSignal): Promise<FetchOutcome> {
  const { share, store, host, random } = member
  const { cause } = attempt
  const leaseMs = leaseMsOf(member)
  /** The fence of the newest record before the attempt: an operator's attempt needs a later record. */
  const knownBefore = member.state.highestFence
  // Once the planned time has come, one more host that asks is waited for: the plan leaves time for that.
  const allPatienceMs = (member.state.plan === null ? PATIENCE_IN_LEASES : 1) * leaseMs
  let patienceMs = allPatienceMs

  const early = answer()
  if (early !== null) return early
  // A token that this host obtained alone may be newer than the store's.
  if (member.state.own !== null || !share.asks) await member.sync()
  if (!share.asks) return member.takeDelivery() ?? postponed(SYNC_EVERY_MS, { reason: 'not-asked' })
  while (!signal.aborted) {
    if (patienceMs <= 0)
      throw new StoreError('lost', 'Other hosts hold the lease for too long, or the store has nothing of use')
    const outcome = await step()
    if (outcome === null) continue
    member.telemetry.connected()
    // The plan to ask by itself is over.
    member.state = { ...member.state, plan: null }
    return outcome
  }
  return postponed(0)

  /** Null: the store is asked again. */
  async function step(): Promise<FetchOutcome | null> {
    const takenAtMs = member.nowMs()
    const leaseCause = precedesAct(member.state.newest) ? 'operator' : cause
    const request = leaseRequest(member.state, { cause: leaseCause, leaseMs, nowMs: takenAtMs })
    const lease = await store.acquireLease(request)
    switch (lease.verdict) {
      case 'newer':
        member.receive(lease.record, 'take')
        return answer() ?? countUseless()
      case 'taken':
        return afterTaken(lease)
      case 'held':
        return outcomeIfHeld(lease) ?? countUseless()
      case 'paused':
        return outcomeIfPaused(lease) ?? countUseless()
      case 'paced': {
        const waitMs = noteHold('pace', { id: '', waitMs: lease.waitMs, capMs: CLIENT_INTERVAL_MS })
        return waitMs > 0 ? postponed(waitMs) : countUseless()
      }
      case 'yours':
      default:
        return (
          (await askForAll(member, { ...lease, takenAtMs, leaseMs }, { attempt, signal })) ?? countUseless()
        )
    }
  }

  /** An answer was of no use. */
  function countUseless(): null {
    patienceMs -= allPatienceMs / MAX_USELESS
    return null
  }

  /** The newest record, if it answers this attempt: only a later record answers an operator's act. */
  function answer(): FetchOutcome | null {
    const { newest, highestFence } = member.state
    if (cause === 'operator' && highestFence <= knownBefore) return null
    return precedesAct(newest) ? null : member.takeDelivery()
  }

  /** Other credentials are an operator's act: reports whether the refusal was known before it, or is older than SAME_ACT_MS. */
  function precedesAct(known: KnownRecord | null): boolean {
    if (cause !== 'reload' || known?.record.kind !== 'permanent') return false
    return known.head.fence <= knownBefore || member.nowMs() - known.obtainedAtMs > SAME_ACT_MS
  }

  /** Notes a wait that the store asks for, and returns what is left of it within its cap; 0: it is ignored. */
  function noteHold(hold: Hold, wait: { id: string | number; waitMs: number; capMs: number }): number {
    const { state, waitMs } = afterHold(member.state, { hold, ...wait }, member.nowMs())
    member.state = state
    return waitMs
  }

  /**
   * Another host asks now: waits for its answer, which counts here, too. The wait ends after `share.timeout` at the latest, because
   * that host may die, or the store hang.
   */
  async function afterTaken({ holder: id, waitMs: askedMs }: Verdict<'taken'>): Promise<FetchOutcome | null> {
    const pushed = answer()
    if (pushed !== null) return pushed
    const startMs = member.nowMs()
    // One lease after another, without an answer.
    if ((member.state.holds.lease?.id ?? id) !== id) countUseless()
    const capMs = LEASE_CAP_IN_REQUESTS * member.service().requestTimeoutMs
    const waitMs = noteHold('lease', { id, waitMs: askedMs, capMs })
    if (waitMs <= 0) return countUseless()
    const restMs = Math.min(waitMs, leaseMs) + AFTER_LEASE_MS * random()
    await member.waiting.sleep(Math.min(restMs, share.timeoutMs, patienceMs), signal)
    patienceMs -= Math.max(SHORTEST_WAIT_MS, member.nowMs() - startMs)
    return answer()
  }

  function outcomeIfHeld({ record: stored }: Verdict<'held'>): FetchOutcome | null {
    member.receive(stored, 'take')
    const { newest } = member.state
    const { fence } = stored
    if (newest?.head.fence === fence) {
      if (precedesAct(newest)) return null
      // A refusal holds until an operator lifts it; another failure is over after the wait.
      if (newest.record.kind === 'permanent') return outcomeOf(newest, member.moment())
      const waitMs = waitLeftMs(newest, member.nowMs())
      if (waitMs > 0) return putOff(newest.record, waitMs)
    }
    member.state = { ...member.state, unusableFence: fence }
    return null
  }

  function outcomeIfPaused({ record: stored, waitMs }: Verdict<'paused'>): FetchOutcome | null {
    const record = member.open(stored)
    const capMs = record === null ? 0 : PAUSE_MS
    const leftMs = noteHold('pause', { id: stored.fence, waitMs, capMs })
    if (record === null || leftMs <= 0) return null
    // All other hosts ask before the one that has just failed.
    const laterMs = record.by === host ? AFTER_LEASE_MS : AFTER_LEASE_MS * random()
    return putOff(record, leftMs + laterMs)
  }

  function putOff(record: SharedRecord, retryAfterMs: number): FetchOutcome {
    if (record.kind !== 'transient') return postponed(retryAfterMs)
    const { reason, detail } = record
    return postponed(retryAfterMs, { ...askerOf(record, host), reason, detail })
  }
}

function postponed(retryAfterMs: number, more: Partial<Postponed> = {}): Postponed {
  return { kind: 'postponed', retryAfterMs, ...more }
}

/** Asks the service under the lease, and writes the answer to the store. Null: the lease or the answer came too late. */
async function askForAll(
  member: Member,
  { fence, nowMs, takenAtMs, leaseMs }: Verdict<'yours'> & { takenAtMs: number; leaseMs: number },
  { attempt, signal }: { attempt: Attempt; signal: AbortSignal },
): Promise<FetchOutcome | null> {
  const { store, seal, telemetry, log } = member
  const { fetchToken, requestTimeoutMs, retry } = member.service()
  // The waits were over, or what this host writes replaces them.
  member.state = { ...member.state, holds: NO_HOLDS }
  await attempt.beforeRequest()
  // The host was suspended, or its disk stood still: the request might outlive the lease.
  if (member.nowMs() - takenAtMs > requestTimeoutMs / 2) return null
  const outcome = await fetchToken(signal, attempt)
  if (signal.aborted || outcome.kind === 'postponed') {
    await store.release(null).catch(telemetry.failed)
    return outcome
  }
  const { record, waitMs } = recordOf(outcome, { newest: member.state.newest, retry }, member.moment())
  const obtainedAtMs = member.nowMs()
  const atMs = Math.floor(nowMs + obtainedAtMs - takenAtMs)
  const head = { fence, atMs, notBeforeMs: waitMs === 0 ? 0 : atMs + waitMs }
  const sealed = { ...head, sealed: seal.encrypt(record, head) }
  if (!isForAll(record)) {
    // If the release fails, the lease ends by itself.
    await store.release({ ...sealed, pauseMs: PAUSE_MS }).catch(telemetry.failed)
    return outcome
  }
  const known = { head, record, obtainedAtMs }
  const request = { ...sealed, ttlMs: keptMs(known, obtainedAtMs), isClientPaced: attempt.cause === 'client' }
  try {
    const put = await store.put(request).catch((error: unknown) => {
      // On a host that was paused the command has timed out, whatever the store did: after the lease it writes once more.
      if (!(error instanceof StoreError) || member.nowMs() < takenAtMs + leaseMs) throw error
      return store.put(request)
    })
    if (put.verdict === 'stale' && put.record?.fence !== fence) {
      if (put.record !== null) member.receive(put.record, 'take')
      // A record of no use was written meanwhile.
      if (member.state.unusableFence === put.record?.fence) {
        keepOwn(member, known)
        await store.release(null)
        return outcome
      }
      telemetry.staleWrite(fence)
      return member.takeDelivery()
    }
    const hosts = put.verdict === 'stored' ? put.hosts : 0
    member.state = afterOwnRecord(member.state, known)
    if (hosts > 0) member.state = { ...member.state, hosts }
    telemetry.counted('asked')
    log('info', 'Asked the service for the fleet', { event: 'share-asked', fence, hosts })
  } catch (error) {
    telemetry.failed(error)
    keepOwn(member, known)
    return outcome
  }
  return { ...outcome, known: String(fence) }
}

/** A transient failure is the asker's own, also once the store can be used again. */
function keepOwn(member: Member, { record, obtainedAtMs }: Answer): void {
  if (record.kind === 'transient') return
  member.state = { ...member.state, own: { record: { ...record, isAlone: true }, obtainedAtMs } }
}

/** The store cannot be used: the request is put off to the time that is planned for this host, and then made. */
async function askAlone(member: Member, attempt: Attempt, signal: AbortSignal): Promise<FetchOutcome> {
  const { keeper, random, telemetry } = member
  const { asks, whenAlone } = member.share
  // Other credentials are an operator's act, too.
  const isAct = attempt.cause === 'operator' || attempt.cause === 'reload'
  if (!asks || (whenAlone === 'wait' && !isAct)) {
    const detail = 'The shared store cannot be used, and this host is not to ask by itself'
    return postponed(SYNC_EVERY_MS, { reason: asks ? 'share-lost' : 'not-asked', detail })
  }
  if (!isAct) {
    const isUrgent = keeper.state().rejection !== null || isOthersToken(keeper.state())
    const { usableUntilMs, nowMs } = member.moment()
    // Another host's lease may be waited for: the token must live as long.
    const plannedUntilMs = usableUntilMs && usableUntilMs - leaseMsOf(member)
    const draw = { isUrgent, drawn: random() }
    const planned = afterPlanned(member.state, draw, { usableUntilMs: plannedUntilMs, nowMs })
    const { inMs, spreadMs } = planned
    member.state = planned.state
    telemetry.alone({ spreadMs: Math.round(spreadMs), inMs: Math.round(inMs) })
    if (inMs > 0) return postponed(Math.min(SYNC_EVERY_MS, inMs))
  }
  member.state = { ...member.state, plan: null }
  await attempt.beforeRequest()
  const { fetchToken, retry } = member.service()
  const outcome = await fetchToken(signal, attempt)
  if (signal.aborted || (outcome.kind !== 'ok' && outcome.kind !== 'permanent')) return outcome
  telemetry.counted('alone')
  const { record } = recordOf(outcome, { newest: member.state.newest, retry }, member.moment())
  keepOwn(member, { record, obtainedAtMs: member.nowMs() })
  return outcome
}
