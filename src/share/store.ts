// The interface of the shared store: one record, one lease and one channel for each account. It moves sealed boxes and opens none.
import type { Cause } from '../token/outcome.ts'

/** The surroundings of a box in the store. The box opens only under exactly these values. */
export interface BoxHead {
  /** Orders records: a later one has a larger fence. */
  readonly fence: number
  /** When the asker had the answer, in ms on the store's clock. */
  readonly atMs: number
  /** No host asks the service before this moment, in ms on the store's clock; 0: no such wait. */
  readonly notBeforeMs: number
}
export interface Box extends BoxHead {
  readonly box: string
}
/** A record as it lies in the store, with the store's clock at the moment it was read. */
export interface StoredBox extends Box {
  readonly nowMs: number
}

/** The store's answer to a host that wants to ask the service. */
export type Taken =
  /** There is a record that this host does not have. No request is needed. */
  | { readonly verdict: 'newer'; readonly record: StoredBox }
  /** Another host asks now. */
  | { readonly verdict: 'taken'; readonly waitMs: number }
  /** The service asked the fleet to wait, or refused it: no host asks before `notBeforeMs` of the record. */
  | { readonly verdict: 'held'; readonly waitMs: number; readonly record: StoredBox | null }
  /** A host could just not reach the service; the record says why. */
  | { readonly verdict: 'paused'; readonly waitMs: number; readonly record: StoredBox | null }
  /** A client's report was just followed. */
  | { readonly verdict: 'paced'; readonly waitMs: number }
  /** This host asks, and writes under this fence. */
  | { readonly verdict: 'yours'; readonly fence: number; readonly nowMs: number }

export interface TakeRequest {
  readonly cause: Cause
  /** For how long the lease is held at most, in ms. */
  readonly leaseMs: number
  /** Fence of the newest record that this host goes by. */
  readonly seen: number
  /** Fence of the newest record that this host knows of; a new fence is larger. */
  readonly floor: number
  /** Fence of a record that does not open or is over; it counts as not there. 0: none. */
  readonly ignored: number
}
export interface PutRequest extends Box {
  /** The record stays in the store for so long. */
  readonly ttlMs: number
}
export type Put =
  /** `hosts`: how many listened. */
  | { readonly verdict: 'stored'; readonly hosts: number }
  /** A later fence was given or written: the box is not stored. */
  | { readonly verdict: 'stale'; readonly record: StoredBox | null }

export interface Look {
  readonly nowMs: number
  /** Fence of the record in the store; 0: there is none. */
  readonly fence: number
  /** The last fence that was given; 0: none. */
  readonly given: number
  /** The record, where it is newer than `known`. */
  readonly record: StoredBox | null
  /** Number of hosts that listened to the last record; 0: not known. */
  readonly hosts: number
}

export interface StoreListener {
  /** A host has just written this record. */
  onRecord(record: StoredBox): void
  /** A host gave its lease up without a record. */
  onReleased(): void
  /** The subscription is up (again): what was written meanwhile was missed. */
  onSubscribed(): void
  /** Requests can be sent again. */
  onConnected?(): void
}

/** Every method rejects with a StoreError where the store does not do what it is asked. */
export interface Store {
  /** The server as people read it, such as `redis.example.com:6379`. */
  readonly server: string
  take(request: TakeRequest): Promise<Taken>
  /** Writes the record, ends the lease and notifies the others. `isClientPaced`: a client's report was followed. */
  put(request: PutRequest & { readonly isClientPaced: boolean }): Promise<Put>
  /** Ends the lease without a record; with `pause` no host asks for that long, and the box says why. */
  release(pause: (Box & { readonly pauseMs: number }) | null): Promise<void>
  /** Writes the record where the store has an older one or none. Ends no lease and notifies no host. */
  restore(request: PutRequest): Promise<void>
  /** Reads the record and proves that the store can be written: `known` raises the floor of its fences. */
  look(known: number): Promise<Look>
  /** Listens until the signal is aborted. Reconnects by itself. */
  watch(listener: StoreListener, signal: AbortSignal): Promise<void>
  /** Deletes every key of the account. */
  forget(): Promise<void>
  /** Closes the connections. */
  close(): void
}

/**
 * `lost`: not reached, or it refuses to write; `slow`: no answer in `share.timeout`; `denied`: password or rights are
 * wrong.
 */
export type StoreErrorKind = 'lost' | 'slow' | 'denied'

export class StoreError extends Error {
  readonly kind: StoreErrorKind
  constructor(kind: StoreErrorKind, message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = 'StoreError'
    this.kind = kind
  }
}
