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

/** The fields of a JSON object; undefined: the text is none, because it is torn or foreign. */
export function parseRecord(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return isRecord(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** The candidate that is most like the name; undefined if none is near enough to be meant. */
export function nearestName(typed: string, candidates: readonly string[]): string | undefined {
  const [nearest] = candidates
    .map((name) => ({ name, likeness: likenessOf(typed, name) }))
    .toSorted((one, other) => other.likeness - one.likeness)
  return nearest !== undefined && nearest.likeness > 0.2 ? nearest.name : undefined
}

/** The share of their pairs of neighbouring letters that two names have in common (Dice's coefficient). */
function likenessOf(one: string, other: string): number {
  const [some, others] = [pairsOf(one), pairsOf(other)]
  const common = some.filter((pair) => others.includes(pair))
  return (2 * common.length) / (some.length + others.length)
}

function pairsOf(name: string): string[] {
  const letters = name.toLowerCase().split('')
  return letters.map((letter, at) => `${letters[at - 1] ?? ''}${letter}`)
}
