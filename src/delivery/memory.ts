// One bound for the memory of all connections together: from 20 MiB on nothing is read from anybody, and then
// the connections end that hold most and whose peers read nothing.
import { monotonicMs } from '../lib/clock.ts'

/** Nothing more is read from here on; what can still be answered then stays below twice as much. */
export const FULL_BYTES = 20 * 1024 * 1024
/** The time for which it may stay full, and for which a peer that is ended has read no byte. */
export const STUCK_AFTER_MS = 1_000
const EXAMINED_EVERY_MS = 100

/** A connection. */
export interface Holder {
  /** The bytes that it held when it was counted last. */
  held: number
  /** The bytes that its peer had read, and since when it has read no more. */
  mark: { readonly bytes: number; readonly sinceMs: number } | null
}

/** The connections of one socket. */
interface ConnectionSet<Member extends Holder> {
  readonly members: () => Iterable<Member>
  readonly heldBy: (member: Member) => number
  readonly readByPeer: (member: Member) => number
  /** Stops reading from each. */
  readonly pause: () => void
  /** Goes on with each. */
  readonly resume: () => void
  readonly end: (member: Member) => void
}

export type Memory = ReturnType<typeof createMemory>

export function createMemory({ fullBytes = FULL_BYTES } = {}) {
  const sets = new Set<ConnectionSet<Holder>>()
  let bytes = 0
  let fullSinceMs: number | null = null
  let timer: NodeJS.Timeout | undefined
  let emptying: NodeJS.Immediate | undefined

  function setHeld(holder: Holder, held: number): void {
    bytes += held - holder.held
    holder.held = held
    if (fullSinceMs === null) {
      if (bytes >= fullBytes) fill()
    } else if (bytes < fullBytes) emptying ??= setImmediate(empty)
  }

  /** What a peer reads is no event: what it has read since the last count is still counted as held. */
  function countAll(): void {
    for (const set of sets)
      for (const member of set.members()) {
        const held = set.heldBy(member)
        bytes += held - member.held
        member.held = held
      }
  }

  function fill(): void {
    countAll()
    if (bytes < fullBytes) return
    fullSinceMs = monotonicMs()
    markAll(fullSinceMs)
    for (const { pause } of sets) pause()
    timer = setTimeout(examine, EXAMINED_EVERY_MS)
  }

  function empty(): void {
    emptying = undefined
    if (bytes >= fullBytes) return
    fullSinceMs = null
    clearTimeout(timer)
    for (const set of sets) {
      for (const member of set.members()) member.mark = null
      set.resume()
    }
  }

  function markAll(nowMs: number): void {
    for (const { members, readByPeer } of sets)
      for (const member of members()) {
        const read = readByPeer(member)
        if (member.mark?.bytes !== read) member.mark = { bytes: read, sinceMs: nowMs }
      }
  }

  function examine(): void {
    const nowMs = monotonicMs()
    countAll()
    markAll(nowMs)
    if (bytes >= fullBytes) endStuck(nowMs)
    if (bytes < fullBytes) emptying ??= setImmediate(empty)
    timer = setTimeout(examine, EXAMINED_EVERY_MS)
  }

  /**
   * Of those that have read nothing for 1 s, which is counted from the moment at which it was full, the one
   * that holds most ends first. Half is left, so that those that come after them find room.
   */
  function endStuck(nowMs: number): void {
    const stuck = [...sets].flatMap((set) =>
      [...set.members()]
        .filter(({ held, mark }) => held > 0 && mark !== null && nowMs - mark.sinceMs >= STUCK_AFTER_MS)
        .map((member) => ({ set, member })),
    )
    for (const { set, member } of stuck.toSorted((one, other) => other.member.held - one.member.held)) {
      if (bytes < fullBytes / 2) return
      set.end(member)
      setHeld(member, 0)
    }
  }

  return {
    /** Sets what a connection holds. */
    setHeld,
    isFull: (): boolean => fullSinceMs !== null,
    join<Member extends Holder>(set: ConnectionSet<Member>): void {
      sets.add(set as unknown as ConnectionSet<Holder>)
    },
    /** In all, for the metrics and for tests. */
    bytes: (): number => bytes,
  }
}
