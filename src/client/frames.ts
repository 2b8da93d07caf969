// Frames on a byte stream: one JSON object {"type", "data"} each, ended by a form feed.

export interface Frame {
  readonly type: string
  readonly data: Readonly<Record<string, unknown>>
}

/** JSON never holds this byte: in a string a form feed is written `\f`, between values it is not allowed. */
const END = 0x0c

/** The bytes of a frame, as text. */
export function encodeFrame(frame: Frame): string {
  return `${JSON.stringify(frame)}\f`
}

/**
 * A reader that is given the stream chunk by chunk and gives back the frames that have become whole. Throws where
 * a frame is longer than `maxBytes` or is none; the stream is then of no more use.
 */
export function createFrameReader({ maxBytes }: { maxBytes: number }): (chunk: Buffer) => Frame[] {
  let parts: Buffer[] = []
  let length = 0
  const keep = (part: Buffer): void => {
    parts.push(part)
    length += part.length
    if (length > maxBytes) throw new Error(`A frame is longer than ${maxBytes} bytes`)
  }
  return (chunk) => {
    const frames: Frame[] = []
    let from = 0
    for (let at = chunk.indexOf(END); at !== -1; at = chunk.indexOf(END, from)) {
      keep(chunk.subarray(from, at))
      frames.push(frameOf(Buffer.concat(parts, length).toString()))
      parts = []
      length = 0
      from = at + 1
    }
    if (from < chunk.length) keep(chunk.subarray(from))
    return frames
  }
}

function frameOf(text: string): Frame {
  const value: unknown = JSON.parse(text)
  const { type, data } = (value ?? {}) as { type?: unknown; data?: unknown }
  if (typeof type !== 'string' || typeof data !== 'object' || data === null)
    throw new Error('A frame is not an object with type and data')
  return { type, data: data as Frame['data'] }
}
