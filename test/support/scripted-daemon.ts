// A daemon whose answers the test writes: frames on a Unix socket, and a record of what was asked.
import { createHash } from 'node:crypto'
import { rmSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'

interface AskedFrame {
  readonly type: string
  readonly data: Record<string, unknown>
}
export interface Asking extends AskedFrame {
  /** Sends a frame that repeats the id. */
  readonly answer: (type: string, data: object) => void
  /** Sends whatever text. */
  readonly write: (text: string | Buffer) => void
  /** Cuts this connection. */
  readonly cut: () => void
}
export type ScriptedDaemon = Awaited<ReturnType<typeof startScriptedDaemon>>

/** The fields of a token result, for this token. */
export function tokenFields(accessToken: string, fields: object = {}): Record<string, unknown> {
  return {
    accessToken,
    tokenType: 'Bearer',
    header: 'Authorization',
    prefix: 'Bearer ',
    obtainedAt: '2030-01-01T00:00:00.000Z',
    expiresAt: '2030-01-01T01:00:00.000Z',
    expirySource: 'jwt',
    baseUrl: 'https://api.example.com',
    refusedBy: [401],
    refreshAt: '2030-01-01T00:40:00.000Z',
    generation: 1,
    fingerprint: createHash('sha256').update(accessToken).digest('hex').slice(0, 16),
    state: 'ready',
    stale: false,
    ...fields,
  }
}

/** Started already. `script` is called with each request. */
export async function startScriptedDaemon(path: string, script: (asking: Asking) => void) {
  const asked: AskedFrame[] = []
  const sockets = new Set<Socket>()
  const subscribers = new Map<Socket, string>()
  let made = 0
  const server = createServer((socket) => {
    made += 1
    sockets.add(socket)
    let rest = ''
    socket.on('error', () => undefined)
    socket.on('close', () => {
      sockets.delete(socket)
      subscribers.delete(socket)
    })
    socket.on('data', (chunk) => {
      const frames = (rest + chunk.toString()).split('\f')
      rest = frames.pop() ?? ''
      for (const text of frames) {
        const frame = JSON.parse(text) as AskedFrame
        const { id } = frame.data
        asked.push(frame)
        if (frame.type === 'token.subscribe') subscribers.set(socket, String(id))
        script({
          ...frame,
          answer: (type, data) => socket.write(`${JSON.stringify({ type, data: { id, ...data } })}\f`),
          write: (text_) => socket.write(text_),
          cut: () => socket.destroy(),
        })
      }
    })
  })
  const start = (): Promise<void> =>
    new Promise((resolve, reject) => {
      server.once('error', reject)
      server.listen(path, resolve)
    })
  await start()
  return {
    path,
    /** The requests, oldest first. */
    asked: asked as readonly AskedFrame[],
    /** Connections that were ever made, and that are open now. */
    connections: {
      get made() {
        return made
      },
      get open() {
        return sockets.size
      },
    },
    /** Sends to every subscriber. */
    publish: (type: string, data: object): void => {
      for (const [socket, id] of subscribers)
        socket.write(`${JSON.stringify({ type, data: { id, ...data } })}\f`)
    },
    /** Ends all connections once what was written is sent. */
    cutAll: (): void => {
      for (const socket of sockets) socket.end()
    },
    start,
    /** Cuts all connections and takes the socket away; `start` makes it again. */
    stop: async (): Promise<void> => {
      if (!server.listening) return
      const closed = new Promise((resolve) => server.close(resolve))
      for (const socket of sockets) socket.destroy()
      await closed
      rmSync(path, { force: true })
    },
  }
}
