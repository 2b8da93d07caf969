// A client of `ipc.sock` that does no more than the test says: raw bytes out, frames in.
import { connect } from 'node:net'
import { onTestFinished } from 'vitest'

export interface RawFrame {
  readonly type: string
  readonly data: Record<string, unknown>
}
export type RawClient = Awaited<ReturnType<typeof connectRaw>>

/** `reads: false`: never reads what it is sent. */
export async function connectRaw(path: string, { reads = true, allowHalfOpen = false } = {}) {
  const socket = connect({ path, allowHalfOpen })
  const frames: RawFrame[] = []
  const waiting = new Set<() => void>()
  const look = (): void => {
    for (const check of waiting) check()
  }
  let rest = ''
  let isClosed = false
  if (reads) {
    socket.setEncoding('utf8')
    socket.on('data', (chunk: string) => {
      const parts = (rest + chunk).split('\f')
      rest = parts.pop() ?? ''
      for (const part of parts) frames.push(JSON.parse(part) as RawFrame)
      look()
    })
  }
  socket.on('error', () => undefined)
  socket.on('close', () => {
    isClosed = true
    look()
  })
  onTestFinished(() => void socket.destroy())
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('error', reject)
  })
  const until = (isMet: () => boolean): Promise<void> =>
    new Promise((resolve) => {
      const check = (): void => {
        if (!isMet()) return
        waiting.delete(check)
        resolve()
      }
      waiting.add(check)
      check()
    })
  return {
    socket,
    frames,
    isClosed: () => isClosed,
    /** Sends text just as it is. */
    write: (text: string | Buffer) => void socket.write(text),
    /** Sends a request. */
    ask: (type: string, data: object) => void socket.write(`${JSON.stringify({ type, data })}\f`),
    /** Resolves with the frame of this index, from 0, or with undefined where the connection ended first. */
    frame: async (index: number): Promise<RawFrame | undefined> => {
      await until(() => frames.length > index || isClosed)
      return frames[index]
    },
    /** Resolves when the connection has ended. */
    closed: () => until(() => isClosed),
  }
}

/** One request on a connection of its own, and its answer. */
export async function askOnce(path: string, type: string, data: object): Promise<RawFrame | undefined> {
  const client = await connectRaw(path)
  client.ask(type, { id: 'once', ...data })
  const frame = await client.frame(0)
  client.socket.destroy()
  return frame
}
