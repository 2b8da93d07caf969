// One connection over which frames go, from its beginning to its end.
import { createConnection, type Socket } from 'node:net'
import { isRecord, parseJson } from '../lib/input.ts'
import { CONNECTION_IDLE_MS, FRAME_END } from '../protocol.ts'
import { badRequest, type Disconnect } from './errors.ts'

/** One JSON object, ended by a form feed. JSON never holds that byte: in a string it is written `\f`. */
export interface Frame {
  readonly type: string
  readonly data: Readonly<Record<string, unknown>>
}

/** Enough for every answer: a token of 16 KiB, or the status with many files. */
const MAX_FRAME_LENGTH = 1024 * 1024
/** Idle connections are closed before the daemon does it: no request must meet one that is being closed. */
export const IDLE_MS = CONNECTION_IDLE_MS / 2

interface Events {
  onConnect(): void
  /** What was written has gone out. */
  onDrain(): void
  /**
   * A frame that repeats an id. Returns whether it says why the connection ends. What it throws ends the
   * connection, and is the error.
   */
  onAnswer(id: string, frame: Frame): boolean
  onIdle(): void
  /** Called once, at the end, whether it was ever connected or not. */
  onClose(disconnect: Disconnect): void
}

/** Connects to the Unix socket. Throws for a path that can be none. */
export function connectTo(path: string, events: Events): Socket {
  const socket = createConnection({ path })
  const disconnect: Disconnect = { path }
  let rest = ''
  socket.setEncoding('utf8')
  socket.setTimeout(IDLE_MS)
  socket.on('connect', () => {
    disconnect.wasConnected = true
    events.onConnect()
  })
  socket.on('drain', () => events.onDrain())
  socket.on('timeout', () => events.onIdle())
  socket.on('data', (text: string) => {
    disconnect.wasAnswered = true
    const texts = (rest + text).split(FRAME_END)
    rest = texts.pop() ?? ''
    try {
      for (const { type, data: fields } of texts.map(frameOf)) {
        const { id, ...data } = fields
        const isReason = typeof id === 'string' ? events.onAnswer(id, { type, data }) : type === 'fault'
        if (isReason) disconnect.closeFault = data
      }
      if (rest.startsWith('HTTP/1.'))
        throw badRequest(`The socket ${path} speaks HTTP: name ipc.sock, which is beside http.sock.`)
      if (rest.length > MAX_FRAME_LENGTH) throw new Error(`A frame is longer than ${MAX_FRAME_LENGTH}`)
    } catch (error) {
      socket.destroy(error as Error)
    }
  })
  socket.on('error', (error) => {
    disconnect.error = error
  })
  socket.on('close', () => events.onClose(disconnect))
  return socket
}

export function writeFrame(socket: Socket, id: string, { type, data }: Frame): void {
  socket.write(`${JSON.stringify({ type, data: { id, ...data } })}${FRAME_END}`)
}

/** Throws a sentence without a part of the text, which may hold anything. */
function frameOf(text: string): Frame {
  const frame = parseJson(text)
  if (!isRecord(frame) || typeof frame['type'] !== 'string' || !isRecord(frame['data']))
    throw new Error('what it sends is no frame of kyc-tokend')
  return frame as unknown as Frame
}
