// A queue of moments: the earliest comes out first, and of two at once the one that went in first.

interface Entry {
  readonly atMs: number
  readonly order: number
  readonly index: number
}

/** A binary heap. */
export function createHeap() {
  const entries: Entry[] = []
  let pushes = 0
  const isBefore = (one: Entry, other: Entry): boolean =>
    one.atMs < other.atMs || (one.atMs === other.atMs && one.order < other.order)

  function push(atMs: number, index: number): void {
    const entry: Entry = { atMs, order: pushes++, index }
    let at = entries.length
    while (at > 0) {
      const parent = entries[(at - 1) >> 1]!
      if (!isBefore(entry, parent)) break
      entries[at] = parent
      at = (at - 1) >> 1
    }
    entries[at] = entry
  }

  function pop(): Entry | undefined {
    const [first] = entries
    const last = entries.pop()
    if (last === undefined || entries.length === 0) return first
    let at = 0
    for (let child = 1; child < entries.length; child = 2 * at + 1) {
      const sibling = entries[child + 1]
      if (sibling !== undefined && isBefore(sibling, entries[child]!)) child += 1
      if (!isBefore(entries[child]!, last)) break
      entries[at] = entries[child]!
      at = child
    }
    entries[at] = last
    return first
  }

  return { push, pop }
}
