// A connection to the process behind a Unix socket: made while it is used, and again when that is restarted.
import { createConnection, type Socket } from 'node:net'
import { monotonicMs } from '../lib/clock.ts'
import { isRecord, parseJson } from '../lib/input.ts'
import { CONNECTION_IDLE_MS, FRAME_END } from '../protocol.ts'
import { badRequest, type Disconnect } from './errors.ts'

/** One JSON object, ended by a form feed. JSON never holds that byte: in a string it is written `\f`. */
export interface Frame {
  readonly type: string
  readonly data: Readonly<Record<string, unknown>>
}

/** A request and its answers. It is sent again on each new connection for as long as it is open. */
export interface Request {
  /** The id, if the request replaces the one that has the same id; otherwise it gets an id of its own. */
  readonly id?: string
  /** No caller waits for the answer: while all open requests are such, connects become rare. */
  readonly isBackground?: true
  /** The frame to send. Called again for each new connection, so that the time left can be computed again. */
  frame(): Frame
  /** Called with each frame that repeats the id, without the id. */
  onAnswer(frame: Frame): void
  /** The connection was lost, or none could be made. True: send again on the next one. False: it is over. */
  onDisconnect(disconnect: Disconnect): boolean
}
export interface ReconnectingConnection {
  /** Opens a request; returns a function that ends it. Its callbacks are never called before this returns. */
  open(request: Request): () => void
  /** The process may be stopping, and answer or go only for that reason; the next one may have a token. */
  readonly mayStop: boolean
  /** The process is there, and has more requests than it has read. */
  readonly isBehind?: () => boolean
  readonly monotonicMs: () => number
}

/**
 * Makes a client's connection. `onAnswer` gets every answer, even to an ended request, and gives it as the
 * request is to get it, or undefined: then the connection of that request is lost. The signal ends it.
 */
export type Connect = (
  onAnswer: (frame: Frame) => Frame | undefined,
  signal: AbortSignal,
) => ReconnectingConnection

/** Time between two connects, whatever waits: doubled up to the largest, and drawn from its upper half. */
const RECONNECT_DELAY_MS = { first: 50, largest: 200, largestInBackground: 2_000 }
/** So many requests are under way at a time; the others come later, and their time begins then. */
const MAX_UNANSWERED = 64
/** Enough for every answer: a token of 16 KiB, or the status with many files. */
const MAX_FRAME_LENGTH = 1024 * 1024
/** Idle connections are closed before the daemon does it: no request must meet one that is being closed. */
const IDLE_MS = CONNECTION_IDLE_MS / 2

/** Connects at the first request; keeps the process alive while one is open; buffers one frame at most. */
export function createReconnectingConnection(
  /** Gives the socket's path, before each connect: a restarted process may have another. It may throw. */
  findPath: () => string,
  ...[onAnswer, signal]: Parameters<Connect>
): ReconnectingConnection {
  const requests = new Map<string, Request>()
  /** Ids of those that this connection has not been given yet: it is given no more than the process reads. */
  const unsent = new Set<string>()
  let socket: Socket | undefined
  let isConnecting = false
  let wasEverConnected = false
  let pause: NodeJS.Timeout | undefined
  /** With the part of the delay, drawn once, after which the next connect follows. */
  let last: { disconnect: Disconnect; atMs: number; part: number } | undefined
  /** Since the last answer that was no fault. */
  let disconnects = 0
  let lastId = 0

  const isConnected = (): boolean => socket?.readyState === 'open'

  function connect(): void {
    clearTimeout(pause)
    isConnecting = true
    const disconnect: Disconnect = {}
    try {
      disconnect.path = findPath()
      socket = connectTo(disconnect.path, disconnect)
    } catch (error) {
      disconnect.error = error as Error
      setImmediate(() => onDisconnect(disconnect))
    }
  }

  function connectTo(path: string, disconnect: Disconnect): Socket {
    const created = createConnection({ path })
    let rest = ''
    created.setEncoding('utf8')
    created.on('connect', () => {
      disconnect.wasConnected = wasEverConnected = true
      for (const id of requests.keys()) unsent.add(id)
      flush()
    })
    created.on('drain', flush)
    created.on('data', (text: string) => {
      disconnect.wasAnswered = true
      const texts = (rest + text).split(FRAME_END)
      rest = texts.pop() ?? ''
      try {
        for (const frame of texts.map(frameOf))
          if (!deliver(frame) && frame.type === 'fault') disconnect.closeFault = frame.data
        if (rest.startsWith('HTTP/1.'))
          throw badRequest(`The socket ${path} speaks HTTP: name ipc.sock, which is beside http.sock.`)
        if (rest.length > MAX_FRAME_LENGTH) throw new Error(`A frame is longer than ${MAX_FRAME_LENGTH}`)
      } catch (error) {
        created.destroy(error as Error)
      }
    })
    created.on('error', (error) => {
      disconnect.error = error
    })
    created.on('close', () => {
      if (socket === created) onDisconnect(disconnect)
    })
    created.setTimeout(IDLE_MS)
    created.on('timeout', () => {
      if (requests.size === 0) drop()
      else if (created.writableLength > 0) created.destroy(new Error('it does not read'))
    })
    return created
  }

  /** Sends what is open, until the process has to read or to answer first. */
  function flush(): void {
    for (const id of unsent) {
      const isEnough = requests.size - unsent.size >= MAX_UNANSWERED
      if (!isConnected() || isEnough || socket?.writableNeedDrain === true) return
      unsent.delete(id)
      const frame = requests.get(id)?.frame()
      if (frame !== undefined)
        socket?.write(`${JSON.stringify({ type: frame.type, data: { id, ...frame.data } })}${FRAME_END}`)
    }
  }

  /** False if the frame answers no request. */
  function deliver({ type, data: { id, ...data } }: Frame): boolean {
    if (typeof id !== 'string') return false
    // A daemon that denies access answers, and closes the connection, each time.
    if (type !== 'fault') disconnects = 0
    const answer = onAnswer({ type, data })
    const request = requests.get(id)
    if (answer === undefined && request !== undefined) throw new Error(`its ${type} is none of kyc-tokend`)
    if (answer !== undefined) request?.onAnswer(answer)
    return true
  }

  function onDisconnect(disconnect: Disconnect): void {
    drop()
    disconnects += 1
    disconnect.wasEverConnected = wasEverConnected
    last = { disconnect, atMs: monotonicMs(), part: 0.5 + Math.random() / 2 }
    for (const [id, request] of requests) if (!request.onDisconnect(disconnect)) requests.delete(id)
    if (requests.size > 0 && !isConnecting) connectWhenDue()
  }

  function connectWhenDue(): void {
    clearTimeout(pause)
    const waitMs = untilNextConnectMs()
    if (waitMs > 0) pause = setTimeout(connect, waitMs)
    else connect()
  }

  /** The rest of the delay since the last disconnect. */
  function untilNextConnectMs(): number {
    if (last === undefined) return 0
    const isUrgent = [...requests.values()].some(({ isBackground }) => !isBackground)
    const { first, largest, largestInBackground } = RECONNECT_DELAY_MS
    const delayMs = Math.min(isUrgent ? largest : largestInBackground, first * 2 ** (disconnects - 1))
    return last.atMs + delayMs * last.part - monotonicMs()
  }

  /** Closes the socket without calling anything. */
  function drop(): void {
    clearTimeout(pause)
    unsent.clear()
    socket?.destroy()
    socket = undefined
    isConnecting = false
  }

  function open(request: Request): () => void {
    const id = request.id ?? String((lastId += 1))
    const isFirst = requests.size === 0
    requests.set(id, request)
    if (isConnected()) {
      unsent.add(id)
      flush()
    } else if (isFirst && !isConnecting) connect()
    else if (!isConnecting) {
      connectWhenDue()
      if (!isConnecting) setImmediate(tellLastDisconnect, id, request)
    }
    if (isFirst) socket?.ref()
    return () => {
      if (requests.get(id) === request) {
        requests.delete(id)
        unsent.delete(id)
      }
      if (requests.size > 0) return flush()
      socket?.unref()
      // Counted from now: the time without an answer may have been long already.
      socket?.setTimeout(IDLE_MS)
      clearTimeout(pause)
    }
  }

  /** Between two connects a new request gets the last disconnect. It may then wait for the next connect. */
  function tellLastDisconnect(id: string, request: Request): void {
    if (isConnecting || last === undefined || requests.get(id) !== request) return
    if (request.onDisconnect(last.disconnect)) return
    requests.delete(id)
    if (requests.size === 0) clearTimeout(pause)
  }

  signal.addEventListener('abort', drop)
  return {
    open,
    mayStop: true,
    isBehind: () => isConnected() && unsent.size > 0,
    monotonicMs,
  }
}

/** Throws a sentence without a part of the text, which may hold anything. */
function frameOf(text: string): Frame {
  const frame = parseJson(text)
  if (!isRecord(frame) || typeof frame['type'] !== 'string' || !isRecord(frame['data']))
    throw new Error('what it sends is no frame of kyc-tokend')
  return frame as unknown as Frame
}
