// One bound for the memory of all connections together: from 20 MiB on nothing is read from anybody, and then
// the connections end that hold most and whose peers take nothing.
import { monotonicMs } from '../lib/clock.ts'

/** Nothing more is read from here on; what can still be answered then stays below twice as much. */
export const FULL_BYTES = 20 * 1024 * 1024
/** The time for which it may stay full, and for which a peer that is ended has taken no byte. */
export const PATIENCE_MS = 1_000
const EXAMINED_EVERY_MS = 100

/** A connection. */
export interface Holder {
  /** The bytes that it held when it was counted last. */
  held: number
  /** What its peer had taken, and since when it has taken no more. */
  mark: { readonly taken: number; readonly sinceMs: number } | null
}

/** The connections of one socket. */
export interface Party<Member extends Holder> {
  readonly members: () => Iterable<Member>
  readonly heldBy: (member: Member) => number
  readonly takenBy: (member: Member) => number
  /** Stops reading from each. */
  readonly hold: () => void
  /** Goes on with each. */
  readonly release: () => void
  readonly end: (member: Member) => void
}

export type Memory = ReturnType<typeof createMemory>

export function createMemory({ fullBytes = FULL_BYTES } = {}) {
  const parties = new Set<Party<Holder>>()
  let bytes = 0
  let fullSinceMs: number | null = null
  let timer: NodeJS.Timeout | undefined
  let release: NodeJS.Immediate | undefined

  function account(holder: Holder, held: number): void {
    bytes += held - holder.held
    holder.held = held
    if (fullSinceMs === null) {
      if (bytes >= fullBytes) fill()
    } else if (bytes < fullBytes) release ??= setImmediate(empty)
  }

  /** Without this, what a peer has read since the last count is counted still. */
  function countAll(): void {
    for (const party of parties)
      for (const member of party.members()) {
        const held = party.heldBy(member)
        bytes += held - member.held
        member.held = held
      }
  }

  function fill(): void {
    countAll()
    if (bytes < fullBytes) return
    fullSinceMs = monotonicMs()
    markAll(fullSinceMs)
    for (const { hold } of parties) hold()
    timer = setTimeout(examine, EXAMINED_EVERY_MS)
  }

  function empty(): void {
    release = undefined
    if (bytes >= fullBytes) return
    fullSinceMs = null
    clearTimeout(timer)
    for (const party of parties) {
      for (const member of party.members()) member.mark = null
      party.release()
    }
  }

  function markAll(nowMs: number): void {
    for (const { members, takenBy } of parties)
      for (const member of members()) {
        const taken = takenBy(member)
        if (member.mark?.taken !== taken) member.mark = { taken, sinceMs: nowMs }
      }
  }

  function examine(): void {
    const nowMs = monotonicMs()
    countAll()
    markAll(nowMs)
    if (bytes >= fullBytes) endStuck(nowMs)
    if (bytes < fullBytes) release ??= setImmediate(empty)
    timer = setTimeout(examine, EXAMINED_EVERY_MS)
  }

  /**
   * Of those that have taken nothing for 1 s, which is counted from the moment at which it was full, the one
   * that holds most ends first. Half is left, so that those that come after them find room.
   */
  function endStuck(nowMs: number): void {
    const stuck = [...parties].flatMap((party) =>
      [...party.members()]
        .filter(({ held, mark }) => held > 0 && mark !== null && nowMs - mark.sinceMs >= PATIENCE_MS)
        .map((member) => ({ party, member })),
    )
    for (const { party, member } of stuck.toSorted((one, other) => other.member.held - one.member.held)) {
      if (bytes < fullBytes / 2) return
      party.end(member)
      account(member, 0)
    }
  }

  return {
    /** Sets what a connection holds. */
    account,
    isFull: (): boolean => fullSinceMs !== null,
    join<Member extends Holder>(party: Party<Member>): void {
      parties.add(party as unknown as Party<Holder>)
    },
    /** In all, for the metrics and for tests. */
    bytes: (): number => bytes,
  }
}
