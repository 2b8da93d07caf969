// The interface of the shared store: one record, one lease and one channel for each account. It holds texts
// that it cannot read.

/** The order of answers: by fence, then by id. */
export interface Pair {
  /** At least the store's clock when the request was sent, in ms. */
  readonly fence: number
  /** Of the attempt: 16 random hex digits. */
  readonly id: string
}

/** A text with the time for which the store keeps it. */
export interface Expiring {
  readonly text: string
  readonly keepMs: number
}

/** Every answer says what the store's clock showed, in ms. */
interface Dated {
  readonly nowMs: number
}
export interface Looked extends Dated {
  /** Hosts that listen. */
  readonly hosts: number
  /** The record has the pair that was given. */
  readonly isKnown: boolean
  /** Any other record; null: there is none. */
  readonly record: string | null
}
export type Acquired = Dated &
  (
    | { readonly verdict: 'newer'; readonly record: string }
    /** Another attempt asks (the text is its id), or no host is to ask (the text says why). */
    | { readonly verdict: 'taken'; readonly lease: string; readonly leftMs: number }
    | { readonly verdict: 'yours' }
  )
export interface Written extends Dated {
  /** The largest record; null: there is none. */
  readonly record: string | null
}

/** A text that the caller judged to be of no use: a key that still holds it is deleted first; null: none. */
interface Dropping {
  readonly drop: string | null
}

export interface StoreListener {
  /** Something was written. */
  onMessage(): void
  /** A connection was made or lost: a look says which. */
  onConnection(): void
}

/** Every method rejects with a StoreError if the store fails or refuses. */
export interface Store {
  /** The server as people read it, such as `redis.example.com:6379`. */
  readonly server: string
  /** Resolves when the first connection was made or has failed, after `share.timeout` at the latest. */
  readonly contact: Promise<unknown>
  /** Also proves that the store takes writes. */
  look(request: Dropping & { readonly known: Pair }): Promise<Looked>
  /** Takes the lease, unless there is a record larger than `known`, or another lease. */
  acquire(
    request: Dropping & { readonly known: Pair; readonly id: string; readonly leaseMs: number },
  ): Promise<Acquired>
  /**
   * Writes the record if it is the largest. Ends the lease of this id, or replaces it, or none, by the text
   * that is kept. Then tells all that listen.
   */
  write(
    request: Dropping & {
      readonly id: string
      readonly record: Expiring | null
      readonly kept: Expiring | null
    },
  ): Promise<Written>
  /** Listens until the signal is aborted. Reconnects by itself. */
  watch(listener: StoreListener, signal: AbortSignal): Promise<void>
  close(): void
}

/** `lost`: not reached, slow, of no use, or takes no writes; `denied`: wrong password or rights. */
export type StoreErrorKind = 'lost' | 'denied'

export class StoreError extends Error {
  readonly kind: StoreErrorKind
  constructor(kind: StoreErrorKind, message: string) {
    super(message)
    this.name = 'StoreError'
    this.kind = kind
  }
}
