// Reads a stream to its end, and no more of it than fits.

/**
 * The bytes of the stream, or undefined where they are more than `maxBytes`: then up to `maxDiscardedBytes` (by
 * default none) are read and dropped, and what follows is left unread, which destroys most streams. Rejects where
 * the stream fails.
 */
export async function readLimited(
  stream: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  { maxBytes, maxDiscardedBytes = 0 }: { maxBytes: number; maxDiscardedBytes?: number },
): Promise<Buffer<ArrayBuffer> | undefined> {
  const chunks: Uint8Array[] = []
  let length = 0
  for await (const chunk of stream) {
    length += chunk.length
    if (length <= maxBytes) chunks.push(chunk)
    else if (length > maxBytes + maxDiscardedBytes) return undefined
  }
  return length > maxBytes ? undefined : Buffer.concat(chunks)
}
