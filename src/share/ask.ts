// A request to the service: for the whole fleet under a lease, or by this host itself while the store cannot be used.
import type { Attempt, FetchOutcome, ServiceOutcome } from '../token/outcome.ts'
import {
  momentOf,
  noteLoss,
  nowOf,
  postponed,
  receive,
  shareableBy,
  takeDelivery,
  type Member,
} from './member.ts'
import type { Shareable } from './records.ts'
import { afterLease, afterOwnRecord, afterPlanned, PAUSE_MS, spreadMs } from './share-state.ts'
import { StoreError, type Lease, type RecordHead } from './store.ts'

/** The store is tried again so often, whatever the plan. */
const TRY_STORE_MS = 15_000

/** The lease that the store gave, and the boot time at which it was requested. */
interface OwnLease extends Extract<Lease, { verdict: 'yours' }> {
  readonly takenAtMs: number
  readonly leaseMs: number
}

/** `again`: the lease or the answer is of no use any more, and the store is asked again. Rejects with a StoreError. */
export async function askForAll(
  member: Member,
  lease: OwnLease,
  { signal, attempt }: { signal: AbortSignal; attempt: Attempt },
): Promise<FetchOutcome | 'again'> {
  const { store, seal } = member
  const { fetchToken, requestTimeoutMs } = member.service()
  const { takenAtMs } = lease
  member.state = afterLease(member.state)
  await attempt.beforeRequest()
  // The host was suspended, or its disk stood still: the request might outlive the lease.
  if (nowOf(member) - takenAtMs > requestTimeoutMs / 2) return 'again'
  const outcome = await fetchToken(signal, attempt)
  const noteReleaseLoss = (error: unknown): void => noteLoss(member, error)
  if (signal.aborted || outcome.kind === 'postponed') {
    await store.release(null).catch(noteReleaseLoss)
    return outcome
  }
  const shared = shareableBy(member, outcome)
  const atMs = Math.floor(lease.nowMs + nowOf(member) - takenAtMs)
  const head = { fence: lease.fence, atMs, notBeforeMs: shared.waitMs === 0 ? 0 : atMs + shared.waitMs }
  if (shared.isForAll) {
    const isClientPaced = attempt.cause === 'client'
    return publish(member, outcome, { shared, head, isClientPaced, endsAtMs: takenAtMs + lease.leaseMs })
  }
  const sealed = seal.encrypt(shared.record, head)
  // If it fails, the lease ends by itself.
  await store.release({ ...head, sealed, pauseMs: PAUSE_MS }).catch(noteReleaseLoss)
  return outcome
}

async function publish(
  member: Member,
  outcome: ServiceOutcome,
  answer: { shared: Shareable; head: RecordHead; isClientPaced: boolean; endsAtMs: number },
): Promise<FetchOutcome | 'again'> {
  const { store, seal, telemetry, log } = member
  const { head, shared, isClientPaced, endsAtMs } = answer
  const { record, ttlMs } = shared
  const { fence } = head
  const obtainedAtMs = nowOf(member)
  const request = { ...head, sealed: seal.encrypt(record, head), ttlMs, isClientPaced }
  try {
    const put = await store.put(request).catch((error: unknown) => {
      // A host that was paused finds its command timed out, whatever the store did: past the lease it writes once more.
      if (!(error instanceof StoreError) || nowOf(member) < endsAtMs) throw error
      return store.put(request)
    })
    if (put.verdict === 'stale' && put.record?.fence !== fence) {
      telemetry.staleWrite(fence)
      if (put.record !== null) receive(member, put.record, 'take')
      return takeDelivery(member) ?? 'again'
    }
    const hosts = put.verdict === 'stored' ? put.hosts : 0
    member.state = afterOwnRecord(member.state, { head, record, obtainedAtMs })
    if (hosts > 0) member.state = { ...member.state, hosts }
    telemetry.counted('asked')
    log('info', 'Asked the service for the fleet', { event: 'share-asked', fence, hosts })
  } catch (error) {
    noteLoss(member, error)
    keepOwn(member, { record, obtainedAtMs })
  }
  return outcome
}

function keepOwn(member: Member, { record, obtainedAtMs }: NonNullable<Member['state']['own']>): void {
  member.state = { ...member.state, own: { record: { ...record, isAlone: true }, obtainedAtMs } }
}

/** The store cannot be used: the request is put off to this host's own time, then made by itself. */
export async function askAlone(
  member: Member,
  { signal, attempt }: { signal: AbortSignal; attempt: Attempt },
): Promise<FetchOutcome> {
  // Other credentials are an operator's act, too.
  const isAct = attempt.cause === 'operator' || attempt.cause === 'reload'
  if (!member.share.asks || (member.share.whenAlone === 'wait' && !isAct)) {
    const detail = 'The shared store cannot be used, and this host is not to ask by itself'
    return postponed(TRY_STORE_MS, { reason: member.share.asks ? 'share-lost' : 'not-asked', detail })
  }
  const waitMs = isAct ? 0 : planAlone(member)
  if (waitMs > 0) return postponed(Math.min(TRY_STORE_MS, waitMs))
  member.state = { ...member.state, plan: null }
  await attempt.beforeRequest()
  const outcome = await member.service().fetchToken(signal, attempt)
  if (signal.aborted || (outcome.kind !== 'ok' && outcome.kind !== 'permanent')) return outcome
  member.telemetry.counted('alone')
  const { record, isForAll } = shareableBy(member, outcome)
  if (isForAll) keepOwn(member, { record, obtainedAtMs: nowOf(member) })
  return outcome
}

/** The time until this host's turn, in ms. */
function planAlone(member: Member): number {
  const { keeper, random, log } = member
  const { nowMs, usableUntilMs } = momentOf(member)
  const isUrgent = keeper.rejectedAgeMs() !== null || keeper.holdsOthersToken()
  const standalone = { usableUntilMs, hosts: member.state.hosts, isUrgent }
  const planned = afterPlanned(member.state, standalone, { nowMs, drawn: random() })
  member.state = planned
  const inMs = planned.plan.atMs - nowMs
  if (member.isAloneLogged) return inMs
  member.isAloneLogged = true
  log('warning', 'This host asks the service by itself when its time comes', {
    event: 'share-alone',
    spreadMs: Math.round(spreadMs(standalone, nowMs)),
    inMs: Math.round(inMs),
  })
  return inMs
}
