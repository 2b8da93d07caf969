// A connection to the process behind a Unix socket: made while it is used, and again when that is restarted.
import type { Socket } from 'node:net'
import { monotonicMs } from '../lib/clock.ts'
import type { Disconnect } from './errors.ts'
import { connectTo, IDLE_MS, writeFrame, type Frame } from './frames.ts'

/** A request and its answers. It is sent again on each new connection for as long as it is open. */
export interface Request {
  /** The id, if the request replaces the one that has the same id; otherwise it gets an id of its own. */
  readonly id?: string
  /** No caller waits for the answer: while all open requests are such, connects become rare. */
  readonly isBackground?: true
  /** Few users may send it: a user to whom it is denied may send others. */
  readonly isPrivileged?: boolean
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

/** Connects at the first request; keeps the process alive while one is open; buffers one frame at most. */
export function createReconnectingConnection(
  /** Gives the socket's path, before each connect: a restarted process may have another. It may throw. */
  findPath: () => string,
  ...[onAnswer, signal]: Parameters<Connect>
): ReconnectingConnection {
  const requests = new Map<string, Request>()
  /** Ids of those that this connection has not been given yet: it is given no more than the process reads. */
  const unsent = new Set<string>()
  const pace = createPace()
  let socket: Socket | undefined
  /** A connection is there, or one is being made. */
  let isUnderWay = false
  let wasEverConnected = false
  let pause: NodeJS.Timeout | undefined
  let lastDisconnect: Disconnect | undefined
  let lastId = 0

  const isConnected = (): boolean => socket?.readyState === 'open'

  function connect(): void {
    clearTimeout(pause)
    isUnderWay = true
    let path: string | undefined
    try {
      path = findPath()
      const created = connectTo(path, {
        onConnect() {
          wasEverConnected = true
          for (const id of requests.keys()) unsent.add(id)
          flush()
        },
        onDrain: flush,
        onAnswer: deliver,
        onIdle() {
          if (requests.size === 0) drop()
          else if (created.writableLength > 0) created.destroy(new Error('it does not read'))
        },
        onClose(disconnect) {
          if (socket === created) onDisconnect(disconnect)
        },
      })
      socket = created
    } catch (error) {
      setImmediate(onDisconnect, { path, error: error as Error })
    }
  }

  /** Sends what is open, until the process has to read or to answer first. */
  function flush(): void {
    for (const id of unsent) {
      const isEnough = requests.size - unsent.size >= MAX_UNANSWERED
      if (socket?.readyState !== 'open' || isEnough || socket.writableNeedDrain) return
      unsent.delete(id)
      const frame = requests.get(id)?.frame()
      if (frame !== undefined) writeFrame(socket, id, frame)
    }
  }

  function deliver(id: string, frame: Frame): boolean {
    // A daemon that denies access answers, and closes the connection, each time.
    if (frame.type !== 'fault') pace.reset()
    const answer = onAnswer(frame)
    const request = requests.get(id)
    if (answer !== undefined) request?.onAnswer(answer)
    else if (request !== undefined) throw new Error(`its ${frame.type} is none of kyc-tokend`)
    return frame.type === 'fault' && endsConnection(frame.data['code'], request)
  }

  function onDisconnect(disconnect: Disconnect): void {
    drop()
    pace.slowDown()
    lastDisconnect = { ...disconnect, wasEverConnected }
    for (const [id, request] of requests) if (!request.onDisconnect(lastDisconnect)) requests.delete(id)
    if (requests.size > 0 && !isUnderWay) connectWhenDue()
  }

  function connectWhenDue(): void {
    clearTimeout(pause)
    const waitMs = pace.leftMs(isUrgent())
    if (waitMs > 0) pause = setTimeout(connect, waitMs)
    else connect()
  }

  /** A caller waits. Not by a copy of the requests: it is asked for each of them. */
  function isUrgent(): boolean {
    for (const { isBackground } of requests.values()) if (!isBackground) return true
    return false
  }

  /** Closes the socket without calling anything. */
  function drop(): void {
    clearTimeout(pause)
    unsent.clear()
    socket?.destroy()
    socket = undefined
    isUnderWay = false
  }

  function open(request: Request): () => void {
    const id = request.id ?? String((lastId += 1))
    const isFirst = requests.size === 0
    requests.set(id, request)
    if (isConnected()) {
      unsent.add(id)
      flush()
    } else if (isFirst && !isUnderWay) connect()
    else if (!isUnderWay) {
      connectWhenDue()
      if (!isUnderWay) setImmediate(repeatDisconnect, id, request)
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
  function repeatDisconnect(id: string, request: Request): void {
    if (isUnderWay || lastDisconnect === undefined || requests.get(id) !== request) return
    if (request.onDisconnect(lastDisconnect)) return
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

/** Reports whether the daemon ends the connection after this fault, so that its other requests get no answer. */
function endsConnection(code: unknown, request: Request | undefined): boolean {
  return code === 'busy' || (code === 'denied' && request !== undefined && request.isPrivileged !== true)
}

/** When the next connect is due: later after each disconnect in a row. */
function createPace() {
  /** Since the last answer that was no fault. */
  let disconnects = 0
  let lastMs = -Infinity
  /** The part of the delay after which the next connect follows, drawn once. */
  let part = 1
  return {
    slowDown(): void {
      disconnects += 1
      lastMs = monotonicMs()
      part = 0.5 + Math.random() / 2
    },
    reset(): void {
      disconnects = 0
    },
    /** Zero or less: now. `isUrgent`: a caller waits. */
    leftMs(isUrgent: boolean): number {
      const { first, largest, largestInBackground } = RECONNECT_DELAY_MS
      const delayMs = Math.min(isUrgent ? largest : largestInBackground, first * 2 ** (disconnects - 1))
      return lastMs + delayMs * part - monotonicMs()
    },
  }
}
