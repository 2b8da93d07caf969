// Hands each new record to the keeper exactly once: by `offer` where the keeper is idle, else as the outcome of its next or present attempt.
import type { Log } from '../lib/log.ts'
import type { FetchOutcome } from '../token/outcome.ts'
import { askerOf, grantOf, outcomeOf, recordAgeMs, type KnownRecord, type Records } from './records.ts'
import type { ShareCounts } from './share-counts.ts'
import type { StoredBox } from './store.ts'

/** The way on which a record came. */
export type How = 'push' | 'look' | 'take'

export interface Adoption {
  /** Fence of the newest record that the keeper has. */
  seen(): number
  /** A record has come. Reports whether it is of use. */
  receive(stored: StoredBox, how: How): boolean
  /** There is a record that the keeper does not have. */
  isPending(): boolean
  /** The outcome for an attempt of the keeper's; the keeper has it from then on. */
  take(): FetchOutcome | null
  /** An attempt of the keeper's begins: records wait for it, and it is woken. */
  begin(wake: () => void): void
  /** Wakes the attempt that is under way, if any. */
  wake(): void
  /** It is over. */
  end(): void
  /** The keeper has this record without its being handed over: it is this host's own. */
  own(known: KnownRecord): void
  /** Offers again what the keeper could not take. */
  offer(): void
}

export function createAdoption(options: {
  records: Records
  counts: ShareCounts
  log: Log
  /** The name of this host. */
  host: string
  bootMs: () => number
  /** Until when the token that the keeper holds can be used; null: it holds none. */
  usableUntilMs: () => number | null
  /** The keeper's `offer`: false where it cannot take an outcome now. */
  offer: (outcome: FetchOutcome) => boolean
  /** Fence of what the keeper holds at the start. */
  seen: number
  /** The keeper has a record of another host that asked by itself. */
  onAskedAlone: (by: string) => void
  /** This host has an outcome of its own that is not in the store: which of the two is newer is not known yet. */
  isUndecided: () => boolean
  /** A record is left that the keeper could not take. */
  onPending: () => void
}): Adoption {
  const { records, counts, log, host, bootMs, usableUntilMs, offer } = options
  const { isUndecided, onAskedAlone, onPending } = options
  let { seen } = options
  let how: How = 'push'
  let attempt: { wake(): void } | null = null

  function isPending(): boolean {
    return (records.newest()?.head.fence ?? 0) > seen
  }

  /** A failure comes second where this host has no token and the record carries one. */
  function tokenFirst(known: KnownRecord): FetchOutcome | null {
    const usableMs = usableUntilMs()
    if (known.record.kind === 'ok' || (usableMs !== null && usableMs > bootMs())) return null
    const token = records.token()
    return token && grantOf(token, { ...askerOf(known.record, host), ageMs: token.ageMs })
  }

  function next(): { outcome: FetchOutcome; isLast: boolean } | null {
    const known = isPending() && !isUndecided() ? records.newest() : null
    if (known === null) return null
    const first = tokenFirst(known)
    return first === null
      ? { outcome: outcomeOf(known, { host, bootMs: bootMs() }), isLast: true }
      : { outcome: first, isLast: false }
  }

  /** Raised only when the keeper has the record: a record that it could not take is offered again. */
  function adopted(isLast: boolean): void {
    const known = records.newest()
    if (!isLast || known === null) return
    seen = known.head.fence
    counts.adopted(how)
    const { fence } = known.head
    const { by, isAlone } = known.record
    if (isAlone === true && by !== host) onAskedAlone(by)
    const ageMs = Math.round(recordAgeMs(known, bootMs()))
    log('debug', 'Took over what another host was answered', {
      event: 'share-adopted',
      fence,
      by,
      ageMs,
      how,
    })
  }

  function tryOffer(): void {
    if (attempt !== null) return
    for (let given = next(); given !== null; given = next()) {
      if (!offer(given.outcome)) return onPending()
      adopted(given.isLast)
    }
  }

  return {
    seen: () => seen,
    receive(stored, by) {
      const reception = records.receive(stored)
      if (reception === 'unreadable') counts.unreadable(stored.fence)
      if (reception !== 'newer') return false
      how = by
      if (attempt !== null) attempt.wake()
      else tryOffer()
      return true
    },
    isPending,
    take() {
      const given = next()
      if (given === null) return null
      adopted(given.isLast)
      return given.outcome
    },
    begin(wake) {
      attempt = { wake }
    },
    wake() {
      attempt?.wake()
    },
    end() {
      attempt = null
      if (isPending()) onPending()
    },
    own(known) {
      // A later record of another host may have come meanwhile.
      if (known.head.fence < records.floor()) return
      records.add(known)
      seen = known.head.fence
    },
    offer: tryOffer,
  }
}
