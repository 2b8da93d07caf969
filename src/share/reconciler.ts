// Brings the store and this host to the same record: the newer of the two, and an outcome that this host obtained alone.
import type { Log } from '../lib/log.ts'
import type { Adoption } from './adoption.ts'
import { isFencePossible, type Records } from './records.ts'
import type { Seal } from './seal.ts'
import type { ShareCounts } from './share-counts.ts'
import type { Shareable } from './shared-record.ts'
import { StoreError, type Store } from './store.ts'

export interface Reconciler {
  /** Throws StoreError. */
  reconcile(): Promise<void>
  /** An outcome of this host's own that could not be written; the service answered it at this time, on the boot clock. */
  addUnshared(shareable: Shareable, answeredAtMs: number): void
  /** There is such an outcome. */
  isUnshared(): boolean
  /** A record of this host's own was written: an earlier outcome counts no more. */
  forgetUnshared(): void
}

export function createReconciler(options: {
  store: Store
  seal: Seal
  records: Records
  adoption: Adoption
  counts: ShareCounts
  log: Log
  bootMs: () => number
  onContact: () => void
  onHosts: (hosts: number) => void
}): Reconciler {
  const { store, seal, records, adoption, counts, log, bootMs, onContact, onHosts } = options
  let unshared: { readonly shareable: Shareable; readonly answeredAtMs: number } | null = null

  /** An outcome that this host obtained alone counts for all from the moment of its answer on. */
  function addOwn({ nowMs: storeNowMs, fence }: { nowMs: number; fence: number }): void {
    if (unshared === null) return
    const { shareable, answeredAtMs } = unshared
    unshared = null
    const { waitMs, ttlMs } = shareable
    const record = { ...shareable.record, isAlone: true as const }
    const ageMs = bootMs() - answeredAtMs
    const atMs = Math.floor(storeNowMs - ageMs)
    if (atMs <= Math.max(records.floor(), fence) || ageMs >= ttlMs) return
    const head = { fence: atMs, atMs, notBeforeMs: waitMs === 0 ? 0 : atMs + waitMs }
    adoption.own({ head, box: seal.close(record, head), record, ageMs, receivedAtMs: bootMs() })
  }

  /** The store lost its data, or its master to a replica that lags. */
  async function repair(found: number): Promise<void> {
    const newest = records.newest()
    const ttlMs = Math.ceil(records.lifeLeftMs())
    if (newest === null || found >= newest.head.fence || ttlMs <= 0) return
    const { fence } = newest.head
    await store.restore({ ...newest.head, box: newest.box, ttlMs })
    log('info', 'The shared store has the newest record again', { event: 'share-repaired', fence, found })
  }

  return {
    async reconcile() {
      const { nowMs, fence, given, record, hosts } = await store.look(records.floor())
      const highest = Math.max(fence, given)
      if (!isFencePossible(highest, nowMs)) {
        counts.unreadable(highest)
        throw new StoreError('lost', 'The fences in the shared store are far in the future')
      }
      onContact()
      records.setClock(nowMs)
      if (hosts > 0) onHosts(hosts)
      // First, so that an older record of the store does not replace it.
      addOwn({ nowMs, fence })
      if (record !== null) adoption.receive(record, 'look')
      adoption.offer()
      await repair(fence)
    },
    addUnshared(shareable, answeredAtMs) {
      unshared = { shareable, answeredAtMs }
    },
    isUnshared: () => unshared !== null,
    forgetUnshared() {
      unshared = null
    },
  }
}
