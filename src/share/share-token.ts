// One token for a fleet: wraps what asks the service so that one host asks for all, and brings to the keeper what others were answered.
import type { Config, ShareConfig } from '../config/config.ts'
import { createWakeableSleep, withTimeout } from '../lib/clock.ts'
import type { StatusResult } from '../protocol.ts'
import type { FetchToken } from '../token/outcome.ts'
import { makeAttempt, SYNC_EVERY_MS } from './attempt.ts'
import { createMember, type MemberOptions } from './member.ts'
import { openRedisStore } from './redis-store.ts'
import { createSeal } from './seal.ts'
import type { Store } from './store.ts'
import { storeClockMs, type Remembered } from './share-state.ts'

export type OpenStore = (...account: Parameters<typeof openRedisStore>) => Promise<Store>
export type ShareToken = ReturnType<typeof shareToken>

const SYNC_EVERY_WHILE_DENIED_MS = 60_000

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

export function shareToken(options: MemberOptions) {
  const member = createMember(options)
  const { store, telemetry, clock } = member
  const resting = createWakeableSleep(clock)
  const syncIfPossible = async (): Promise<void> => member.sync().catch(telemetry.failed)

  async function syncAgainAndAgain(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const isDenied = telemetry.storeState().state === 'denied'
      await resting.sleep(isDenied ? SYNC_EVERY_WHILE_DENIED_MS : SYNC_EVERY_MS, signal)
      if (!signal.aborted) await syncIfPossible()
    }
  }

  /** Closes the store, once an attempt that is under way has given its lease back. */
  async function close(): Promise<void> {
    if (member.underWay !== null) await withTimeout(2 * member.share.timeoutMs, member.underWay, clock)
    member.closed.abort()
    store.close()
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
    close,
    /** Listens and looks until the signal is aborted. Then the store is closed. */
    async run(signal: AbortSignal): Promise<void> {
      const watching = store.watch(
        {
          onRecord(record) {
            const storeNowMs = storeClockMs(member.state, member.nowMs())
            if (storeNowMs !== null) telemetry.lag(storeNowMs - record.nowMs)
            member.receive(record, 'push')
            if (member.state.own !== null) resting.wake()
          },
          onReleased: member.waiting.wake,
          onSubscribed: resting.wake,
          onConnected: resting.wake,
        },
        signal,
      )
      await syncIfPossible()
      await Promise.all([watching, syncAgainAndAgain(signal)])
      await close()
    },
    status(): NonNullable<StatusResult['share']> {
      const { hosts, newest } = member.state
      return { ...telemetry.storeState(), server: store.server, hosts, askedBy: newest?.record.by ?? null }
    },
    sample: () => ({
      ...telemetry.sample(),
      state: telemetry.storeState().state,
      hosts: member.state.hosts,
    }),
    /** The facts that a restart has to know. */
    remembered(): Remembered {
      const { adoptedFence, highestFence, own, hosts } = member.state
      return { adoptedFence, highestFence, own, hosts }
    },
  }
}
