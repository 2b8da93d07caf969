// A session with the shared store: it holds the ShareState of this host, receives records, offers them to the keeper, keeps the
// store up to date, and makes the keeper's attempts (attempt.ts).
import type { Config, ShareConfig } from '../config/config.ts'
import { createWakeableSleep, withTimeout, type Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import type { RetryPolicy } from '../token/backoff.ts'
import type { Keeper } from '../token/keeper.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import { usableToken, usableUntilMs, type Policy } from '../token/state.ts'
import { makeAttempt, SYNC_EVERY_MS } from './attempt.ts'
import { openRedisStore } from './redis-store.ts'
import { FENCE_AHEAD_MS } from './scripts.ts'
import { createSeal, type Seal, type SharedRecord } from './seal.ts'
import {
  afterClockRead,
  afterRecord,
  afterSync,
  initialShareState,
  keptMs,
  nextDelivery,
  storeClockMs,
  type KnownRecord,
  type Moment,
  type ResumeState,
  type Route,
} from './share-state.ts'
import type { Store, StoredRecord } from './store.ts'
import { createTelemetry, type AclSettings } from './telemetry.ts'

export interface MemberOptions {
  readonly store: Store
  readonly seal: Seal
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  /** The name of this host to the others. */
  readonly host: string
  readonly credentialsId: string
  readonly share: Pick<ShareConfig, 'timeoutMs' | 'asks' | 'whenAlone'> & AclSettings
  /** The way to the service. A reload may change it while the store stays the same. */
  readonly service: () => {
    readonly fetchToken: FetchToken
    readonly requestTimeoutMs: number
    readonly retry: RetryPolicy
  }
  readonly resumeState: ResumeState
  readonly keeper: Pick<Keeper, 'offer' | 'state'> & { readonly policy: () => Policy }
}

export type SharingConfig = Config & { readonly share: ShareConfig }
export type OpenStore = (...account: Parameters<typeof openRedisStore>) => Promise<Store>
export type ShareToken = ReturnType<typeof shareToken>

const SYNC_EVERY_WHILE_DENIED_MS = 60_000

/** A session with the shared store of one account. Connects in the background: never fails. */
export async function openSession(
  { baseUrl, service, credentials, share }: SharingConfig,
  {
    openStore = openRedisStore,
    ...options
  }: Omit<MemberOptions, 'store' | 'seal' | 'share'> & { openStore?: OpenStore | undefined },
): Promise<ShareToken> {
  const seal = createSeal({ baseUrl, description: service.description, credentials, key: share.key })
  const store = await openStore(share, { accountKey: seal.accountKey, ...options })
  return shareToken({ ...options, store, seal, share })
}

export function shareToken(options: MemberOptions) {
  const member = createMember(options)
  const { store, telemetry } = member
  const resting = createWakeableSleep(options.clock)

  async function syncAgainAndAgain(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await member.sync().catch(telemetry.failed)
      const isDenied = telemetry.storeState().state === 'denied'
      await resting.sleep(isDenied ? SYNC_EVERY_WHILE_DENIED_MS : SYNC_EVERY_MS, signal)
    }
  }

  const fetchToken: FetchToken = async (signal, attempt) => {
    const outcome = makeAttempt(member, attempt, signal)
    member.underWay = outcome
    try {
      return await outcome
    } finally {
      member.underWay = null
      member.deliver()
    }
  }

  return {
    fetchToken,
    close: member.close,
    /** Receives pushes and reads the store from time to time until the signal is aborted. Then closes the store. */
    async run(signal: AbortSignal): Promise<void> {
      const watching = store.watch(
        {
          onRecord(record) {
            const storeNowMs = storeClockMs(member.state, member.nowMs())
            if (storeNowMs !== null) telemetry.lag(storeNowMs - record.nowMs)
            member.receive(record, 'push')
          },
          onReleased: member.waiting.wake,
          onSubscribed: resting.wake,
          onConnected: resting.wake,
        },
        signal,
      )
      await Promise.all([watching, syncAgainAndAgain(signal)])
      await member.close()
    },
    status(): NonNullable<StatusResult['share']> {
      const { hosts, newest } = member.state
      return { ...telemetry.storeState(), server: store.server, hosts, askedBy: newest?.record.by ?? null }
    },
    sample: () => ({ ...telemetry.sample(), state: telemetry.storeState().state, hosts: member.state.hosts }),
    /** The state with which the next session or process can begin. */
    resumeState(): ResumeState {
      const { adoptedFence, highestFence, own, hosts } = member.state
      return { adoptedFence, highestFence, own, hosts }
    },
  }
}

export type Member = ReturnType<typeof createMember>

/** The time after which an outcome that the keeper could not take is offered again. */
const DELIVER_AGAIN_MS = 50

function createMember(options: MemberOptions) {
  const { store, seal, clock, keeper, host, credentialsId, log } = options
  const telemetry = createTelemetry({ ...options, server: store.server })
  const closed = new AbortController()
  let isDeliveringAgain = false
  const member = {
    ...options,
    telemetry,
    state: initialShareState(options.resumeState),
    /** The sleep of an attempt that waits for another host. */
    waiting: createWakeableSleep(clock),
    underWay: null as Promise<unknown> | null,
    nowMs,
    moment,
    open,
    receive,
    deliver,
    takeDelivery,
    sync,
    close,
  }
  return member

  /** On the boot clock. */
  function nowMs(): number {
    return clock.now().bootMs
  }

  function moment(): Moment {
    const now = clock.now()
    const state = keeper.state()
    const token = usableToken(state, now)
    return {
      nowMs: now.bootMs,
      wallMs: now.wallMs,
      host,
      assumedLifeMs: keeper.policy().maxAgeMs,
      usableUntilMs: token && usableUntilMs(token),
      lacksToken: token?.credentialsId !== credentialsId,
    }
  }

  /** Decrypts the record. Null, and logged: it was written without the secret. */
  function open(stored: StoredRecord): SharedRecord | null {
    const isPossible = Number.isSafeInteger(stored.fence) && stored.fence <= stored.nowMs + FENCE_AHEAD_MS
    const record = isPossible ? seal.decrypt(stored.sealed, stored) : null
    if (record === null) telemetry.unreadable(stored.fence)
    return record
  }

  function receive(stored: StoredRecord, route: Route): void {
    const { newest } = member.state
    member.state = afterRecord(member.state, { stored, open, route }, moment())
    if (member.state.newest !== newest) deliver()
  }

  /** Offers the keeper what it lacks. An attempt that is under way is woken instead, and returns it as its outcome. */
  function deliver(): void {
    if (member.underWay !== null) member.waiting.wake()
    else if (takeDelivery((outcome) => keeper.offer(outcome)) !== null) deliver()
  }

  /** The newest record as an outcome, if the keeper does not have it and can take it now. */
  function takeDelivery(isTaken: (outcome: FetchOutcome) => boolean = () => true): FetchOutcome | null {
    const { state } = member
    const next = nextDelivery(state, moment())
    if (next === null) return null
    // Before the keeper saves it, so that a restart knows that it has this record.
    member.state = next.state
    if (isTaken(next.outcome)) {
      adopted(next.adopted)
      return next.outcome
    }
    member.state = state
    void deliverAgain()
    return null
  }

  /** The keeper is busy with a step of its own: it can take an outcome very soon. */
  async function deliverAgain(): Promise<void> {
    if (isDeliveringAgain) return
    isDeliveringAgain = true
    await clock.sleep(DELIVER_AGAIN_MS, closed.signal)
    isDeliveringAgain = false
    if (!closed.signal.aborted) deliver()
  }

  function adopted(known: KnownRecord | null): void {
    if (known === null) return
    const { by, isAlone } = known.record
    const { route: how } = member.state
    telemetry.counted(how)
    log('debug', 'Took over what another host was answered', {
      event: 'share-adopted',
      fence: known.head.fence,
      by,
      ageMs: Math.round(nowMs() - known.obtainedAtMs),
      how,
      ...(isAlone && { isAlone }),
    })
  }

  /** Brings the store and this host to the same record. Rejects with a StoreError. */
  async function sync(): Promise<void> {
    const { own, highestFence } = member.state
    const sentAtMs = nowMs()
    const contents = await store.read({ known: own === null ? highestFence : 0, highestFence })
    // An attempt has ended meanwhile: its answer has to be compared with the store's record, too.
    if (member.state.own !== own) return sync()
    telemetry.connected()
    if (contents.isPlanted) telemetry.unreadable(contents.fence)
    member.state = afterClockRead(member.state, contents.nowMs, { sentAtMs, nowMs: nowMs() })
    if (contents.record !== null) receive(contents.record, 'look')
    member.state = afterSync(member.state, contents.nowMs, moment())
    if (contents.hosts > 0) member.state = { ...member.state, hosts: contents.hosts }
    deliver()
    const { newest } = member.state
    // A store with an older record or none was emptied, or is another store.
    if (newest === null || contents.fence >= newest.head.fence) return
    const ttlMs = keptMs(newest, nowMs())
    if (ttlMs <= 0) return
    const { head, record } = newest
    await store.restore({ ...head, sealed: seal.encrypt(record, head), ttlMs })
    const { fence } = head
    const found = contents.fence
    log('info', 'The shared store has the newest record again', { event: 'share-repaired', fence, found })
  }

  /** Closes the store, once an attempt that is under way has given its lease back. */
  async function close(): Promise<void> {
    if (member.underWay !== null) await withTimeout(2 * options.share.timeoutMs, member.underWay, clock)
    closed.abort()
    store.close()
  }
}
