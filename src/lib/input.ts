// Input of others: streams that may be too long, and JSON of any shape.

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
  let length = 0
  for await (const chunk of stream) {
    const end = length + chunk.length
    if (end > maxBytes) return undefined
    if (end > bytes.length)
      bytes = Buffer.concat([bytes], Math.min(maxBytes, Math.max(end, 2 * bytes.length)))
    bytes.set(chunk, length)
    length = end
  }
  return bytes.subarray(0, length)
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
