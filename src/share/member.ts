// A host as a member of its fleet: the one ShareState and what acts on it. Records come in, the keeper gets them, the store is kept up to date.
import type { ShareConfig } from '../config/config.ts'
import { type Clock, createWakeableSleep } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { RetryPolicy } from '../token/backoff.ts'
import type { Keeper } from '../token/keeper.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import { assumedLifeMs } from '../token/rejections.ts'
import { usableToken, usableUntilMs, type Policy } from '../token/state.ts'
import type { KnownRecord, Moment } from './records.ts'
import type { Seal, SharedRecord } from './seal.ts'
import {
  afterRecord,
  afterSync,
  initialShareState,
  nextDelivery,
  recordToRestore,
  type Remembered,
  type Route,
  type ShareState,
} from './share-state.ts'
import type { Store, StoredRecord } from './store.ts'
import { createTelemetry, type AclSettings, type Telemetry } from './telemetry.ts'

/** The way to the service. A reload may change it while the store stays the same. */
export interface ServiceSettings {
  readonly fetchToken: FetchToken
  readonly requestTimeoutMs: number
  readonly retry: RetryPolicy
}

export interface KeeperPort extends Pick<Keeper, 'offer' | 'state'> {
  readonly policy: () => Policy
}

export interface MemberOptions {
  readonly store: Store
  readonly seal: Seal
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  /** The name of this host to the others. */
  readonly host: string
  readonly share: Pick<ShareConfig, 'timeoutMs' | 'asks' | 'whenAlone'> & AclSettings
  readonly service: () => ServiceSettings
  readonly remembered: Remembered
  readonly keeper: KeeperPort
}

export interface Member extends MemberOptions {
  state: ShareState
  readonly telemetry: Telemetry
  /** The sleep of an attempt that waits for another host. */
  readonly waiting: ReturnType<typeof createWakeableSleep>
  /** The attempt of the keeper's that is under way. */
  underWay: Promise<void> | null
  /** The keeper is offered a record again in a moment. */
  isDeliveringAgain: boolean
  isAloneLogged: boolean
  /** Aborted when the store is closed. */
  readonly closed: AbortController
}

/** An outcome that the keeper could not take is offered again so soon. */
const DELIVER_AGAIN_MS = 50

export function createMember(options: MemberOptions): Member {
  return {
    ...options,
    state: initialShareState(options.remembered),
    telemetry: createTelemetry({ ...options, server: options.store.server }),
    waiting: createWakeableSleep(options.clock),
    underWay: null,
    isDeliveringAgain: false,
    isAloneLogged: false,
    closed: new AbortController(),
  }
}

export function nowOf({ clock }: Pick<Member, 'clock'>): number {
  return clock.now().bootMs
}

export function momentOf({ clock, keeper, host }: Member): Moment {
  const now = clock.now()
  const state = keeper.state()
  const token = usableToken(state, now)
  return {
    nowMs: now.bootMs,
    wallMs: now.wallMs,
    host,
    assumedLifeMs: assumedLifeMs(state, keeper.policy(), now),
    usableUntilMs: token && usableUntilMs(token),
  }
}

/** A record has come. */
export function receive(member: Member, stored: StoredRecord, route: Route): void {
  const { newest } = member.state
  const open = (): SharedRecord | null => member.seal.decrypt(stored.sealed, stored)
  const { state, isReadable } = afterRecord(member.state, { stored, open, route }, momentOf(member))
  member.state = state
  if (!isReadable) member.telemetry.unreadable(stored.fence)
  if (state.newest !== newest) deliver(member)
}

/** Offers the keeper what it does not have. During an attempt that is its outcome instead. */
export function deliver(member: Member): void {
  if (member.underWay !== null) return member.waiting.wake()
  for (let next = nextDelivery(member.state, momentOf(member)); next !== null;) {
    const { state } = member
    // Before the keeper saves it, so that a restart knows that it has this record.
    member.state = next.state
    if (!member.keeper.offer(next.outcome)) {
      member.state = state
      return void deliverAgain(member)
    }
    forgetPlan(member)
    adopted(member, next.adopted)
    next = nextDelivery(member.state, momentOf(member))
  }
}

/** The keeper is between two steps of its own: it can take an outcome very soon. */
export async function deliverAgain(member: Member): Promise<void> {
  if (member.isDeliveringAgain) return
  member.isDeliveringAgain = true
  await member.clock.sleep(DELIVER_AGAIN_MS, member.closed.signal)
  member.isDeliveringAgain = false
  if (!member.closed.signal.aborted) deliver(member)
}

/** The record as the outcome of the attempt that is under way. */
export function takeDelivery(member: Member): FetchOutcome | null {
  const next = nextDelivery(member.state, momentOf(member))
  if (next === null) return null
  member.state = next.state
  adopted(member, next.adopted)
  return next.outcome
}

function adopted(member: Member, known: KnownRecord | null): void {
  if (known === null) return
  const { telemetry, host, log } = member
  const { by, isAlone = false } = known.record
  const { route: how } = member.state
  telemetry.counted(how)
  if (isAlone && by !== host) telemetry.askedAlone(by)
  log('debug', 'Took over what another host was answered', {
    event: 'share-adopted',
    fence: known.head.fence,
    by,
    ageMs: Math.round(nowOf(member) - known.obtainedAtMs),
    how,
    ...(isAlone && { isAlone }),
  })
}

/** The store can be used: the time that was planned counts no more. */
export function forgetPlan(member: Member): void {
  member.state = { ...member.state, plan: null }
  member.isAloneLogged = false
}

/** Brings the store and this host to the same record. Rejects with a StoreError. */
export async function sync(member: Member): Promise<void> {
  const { store, seal, telemetry, log } = member
  const { own, highestFence } = member.state
  const contents = await store.read({ known: own === null ? highestFence : 0, highestFence })
  telemetry.connected()
  if (contents.isPlanted) telemetry.unreadable(contents.fence)
  if (contents.record !== null) receive(member, contents.record, 'look')
  const synced = afterSync(member.state, contents.nowMs, momentOf(member))
  // An attempt may have ended meanwhile: what it gave is compared next time.
  member.state = member.state.own === own ? synced : { ...synced, own: member.state.own }
  if (contents.hosts > 0) member.state = { ...member.state, hosts: contents.hosts }
  deliver(member)
  const lacking = recordToRestore(member.state, contents.fence, nowOf(member))
  if (lacking === null) return
  const { head, record } = lacking.known
  await store.restore({ ...head, sealed: seal.encrypt(record, head), ttlMs: lacking.ttlMs })
  const { fence } = head
  const found = contents.fence
  log('info', 'The shared store has the newest record again', { event: 'share-repaired', fence, found })
}
