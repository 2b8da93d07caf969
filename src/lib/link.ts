// A link to the process behind a Unix socket: connected while it is used, and connected anew when that process restarts.
import { createConnection, type Socket } from 'node:net'
import { createFrameReader, encodeFrame, type Frame } from './frames.ts'

/** A question and its answers. The link gives it an id, and connects for it as long as it is open. */
export interface Exchange {
  /** Its id, where asking again is to take the place of asking before; otherwise it gets one of its own. */
  readonly id?: string
  /** The question. Called again for each new connection, so what depends on the time can be counted anew. */
  ask(): Frame
  /** Called with each frame that repeats the id. */
  onAnswer(frame: Frame): void
  /** Called when no connection could be made or the connection was lost. True: ask on a new one. False: it is over. */
  onLoss(loss: Loss): boolean
}
export interface Loss {
  /** The socket's path, or undefined where there was none to be found. */
  readonly path: string | undefined
  /** The system's error, what was wrong with the frames, or why no path was given; undefined where the other side just closed. */
  readonly error: Error | undefined
  /** The last frame on the lost connection that answered no question: why it was closed. */
  readonly farewell: Frame | undefined
  /** Whether this connection had been made, and whether any ever was on this link. */
  readonly wasConnected: boolean
  readonly wasEverConnected: boolean
  /** The link was closed by its owner. */
  readonly isClosed: boolean
}

export interface Link {
  /** Opens an exchange; returns a function that ends it. Its callbacks are never called before this returns. */
  open(exchange: Exchange): () => void
  /** Ends all exchanges (`onLoss` with `isClosed`) and the connection. */
  close(): void
}

/** Delays between connects double from the first to the last; each is drawn from its upper half. */
const RECONNECT_DELAY_MS = { first: 50, last: 2_000 }

/**
 * A link that connects at the first exchange. While no exchange is open it does not keep the process alive, and
 * nothing that the other side sends is kept beyond one frame of `maxFrameBytes`.
 */
export function createLink(options: {
  /** Where the socket is; asked before each connect, because a restarted process may have it elsewhere. What it throws is a loss. */
  findPath: () => string | undefined
  maxFrameBytes: number
  /** A connection that nobody uses is closed after this time. */
  idleMs: number
  random: () => number
}): Link {
  const exchanges = new Map<string, Exchange>()
  let socket: Socket | undefined
  let isConnected = false
  let wasEverConnected = false
  let fruitless = 0
  let timer: NodeJS.Timeout | undefined
  let lastId = 0

  function connect(): void {
    stopTimer()
    let path: string | undefined
    let error: Error | undefined
    let farewell: Frame | undefined
    try {
      path = options.findPath()
    } catch (fault) {
      error = fault as Error
    }
    if (path === undefined) {
      timer = setTimeout(() => {
        lose({ path, error, farewell, wasConnected: false })
      })
      return
    }
    const made = createConnection({ path })
    socket = made
    const read = createFrameReader({ maxBytes: options.maxFrameBytes })
    made.on('connect', () => {
      isConnected = true
      wasEverConnected = true
      for (const [id, exchange] of exchanges) send(id, exchange)
    })
    made.on('data', (chunk) => {
      try {
        for (const frame of read(chunk)) if (!deliver(frame)) farewell = frame
      } catch (fault) {
        made.destroy(fault as Error)
      }
    })
    made.on('error', (fault) => {
      error = fault
    })
    made.on('close', () => {
      if (socket !== made) return
      const wasConnected = isConnected
      socket = undefined
      isConnected = false
      lose({ path, error, farewell, wasConnected })
    })
    made.setTimeout(options.idleMs)
    made.on('timeout', () => {
      if (exchanges.size === 0) drop()
    })
  }

  function send(id: string, exchange: Exchange): void {
    const { type, data } = exchange.ask()
    socket?.write(encodeFrame({ type, data: { id, ...data } }))
  }

  /** False where the frame answers no question. */
  function deliver(frame: Frame): boolean {
    const { id } = frame.data
    if (typeof id !== 'string') return false
    fruitless = 0
    exchanges.get(id)?.onAnswer(frame)
    return true
  }

  function lose(loss: Omit<Loss, 'wasEverConnected' | 'isClosed'>): void {
    for (const [id, exchange] of exchanges) {
      if (!exchange.onLoss({ ...loss, wasEverConnected, isClosed: false })) exchanges.delete(id)
    }
    if (exchanges.size === 0 || socket !== undefined) return
    fruitless += 1
    stopTimer()
    timer = setTimeout(connect, reconnectDelayMs(fruitless, options.random()))
  }

  /** Lets go of the connection without telling anybody. */
  function drop(): void {
    stopTimer()
    const dropped = socket
    socket = undefined
    isConnected = false
    dropped?.destroy()
  }

  function stopTimer(): void {
    clearTimeout(timer)
    timer = undefined
  }

  function open(exchange: Exchange): () => void {
    const id = exchange.id ?? String((lastId += 1))
    exchanges.set(id, exchange)
    if (isConnected) send(id, exchange)
    else if (socket === undefined) connect()
    socket?.ref()
    return () => {
      exchanges.delete(id)
      if (exchanges.size > 0) return
      socket?.unref()
      // Counted from now: the time without an answer may have been long already.
      socket?.setTimeout(options.idleMs)
      stopTimer()
    }
  }

  function close(): void {
    drop()
    const ended = [...exchanges.values()]
    exchanges.clear()
    const loss = { path: undefined, error: undefined, farewell: undefined, wasConnected: false }
    for (const exchange of ended) exchange.onLoss({ ...loss, wasEverConnected, isClosed: true })
  }

  return { open, close }
}

function reconnectDelayMs(fruitless: number, drawn: number): number {
  const delayMs = Math.min(RECONNECT_DELAY_MS.last, RECONNECT_DELAY_MS.first * 2 ** (fruitless - 1))
  return delayMs / 2 + (delayMs / 2) * drawn
}
