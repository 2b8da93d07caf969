// A connection to the process behind a Unix socket: made while it is used, and made again when that process restarts.
import { createConnection, type Socket } from 'node:net'
import { createFrameReader, encodeFrame, type Frame } from './frames.ts'
import { monotonicMs } from '../lib/monotonic.ts'

/** A request and its answers. It is sent again on each new connection for as long as it is open. */
export interface Request {
  /** Its id, where sending it again is to replace the one before; otherwise it gets one of its own. */
  readonly id?: string
  /** For this request alone, connects may become rare: no caller waits for its answer. */
  readonly isBackground?: boolean
  /** The frame to send. Called again for each new connection, so that the time left can be computed again. */
  frame(): Frame
  /** Called with each frame that repeats the id. */
  onAnswer(frame: Frame): void
  /** Called when no connection could be made or the connection was lost. True: send again on a new one. False: it is over. */
  onDisconnect(disconnect: Disconnect): boolean
}
export interface Disconnect {
  /** The socket's path, or undefined where there was none to be found. */
  readonly path: string | undefined
  /** The system's error, a broken frame, or why no path was given; undefined where the other side just closed. */
  readonly error: Error | undefined
  /** The last frame on the lost connection that answered no request: why it was closed. */
  readonly closeFrame: Frame | undefined
  /** True: this connection had been made; any ever was. */
  readonly wasConnected: boolean
  readonly wasEverConnected: boolean
  /** The connection was closed by its owner. */
  readonly isClosed: boolean
}

export interface ReconnectingConnection {
  /** Opens a request; returns a function that ends it. Its callbacks are never called before this returns. */
  open(request: Request): () => void
  /** Ends all requests (`onDisconnect` with `isClosed`) and the connection. */
  close(): void
}

/**
 * Time between two connects: it doubles from the first to the largest, and each is drawn from its upper half. Only
 * time paces them, never the number of requests.
 */
const RECONNECT_DELAY_MS = { first: 50, largest: 200, largestInBackground: 2_000 }
/** A process that has not read so many bytes is not going to: the connection is made again. */
const MAX_UNSENT_BYTES = 256 * 1024

/**
 * A connection that is made for the first request. While no request is open it does not keep the process alive, and
 * nothing that the other side sends is kept beyond one frame of `maxFrameBytes`.
 */
export function createReconnectingConnection(options: {
  /** The socket's path; called before each connect, because a restarted process may have another. What it throws is a disconnect. */
  findPath: () => string | undefined
  maxFrameBytes: number
  /** A connection without requests is closed after this time. */
  idleMs: number
  random: () => number
  /** Called with every answer, also one to a request that is over. */
  onAnswer?: (frame: Frame) => void
}): ReconnectingConnection {
  const requests = new Map<string, Request>()
  let socket: Socket | undefined
  let isConnected = false
  let wasEverConnected = false
  let isConnecting = false
  let pause: NodeJS.Timeout | undefined
  let last: { disconnect: Disconnect; atMs: number } | undefined
  /** Connects since the last answer. */
  let fruitless = 0
  let lastId = 0

  function connect(): void {
    endPause()
    isConnecting = true
    let path: string | undefined
    let error: Error | undefined
    let closeFrame: Frame | undefined
    try {
      path = options.findPath()
    } catch (fault) {
      error = fault as Error
    }
    if (path === undefined) {
      setImmediate(() => onDisconnect({ path, error, closeFrame, wasConnected: false }))
      return
    }
    const made = createConnection({ path })
    socket = made
    const read = createFrameReader({ maxBytes: options.maxFrameBytes })
    made.on('connect', () => {
      isConnected = true
      wasEverConnected = true
      for (const [id, request] of requests) send(id, request)
    })
    made.on('data', (chunk) => {
      try {
        for (const frame of read(chunk)) if (!deliver(frame)) closeFrame = frame
      } catch (fault) {
        made.destroy(fault as Error)
      }
    })
    made.on('error', (fault) => {
      error = fault
    })
    made.on('close', () => {
      if (socket === made) onDisconnect({ path, error, closeFrame, wasConnected: isConnected })
    })
    made.setTimeout(options.idleMs)
    made.on('timeout', () => {
      if (requests.size === 0) drop()
    })
  }

  function send(id: string, request: Request): void {
    const { type, data } = request.frame()
    socket?.write(encodeFrame({ type, data: { id, ...data } }))
    if (socket !== undefined && socket.writableLength > MAX_UNSENT_BYTES)
      socket.destroy(new Error('it does not read'))
  }

  /** False where the frame answers no request. */
  function deliver(frame: Frame): boolean {
    const { id } = frame.data
    if (typeof id !== 'string') return false
    fruitless = 0
    options.onAnswer?.(frame)
    requests.get(id)?.onAnswer(frame)
    return true
  }

  function onDisconnect(how: Omit<Disconnect, 'wasEverConnected' | 'isClosed'>): void {
    socket = undefined
    isConnected = false
    isConnecting = false
    fruitless += 1
    last = { disconnect: { ...how, wasEverConnected, isClosed: false }, atMs: monotonicMs() }
    for (const [id, request] of requests) if (!request.onDisconnect(last.disconnect)) requests.delete(id)
    if (requests.size > 0 && !isConnecting && !pauseBeforeConnect(last.atMs)) connect()
  }

  /** Connects when the delay since the last disconnect is over; false: that is now. */
  function pauseBeforeConnect(sinceMs: number): boolean {
    endPause()
    const isUrgent = [...requests.values()].some(({ isBackground }) => isBackground !== true)
    const { first, largest, largestInBackground } = RECONNECT_DELAY_MS
    const delayMs = Math.min(isUrgent ? largest : largestInBackground, first * 2 ** (fruitless - 1))
    const leftMs = sinceMs + delayMs * (0.5 + options.random() / 2) - monotonicMs()
    if (leftMs <= 0) return false
    pause = setTimeout(connect, leftMs)
    return true
  }

  /** Closes the socket without calling anything. */
  function drop(): void {
    endPause()
    const dropped = socket
    socket = undefined
    isConnected = false
    isConnecting = false
    dropped?.destroy()
  }

  function endPause(): void {
    clearTimeout(pause)
    pause = undefined
  }

  function open(request: Request): () => void {
    const id = request.id ?? String((lastId += 1))
    const isFirst = requests.size === 0
    requests.set(id, request)
    if (isConnected) send(id, request)
    else if (!isConnecting) {
      if (isFirst || last === undefined || !pauseBeforeConnect(last.atMs)) connect()
      else notifyLater(id, request, last.disconnect)
    }
    if (isFirst) socket?.ref()
    return () => {
      if (requests.get(id) === request) requests.delete(id)
      if (requests.size > 0) return
      socket?.unref()
      // Counted from now: the time without an answer may have been long already.
      socket?.setTimeout(options.idleMs)
      endPause()
    }
  }

  /** Between two connects a new request learns of the last disconnect, and may wait for the next connect as others do. */
  function notifyLater(id: string, request: Request, disconnect: Disconnect): void {
    setImmediate(() => {
      if (pause === undefined || requests.get(id) !== request || request.onDisconnect(disconnect)) return
      requests.delete(id)
      if (requests.size === 0) endPause()
    })
  }

  function close(): void {
    drop()
    const ended = [...requests.values()]
    requests.clear()
    const how = { path: undefined, error: undefined, closeFrame: undefined, wasConnected: false }
    for (const request of ended) request.onDisconnect({ ...how, wasEverConnected, isClosed: true })
  }

  return { open, close }
}
