// The known name nearest to a mistyped one.

/** The candidate with the fewest edits, case aside; undefined if none is near enough to be meant. */
export function nearestName(typed: string, candidates: readonly string[]): string | undefined {
  if (typed.length > 64) return undefined
  const [nearest] = candidates
    .map((name) => ({ name, edits: editDistance(typed.toLowerCase(), name.toLowerCase()) }))
    .toSorted((one, other) => one.edits - other.edits)
  if (nearest === undefined) return undefined
  return nearest.edits <= Math.max(2, Math.floor(nearest.name.length / 3)) ? nearest.name : undefined
}

/** Levenshtein's distance. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (let i = 1; i <= from.length; i++) {
    const above = row
    row = [i]
    for (let j = 1; j <= to.length; j++) {
      const substituted = above[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1)
      row.push(Math.min(substituted, above[j]! + 1, row[j - 1]! + 1))
    }
  }
  return row[to.length]!
}
