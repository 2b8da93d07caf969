// The last answer of the service that a host has, and its place in the order of all answers: that of (`at`, id),
// where `at` is the store's clock when the request was written. No I/O.
import { randomHex } from '../lib/crypto.ts'
import type { FetchOutcome } from '../token/outcome.ts'
import type { Answer, Contents } from './seal.ts'

/** Instants in `Ms` are of this host's boot clock, `at` is of the store's. */
interface Latest {
  readonly answer: Answer
  readonly id: string
  readonly by: string
  readonly at: number
  readonly sentMs: number
  readonly endsMs: number
  /** The keeper had this token before it was shared: a record of the same token is the same answer. */
  readonly isResumed?: boolean
}

/** A difference of the clocks that contradicts the former ones by more than this is a jump of the store's clock. */
const JUMP_MS = 200
/** The boot clock is in whole ms. */
const GRAIN_MS = 1
/** So many answers that this host has left for later ones are remembered. */
const MAX_LEFT = 100

export function createAnswers(bootMs: () => number) {
  let latest: Latest | null = null
  /** The answer that the keeper has. */
  let deliveredId: string | null = null
  /** Ids of answers that this host has left: it takes none of them again, whatever a clock says. */
  const left = new Set<string>()
  /** The store's clock minus the boot clock is between these. The lower one counts. */
  let [low, high] = [-Infinity, Infinity]

  function replace(next: Latest): void {
    if (latest !== null) left.add(latest.id)
    for (const id of left) if (left.size > MAX_LEFT) left.delete(id)
    latest = next
  }

  function latestOf({ at, id, by, lifeMs, ...answer }: Contents['record']): Latest {
    return { answer, id, by, at, sentMs: at - low, endsMs: at + lifeMs - low }
  }

  const isLater = (one: Contents['record'] | Latest, other: Contents['record'] | Latest): boolean =>
    one.at === other.at ? one.id > other.id : one.at > other.at

  return {
    latest: (): Latest | null => latest,
    /** The keeper lacks the latest answer. */
    isNew: (): boolean => latest !== null && latest.id !== deliveredId,
    delivered(): void {
      deliveredId = latest?.id ?? null
    },
    /** This moment on the store's clock. */
    storeMs: (): number => bootMs() + low,
    /** The store's clock showed `nowMs` between these moments: each look narrows the difference. */
    readClock(nowMs: number, beforeMs: number, afterMs: number): void {
      const bounds = [nowMs - afterMs - GRAIN_MS, nowMs - beforeMs + GRAIN_MS] as const
      low = Math.max(low, bounds[0])
      high = Math.min(high, bounds[1])
      if (low > high) [low, high] = bounds
    },
    /** This host got an answer, when `before` was the latest. Without the store's clock the next look places it. */
    learn(got: Omit<Latest, 'id' | 'at'>, before: Latest | null, hasClock: boolean): void {
      // Meanwhile a look has brought the answer to a later request.
      if (latest !== null && latest !== before && latest.sentMs > got.sentMs) return
      const at = hasClock ? Math.max(got.sentMs + low, (before?.at ?? -Infinity) + 1) : NaN
      replace({ ...got, id: randomHex(8), at })
    },
    /** Brings the record (null: none is of use) and the latest answer to one. Reports whether to put the latter. */
    meet(record: Contents['record'] | null): boolean {
      if (latest === null) {
        if (record !== null) latest = latestOf(record)
        return false
      }
      const at = latest.sentMs + low
      const hasJumped = Math.abs(at - latest.at) > JUMP_MS
      if (hasJumped || Number.isNaN(latest.at)) latest = { ...latest, at }
      if (record === null) return latest.endsMs > bootMs()
      const { answer, id, isResumed } = latest
      if (
        isResumed &&
        record.kind === 'ok' &&
        answer.kind === 'ok' &&
        record.accessToken === answer.accessToken
      ) {
        latest = latestOf(record)
        deliveredId = record.id
        return false
      }
      if (record.id === id && !hasJumped) {
        latest = { ...latest, endsMs: Math.min(latest.endsMs, record.at + record.lifeMs - low) }
        return false
      }
      if (record.id !== id && isLater(record, latest)) {
        if (!left.has(record.id)) {
          replace(latestOf(record))
          return false
        }
        // A clock has jumped. Once for each answer, or two hosts that are both sure would go on for ever.
        left.delete(record.id)
        latest = { ...latest, at: record.at + 1, sentMs: record.at + 1 - low }
      }
      return latest.endsMs > bootMs()
    },
    /** The latest answer as a record, and for how long; null: there is none any more. */
    record(): { content: Contents['record']; keepMs: number } | null {
      if (latest === null || Number.isNaN(latest.at) || latest.endsMs <= bootMs()) return null
      const { answer, id, by, at, endsMs } = latest
      return { content: { ...answer, at, id, by, lifeMs: endsMs + low - at }, keepMs: endsMs - bootMs() }
    },
    /** The latest answer, which another host got, as the keeper takes it. */
    outcome(): FetchOutcome {
      const { answer, by, sentMs, endsMs } = latest!
      if (answer.kind === 'permanent') return { ...answer, askedBy: by }
      return { ...answer, lifeMs: endsMs - sentMs, ageMs: bootMs() - sentMs, askedBy: by }
    },
  }
}
