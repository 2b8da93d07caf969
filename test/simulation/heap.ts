// A queue of moments: the earliest comes out first, and of two at once the one that went in first.

export interface Heap {
  push(atMs: number, index: number): void
  pop(): { atMs: number; index: number } | undefined
}

interface Entry {
  atMs: number
  order: number
  index: number
}

/** A binary heap. */
export function createHeap(): Heap {
  const entries: Entry[] = []
  let order = 0
  const isBefore = (one: Entry, other: Entry): boolean =>
    one.atMs < other.atMs || (one.atMs === other.atMs && one.order < other.order)

  function swap(one: number, other: number): void {
    const entry = entries[one] as Entry
    entries[one] = entries[other] as Entry
    entries[other] = entry
  }
  function rise(from: number): void {
    for (let at = from; at > 0;) {
      const parent = (at - 1) >> 1
      if (!isBefore(entries[at] as Entry, entries[parent] as Entry)) return
      swap(at, parent)
      at = parent
    }
  }
  function sink(): void {
    for (let at = 0; ;) {
      let least = at
      for (const child of [2 * at + 1, 2 * at + 2]) {
        const entry = entries[child]
        if (entry !== undefined && isBefore(entry, entries[least] as Entry)) least = child
      }
      if (least === at) return
      swap(at, least)
      at = least
    }
  }

  return {
    push(atMs, index) {
      entries.push({ atMs, order: order++, index })
      rise(entries.length - 1)
    },
    pop() {
      const first = entries[0]
      const last = entries.pop()
      if (first === undefined || last === undefined) return undefined
      if (entries.length > 0) {
        entries[0] = last
        sink()
      }
      return { atMs: first.atMs, index: first.index }
    },
  }
}
