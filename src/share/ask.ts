// A request to the service for the whole fleet, under a lease: its outcome is written for all, or the lease is given up.
import type { Log } from '../lib/log.ts'
import type { Attempt, FetchOutcome, FetchToken, ServiceOutcome } from '../token/outcome.ts'
import type { Adoption } from './adoption.ts'
import type { Reconciler } from './reconciler.ts'
import { isFencePossible, type Records } from './records.ts'
import type { Seal } from './seal.ts'
import type { ShareCounts } from './share-counts.ts'
import type { Shareable } from './shared-record.ts'
import { StoreError, type Box, type BoxHead, type Put, type Store } from './store.ts'

export interface AskOptions {
  /** The service itself. */
  readonly fetchToken: FetchToken
  readonly store: Store
  readonly seal: Seal
  readonly records: Records
  readonly adoption: Adoption
  readonly reconciler: Reconciler
  readonly counts: ShareCounts
  /** This host's boot clock. */
  readonly bootMs: () => number
  readonly log: Log
  /** The name of this host to the others. */
  readonly host: string
  readonly requestTimeoutMs: number
  /** For how long a lease is held at most, in ms. */
  readonly leaseMs: number
  /** This host's own outcome as the others are to know it. */
  readonly shareable: (outcome: ServiceOutcome) => Shareable
  readonly onHosts: (hosts: number) => void
  /** The store did not do as it was asked. */
  readonly onLost: (error: StoreError) => void
}

/** The lease that the store gave, and the boot time at which it was requested. */
export interface Lease {
  readonly fence: number
  readonly nowMs: number
  readonly takenAtMs: number
}

/** No host asks for so long after a host could not reach the service. */
export const PAUSE_MS = 5_000

/** `again`: the lease or the answer is of no use any more, and the store is asked again. Throws StoreError. */
export function createAsk(
  options: AskOptions,
): (lease: Lease, attempt: { signal: AbortSignal; attempt: Attempt }) => Promise<FetchOutcome | 'again'> {
  const { store, adoption, reconciler, counts, seal, log, bootMs } = options

  /** The lease ends by itself, also if the store cannot be reached. */
  async function release(pause: (Box & { pauseMs: number }) | null): Promise<void> {
    await store.release(pause).catch((error: unknown) => {
      if (!(error instanceof StoreError)) throw error
      options.onLost(error)
    })
  }

  /** A host that was paused finds its command timed out, whatever the store did: past the lease it writes once more. */
  async function write(request: Parameters<Store['put']>[0], leaseEndsAtMs: number): Promise<Put> {
    try {
      return await store.put(request)
    } catch (error) {
      if (!(error instanceof StoreError) || bootMs() < leaseEndsAtMs) throw error
      const again = await store.put(request)
      const isOwn = again.verdict === 'stale' && again.record?.fence === request.fence
      return isOwn ? { verdict: 'stored', hosts: 0 } : again
    }
  }

  interface Answered {
    readonly shareable: Shareable
    readonly head: BoxHead
    readonly isClientPaced: boolean
    readonly leaseEndsAtMs: number
  }

  async function put(
    outcome: FetchOutcome,
    { shareable, head, isClientPaced, leaseEndsAtMs }: Answered,
  ): Promise<FetchOutcome | 'again'> {
    const { record, ttlMs } = shareable
    const { fence } = head
    const box = seal.close(record, head)
    const answeredAtMs = bootMs()
    try {
      const result = await write({ ...head, box, ttlMs, isClientPaced }, leaseEndsAtMs)
      if (result.verdict === 'stored') {
        adoption.own({ head, box, record, ageMs: bootMs() - answeredAtMs, receivedAtMs: bootMs() })
        reconciler.forgetUnshared()
        counts.adopted('asked')
        if (result.hosts > 0) options.onHosts(result.hosts)
        log('info', 'Asked the service for the fleet', { event: 'share-asked', fence, hosts: result.hosts })
        return outcome
      }
      counts.staleWrite()
      log('warning', 'Another host asked meanwhile: its answer counts, and the one of this host is dropped', {
        event: 'share-stale-write',
        fence,
      })
      if (result.record !== null) adoption.receive(result.record, 'take')
      return adoption.take() ?? 'again'
    } catch (error) {
      if (!(error instanceof StoreError)) throw error
      options.onLost(error)
      reconciler.addUnshared(shareable, answeredAtMs)
      return outcome
    }
  }

  return async (lease, { signal, attempt }) => {
    if (!isFencePossible(lease.fence, lease.nowMs)) {
      counts.unreadable(lease.fence)
      await release(null)
      throw new StoreError('lost', 'The fences in the shared store are far in the future')
    }
    await attempt.beforeRequest()
    // The host was suspended, or its disk stood still: the request might outlive the lease.
    if (bootMs() - lease.takenAtMs > options.requestTimeoutMs / 2) return 'again'
    const outcome = await options.fetchToken(signal, attempt)
    if (signal.aborted || outcome.kind === 'postponed') {
      await release(null)
      return outcome
    }
    const shareable = options.shareable(outcome)
    const atMs = Math.floor(lease.nowMs + bootMs() - lease.takenAtMs)
    const notBeforeMs = shareable.waitMs === 0 ? 0 : atMs + shareable.waitMs
    const head = { fence: lease.fence, atMs, notBeforeMs }
    if (shareable.isForAll) {
      const isClientPaced = attempt.cause === 'client'
      return put(outcome, {
        shareable,
        head,
        isClientPaced,
        leaseEndsAtMs: lease.takenAtMs + options.leaseMs,
      })
    }
    await release({ ...head, box: seal.close(shareable.record, head), pauseMs: PAUSE_MS })
    return outcome
  }
}
