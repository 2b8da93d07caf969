// A request to the service: for the whole fleet under a lease, or by this host itself while the store cannot be used.
import type { FetchOutcome, FetchToken, Postponed, ServiceOutcome } from '../token/outcome.ts'
import { isOthersToken } from '../token/state.ts'
import { momentOf, nowOf, receive, takeDelivery, type Member } from './member.ts'
import { isForAll, keptMs, recordOf, type Answer, type KnownRecord } from './records.ts'
import { afterOwnRecord, afterPlanned, NO_HOLDS, spreadMs } from './share-state.ts'
import { StoreError } from './store.ts'

/** After a failure to reach the service, no host asks for so long. */
export const PAUSE_MS = 5_000
/** While the store is away it is tried again so often, whatever the plan. */
const TRY_STORE_MS = 15_000

/** An attempt of the keeper's. */
export interface Given {
  readonly signal: AbortSignal
  readonly attempt: Parameters<FetchToken>[1]
}

/** `again`: the lease or the answer is of no use any more, and the store is asked again. Rejects with a StoreError. */
export async function askForAll(
  member: Member,
  { fence, nowMs, takenAtMs }: { fence: number; nowMs: number; takenAtMs: number },
  { signal, attempt, leaseMs }: Given & { leaseMs: number },
): Promise<FetchOutcome | 'again'> {
  const { store, seal, telemetry } = member
  const { fetchToken: ask, requestTimeoutMs } = member.service()
  // The waits were over, or what this host writes replaces them.
  member.state = { ...member.state, holds: NO_HOLDS }
  await attempt.beforeRequest()
  // The host was suspended, or its disk stood still: the request might outlive the lease.
  if (nowOf(member) - takenAtMs > requestTimeoutMs / 2) return 'again'
  const outcome = await ask(signal, attempt)
  if (signal.aborted || outcome.kind === 'postponed') {
    await store.release(null).catch(telemetry.failed)
    return outcome
  }
  const { record, waitMs } = ownRecord(member, outcome)
  const atMs = Math.floor(nowMs + nowOf(member) - takenAtMs)
  const head = { fence, atMs, notBeforeMs: waitMs === 0 ? 0 : atMs + waitMs }
  if (isForAll(record)) {
    const known = { head, record, obtainedAtMs: nowOf(member) }
    const isClientPaced = attempt.cause === 'client'
    return (await publish(member, known, { isClientPaced, endsAtMs: takenAtMs + leaseMs })) ?? outcome
  }
  const sealed = seal.encrypt(record, head)
  // If it fails, the lease ends by itself.
  await store.release({ ...head, sealed, pauseMs: PAUSE_MS }).catch(telemetry.failed)
  return outcome
}

function ownRecord(member: Member, outcome: ServiceOutcome): ReturnType<typeof recordOf> {
  const { newest } = member.state
  return recordOf(outcome, { newest, retry: member.service().retry }, momentOf(member))
}

/** Writes the answer for all. Null: it counts; else another host's does. */
async function publish(
  member: Member,
  known: KnownRecord,
  { isClientPaced, endsAtMs }: { isClientPaced: boolean; endsAtMs: number },
): Promise<FetchOutcome | 'again' | null> {
  const { store, seal, telemetry, log } = member
  const { head, record } = known
  const { fence } = head
  const ttlMs = keptMs(known, known.obtainedAtMs)
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
    member.state = afterOwnRecord(member.state, known)
    if (hosts > 0) member.state = { ...member.state, hosts }
    telemetry.counted('asked')
    log('info', 'Asked the service for the fleet', { event: 'share-asked', fence, hosts })
  } catch (error) {
    telemetry.failed(error)
    keepOwn(member, known)
  }
  return null
}

function keepOwn(member: Member, { record, obtainedAtMs }: Answer): void {
  member.state = { ...member.state, own: { record: { ...record, isAlone: true }, obtainedAtMs } }
}

/** The store cannot be used: the request is put off to this host's own time, then made by itself. */
export async function askAlone(member: Member, { signal, attempt }: Given): Promise<FetchOutcome> {
  const { asks, whenAlone } = member.share
  // Other credentials are an operator's act, too.
  const isAct = attempt.cause === 'operator' || attempt.cause === 'reload'
  if (!asks || (whenAlone === 'wait' && !isAct)) {
    const detail = 'The shared store cannot be used, and this host is not to ask by itself'
    return postponed(TRY_STORE_MS, { reason: asks ? 'share-lost' : 'not-asked', detail })
  }
  const waitMs = isAct ? 0 : planAlone(member)
  if (waitMs > 0) return postponed(Math.min(TRY_STORE_MS, waitMs))
  member.state = { ...member.state, plan: null }
  await attempt.beforeRequest()
  const outcome = await member.service().fetchToken(signal, attempt)
  if (signal.aborted || (outcome.kind !== 'ok' && outcome.kind !== 'permanent')) return outcome
  member.telemetry.counted('alone')
  const { record } = ownRecord(member, outcome)
  if (isForAll(record)) keepOwn(member, { record, obtainedAtMs: nowOf(member) })
  return outcome
}

/** The time until this host's turn, in ms. */
function planAlone(member: Member): number {
  const { keeper, random, log } = member
  const { nowMs, usableUntilMs } = momentOf(member)
  const isUrgent = keeper.state().rejection !== null || isOthersToken(keeper.state())
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

export function postponed(retryAfterMs: number, more: Partial<Postponed> = {}): Postponed {
  return { kind: 'postponed', retryAfterMs, ...more }
}
