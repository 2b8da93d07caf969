// One token for a fleet: wraps what asks the service so that one host asks for all, and brings to the keeper what others were answered.
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { createWakeableSleep } from '../lib/wakeable-sleep.ts'
import type { StatusResult } from '../protocol.ts'
import type { RetryPolicy } from '../token/backoff.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import { createAdoption } from './adoption.ts'
import { createAloneFetch } from './alone-fetch.ts'
import { createContention } from './contention.ts'
import { createReconciler } from './reconciler.ts'
import { createRecords } from './records.ts'
import type { Seal } from './seal.ts'
import { createShareCounts, type ShareSample } from './share-counts.ts'
import { createSharedFetch } from './shared-fetch.ts'
import { shareableOf, type Shareable } from './shared-record.ts'
import { createStoreState } from './store-state.ts'
import { StoreError, type Store } from './store.ts'

export interface ShareTokenOptions {
  readonly store: Store
  readonly seal: Seal
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  /** The name of this host to the others. */
  readonly host: string
  readonly requestTimeoutMs: number
  readonly retry: RetryPolicy
  readonly asks: boolean
  readonly whenAlone: 'fetch' | 'wait'
  readonly aclLine: string
  /** Known to a restart: fence of what the keeper holds, of the newest record, and hosts of the fleet. */
  readonly saved: { readonly seen: number; readonly floor: number; readonly hosts: number | null }
  readonly keeper: {
    /** Hands an outcome to the keeper; false where it cannot take it now. */
    offer(outcome: FetchOutcome): boolean
    /** Until when the token that it holds can be used, on the boot clock; null: it holds none. */
    usableUntilMs(): number | null
    /** Life of a token that does not say its own, in ms. */
    assumedLifeMs(): number
    /** The age, in ms, at which clients reported the token that it holds as refused; null: none has. */
    rejectedAgeMs(): number | null
  }
}

export interface ShareToken {
  readonly fetchToken: FetchToken
  /** Listens and looks until the signal is aborted. Then the store is closed. */
  run(signal: AbortSignal): Promise<void>
  status(): NonNullable<StatusResult['share']>
  sample(): ShareSample
  /** Closes the store of a session that is not run. */
  close(): void
  /** The facts that a restart has to know. */
  saved(): { seen: number; floor: number; hosts: number | null }
}

const LOOK_EVERY_MS = 15_000
const LOOK_EVERY_WHILE_DENIED_MS = 60_000
/** An outcome that the keeper could not take is offered again so soon. */
const OFFER_AGAIN_MS = 50

export function shareToken(fetchToken: FetchToken, options: ShareTokenOptions): ShareToken {
  const { store, seal, clock, log, host, keeper } = options
  const bootMs = (): number => clock.now().bootMs
  let { hosts } = options.saved
  const { sleep, wake } = createWakeableSleep(clock)
  const stopping = new AbortController()

  const counts = createShareCounts(log, bootMs)
  const state = createStoreState({
    server: store.server,
    log,
    wallMs: () => clock.now().wallMs,
    aclLine: options.aclLine,
  })
  const contention = createContention({ log, bootMs, isAlone: () => state.current().state !== 'connected' })
  const records = createRecords({ ...options.saved, seal, bootMs })
  const adoption = createAdoption({
    records,
    counts,
    log,
    host,
    bootMs,
    usableUntilMs: () => keeper.usableUntilMs(),
    offer(outcome) {
      const isTaken = keeper.offer(outcome)
      if (isTaken) aloneFetch.forgetPlan()
      return isTaken
    },
    seen: options.saved.seen,
    onAskedAlone: (by) => contention.askedAlone(by),
    isUndecided: () => reconciler.isUnshared(),
    onPending: () => void offerAgain(),
  })

  let isOffering = false
  /** The keeper is between two steps of its own: it can take an outcome very soon. */
  async function offerAgain(): Promise<void> {
    if (isOffering) return
    isOffering = true
    await clock.sleep(OFFER_AGAIN_MS, stopping.signal)
    isOffering = false
    if (!stopping.signal.aborted) adoption.offer()
  }

  const shareable = (outcome: Parameters<typeof shareableOf>[0]): Shareable =>
    shareableOf(outcome, {
      host,
      wallMs: clock.now().wallMs,
      assumedLifeMs: keeper.assumedLifeMs(),
      retry: options.retry,
      before: records.newest()?.record ?? null,
      token: records.token(),
    })

  const onHosts = (count: number): void => {
    hosts = count
  }
  const parts = { ...options, fetchToken, records, adoption, counts, shareable, bootMs, onHosts }

  const aloneFetch = createAloneFetch({
    ...parts,
    usableUntilMs: () => keeper.usableUntilMs(),
    hosts: () => hosts,
    onUnshared: (own) => reconciler.addUnshared(own, bootMs()),
  })

  const reconciler = createReconciler({ ...parts, onContact: () => state.connected() })

  async function look(): Promise<void> {
    await reconciler.reconcile().catch((error: unknown) => {
      if (!(error instanceof StoreError)) throw error
      state.failed(error)
    })
  }

  const sharedFetch = createSharedFetch({
    ...parts,
    reconciler,
    onContact() {
      state.connected()
      aloneFetch.forgetPlan()
    },
    onLost: (error) => state.failed(error),
    alone: async (...asked) => aloneFetch.fetchToken(...asked),
  })

  async function lookAgainAndAgain(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(state.current().state === 'denied' ? LOOK_EVERY_WHILE_DENIED_MS : LOOK_EVERY_MS, signal)
      if (!signal.aborted) await look()
    }
  }

  return {
    async fetchToken(signal, attempt) {
      const rejectedAgeMs = attempt.cause === 'client' ? keeper.rejectedAgeMs() : null
      if (rejectedAgeMs !== null) contention.rejected(rejectedAgeMs)
      return sharedFetch(signal, attempt)
    },
    async run(signal) {
      const watching = store.watch(
        {
          onRecord(record) {
            const storeNowMs = records.storeNowMs()
            if (storeNowMs !== null) counts.lag(storeNowMs - record.nowMs)
            adoption.receive(record, 'push')
            if (reconciler.isUnshared()) wake()
          },
          onReleased: () => adoption.wake(),
          onSubscribed: wake,
          onConnected: wake,
        },
        signal,
      )
      await look()
      await Promise.all([watching, lookAgainAndAgain(signal)])
      stopping.abort()
      store.close()
    },
    status: () => ({
      ...state.current(),
      server: store.server,
      hosts,
      askedBy: records.newest()?.record.by ?? null,
    }),
    sample: () => counts.sample(),
    close() {
      stopping.abort()
      store.close()
    },
    saved: () => ({ seen: adoption.seen(), floor: records.floor(), hosts }),
  }
}
