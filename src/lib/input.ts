// Input of others: streams that may be too long, JSON of any shape, and mistyped names.

/**
 * The bytes of the stream; undefined if they are more than `maxBytes`: then the rest is left unread, which
 * destroys most streams. Rejects if the stream fails.
 */
export async function readLimited(
  stream: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  { maxBytes }: { maxBytes: number },
): Promise<Buffer<ArrayBuffer> | undefined> {
  // Not a list of the chunks: each could be one byte, and keep alive all that it was received with.
  let bytes = Buffer.alloc(0)
  for await (const chunk of stream) {
    if (bytes.length + chunk.length > maxBytes) return undefined
    bytes = Buffer.concat([bytes, chunk])
  }
  return bytes
}

/** Reports whether the value is an object with fields, and no list. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Undefined if the text is no JSON: torn or foreign. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The fields of a JSON object; undefined: the text is none. */
export function parseRecord(text: string): Record<string, unknown> | undefined {
  const value = parseJson(text)
  return isRecord(value) ? value : undefined
}

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
