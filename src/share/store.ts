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

/** What the store holds after a step; null: nothing. */
export interface Held {
  /** What its clock showed, in ms. */
  readonly nowMs: number
  readonly record: string | null
  /** The id of the attempt that asks, or a text that says why no host is to ask. */
  readonly lease: string | null
  readonly leaseLeftMs: number
  /** Hosts that listen. */
  readonly hosts: number
}

/** A text that the caller judged to be of no use: a key that still holds it is deleted first; null: none. */
interface Dropping {
  readonly drop: string | null
}

/** Every method rejects with a StoreError if the store fails or refuses. */
export interface Store {
  /** The server as people read it, such as `redis.example.com:6379`. */
  readonly server: string
  /** Also proves that the store takes writes. */
  poll(request: Dropping): Promise<Held>
  /** Takes the lease for `id`, unless there is a record larger than `known`, or another lease. */
  acquire(request: Dropping & { known: Pair; id: string; leaseMs: number }): Promise<Held>
  /**
   * Writes the record if it is the largest. If the lease is that of `id`, or there is none, `kept` takes its
   * place. Then sends a message to all that listen.
   */
  write(request: Dropping & { id: string; record: Expiring | null; kept: Expiring | null }): Promise<Held>
  /**
   * Calls the function until the store is closed: something was written (`message`), or a connection was made
   * or lost, and a poll says which. Reconnects by itself.
   */
  listen(call: (what: 'message' | 'connection') => void): void
  close(): void
}

/** `lost`: not reached, slow, of no use, or takes no writes; `denied`: wrong password or rights. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  readonly kind: 'lost' | 'denied'
  constructor(kind: StoreError['kind'], message: string) {
    super(message)
    this.kind = kind
  }
}
