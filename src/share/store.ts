// The interface of the shared store: one record, one lease and one channel for each account. The store holds sealed records and
// cannot decrypt them.
import type { Cause } from '../token/outcome.ts'

/** The part of a record that the store can read. The sealed part can be decrypted only with exactly these values. */
export interface RecordHead {
  /** Orders records: a later one has a larger fence. */
  readonly fence: number
  /** When the asker had the answer, in ms on the store's clock. */
  readonly atMs: number
  /** No host asks the service before this moment, in ms on the store's clock; 0: no such wait. */
  readonly notBeforeMs: number
}
export interface SealedRecord extends RecordHead {
  readonly sealed: string
}
/** A record as it lies in the store, with the store's clock at the moment it was read. */
export interface StoredRecord extends SealedRecord {
  readonly nowMs: number
}

/** The store's answer to a host that wants to ask the service. */
export type Lease =
  /** The store has a record that this host does not have. No request is needed. */
  | { readonly verdict: 'newer'; readonly record: StoredRecord }
  /** Another host asks now. `holder` names its lease. */
  | { readonly verdict: 'taken'; readonly waitMs: number; readonly holder: string }
  /** The service asked the fleet to wait, or refused it: no host asks before `notBeforeMs` of the record. */
  | { readonly verdict: 'held'; readonly record: StoredRecord }
  /** A host has just failed to reach the service; the record says why. */
  | { readonly verdict: 'paused'; readonly waitMs: number; readonly record: StoredRecord }
  /** A request for a client's report was made less than 30 s ago. */
  | { readonly verdict: 'paced'; readonly waitMs: number }
  /** This host asks, and writes under this fence. */
  | { readonly verdict: 'yours'; readonly fence: number; readonly nowMs: number }

export interface LeaseRequest {
  readonly cause: Cause
  /** The longest time for which the lease is held, in ms. */
  readonly leaseMs: number
  /** Fence of the newest record that the keeper of this host has. */
  readonly adoptedFence: number
  /** Fence of the newest record that this host knows of; a new fence is larger. */
  readonly highestFence: number
  /** Contents of the store to be ignored, because they are of no use or have delayed this host for long enough. */
  readonly ignored: {
    /** Fence of the record; 0: none. */
    readonly record: number
    /** Holder of the lease; empty: none. */
    readonly lease: string
    /** Fence of the pause; 0: none. */
    readonly pause: number
    readonly pace: boolean
  }
}
/** `ttlMs`: the time for which the record stays in the store. */
type PutRequest = SealedRecord & { readonly ttlMs: number }
export type Put =
  /** `hosts`: how many listened. */
  | { readonly verdict: 'stored'; readonly hosts: number }
  /** A later fence was given or written: the record is not stored. */
  | { readonly verdict: 'stale'; readonly record: StoredRecord | null }

interface Contents {
  readonly nowMs: number
  /** Fence of the record in the store; 0: there is none. */
  readonly fence: number
  /** The store holds a fence that no host can have written. It is ignored. */
  readonly isPlanted: boolean
  /** The record, if it is newer than `known`. */
  readonly record: StoredRecord | null
  /** Number of hosts that listened to the last record; 0: not known. */
  readonly hosts: number
}

export interface StoreListener {
  /** A host has just written this record. */
  onRecord(record: StoredRecord): void
  /** A host gave its lease up without a record. */
  onReleased(): void
  /** The subscription is up (again): what was written meanwhile was missed. */
  onSubscribed(): void
  /** Requests can be sent again. */
  onConnected?(): void
}

/** Every method rejects with a StoreError if the store fails or refuses. */
export interface Store {
  /** The server as people read it, such as `redis.example.com:6379`. */
  readonly server: string
  acquireLease(request: LeaseRequest): Promise<Lease>
  /** Writes the record, ends the lease and notifies the others. `isClientPaced`: a client's report was followed. */
  put(request: PutRequest & { readonly isClientPaced: boolean }): Promise<Put>
  /** Ends the lease without a record; with `pause` no host asks for that long, and the record says why. */
  release(pause: (SealedRecord & { readonly pauseMs: number }) | null): Promise<void>
  /** Writes the record if the store has an older one or none. Ends no lease and notifies no host. */
  restore(request: PutRequest): Promise<void>
  /** Reads the record, and writes `highestFence` as the lowest fence, which proves that the store can be written. */
  read(fences: { readonly known: number; readonly highestFence: number }): Promise<Contents>
  /** Listens until the signal is aborted. Reconnects by itself. */
  watch(listener: StoreListener, signal: AbortSignal): Promise<void>
  close(): void
}

/** `lost`: not reached, or takes no writes; `slow`: no answer in `share.timeout`; `denied`: wrong password or rights. */
export type StoreErrorKind = 'lost' | 'slow' | 'denied'

export class StoreError extends Error {
  readonly kind: StoreErrorKind
  constructor(kind: StoreErrorKind, message: string) {
    super(message)
    this.name = 'StoreError'
    this.kind = kind
  }
}
