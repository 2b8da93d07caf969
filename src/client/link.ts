// The connection to the daemon: one socket with one subscription, whose newest answer is in one variable.
import { createConnection, type Socket } from 'node:net'
import { monotonicMs } from '../lib/clock.ts'
import { isRecord, parseJson } from '../lib/input.ts'
import { FRAME_END, type RequestType } from '../protocol.ts'
import { closedError, disconnectError, faultError, isWithoutToken, timeoutError } from './errors.ts'
import type { TokenClientError } from './errors.ts'
import type { ClientToken } from './token-source.ts'

/** The longest wait for an answer to a request that does not wait for a token, in ms. */
export const ANSWER_MS = 5_000
/** Longest frame of the daemon, in characters: enough for a token of 16 KiB, or a status with many files. */
const MAX_FRAME_LENGTH = 1024 * 1024
/** Pause before a new connection, in ms: doubled after each failure up to the largest, the upper half drawn. */
const PAUSE_MS = { first: 50, largest: 1_000 }
/** The id of the subscription. Those of calls are numbers. */
const SUBSCRIPTION = 's'

/** The newest that the daemon has said of its token. */
export interface View {
  /** Undefined: nothing was said yet, or the daemon says that it has no token. */
  readonly token?: ClientToken | undefined
  /** When the life of the token ends, on the clock of `monotonicMs`. */
  readonly expiresAtMs?: number | undefined
  /** Why the daemon has no token, or why it is away; undefined: it gave a token, or said nothing yet. */
  readonly fault?: TokenClientError | undefined
  /** The daemon is there: it has answered the subscription on the present connection. */
  readonly isLive: boolean
}

/** A daemon, as the methods of a client need it. */
export interface Link {
  view(): View
  /** Reports whether a connection was ever open: then the daemon restarts, and is worth a wait. */
  wasConnected(): boolean
  /** False: nothing will come by itself, so that nobody waits. */
  readonly waits: boolean
  readonly monotonicMs: () => number
  /** Subscribes, now and on each new connection. */
  want(): void
  /** Keeps the process alive until the returned function is called, once. */
  hold(): () => void
  /** Calls the listener at each change of the view; returns a function that ends this. */
  onChange(listener: () => void): () => void
  /**
   * Sends a request, and once more on the next connection if the present one ends before its answer. Rejects
   * with TokenClientError. `answerMs`: the longest wait for the answer; 5 s by default.
   */
  ask<T>(type: RequestType, data: object, answerMs?: number): Promise<T>
  close(): void
}

interface Call {
  readonly type: RequestType
  readonly data: object
  /** How often it was sent. */
  sent: number
  settle(answer: unknown, error?: TokenClientError): void
}

/**
 * Connects at the first use, to the path that `findPath` gives then (it may throw), and again whenever the
 * connection ends while the token or an answer is wanted.
 */
export function createLink(findPath: () => string, name: string | undefined): Link {
  const calls = new Map<string, Call>()
  const listeners = new Set<() => void>()
  let view: View = { isLive: false }
  let socket: Socket | undefined
  let pause: NodeJS.Timeout | undefined
  /** The fault by which the daemon ends the present connection. */
  let lastFault: TokenClientError | undefined
  let wasConnected = false
  let isClosed = false
  let isWanted = false
  let holders = 0
  let failures = 0
  let lastId = 0

  const isConnected = (): boolean => socket?.readyState === 'open'

  function set(next: View): void {
    view = next
    for (const listener of listeners) listener()
  }

  /** A process with a connection ends all the same, unless somebody waits. */
  function keepAlive(): void {
    for (const handle of [socket, pause])
      if (holders + calls.size > 0) handle?.ref()
      else handle?.unref()
  }

  function send(id: string, type: RequestType, data: object): void {
    socket?.write(`${JSON.stringify({ type, data: { id, ...data } })}${FRAME_END}`)
  }
  function sendCall(id: string, call: Call): void {
    call.sent += 1
    send(id, call.type, call.data)
  }
  const subscribe = (): void => send(SUBSCRIPTION, 'token.subscribe', { client: name })

  /** Makes a connection, unless one is there, or the pause before it is not over. */
  function connect(): void {
    if (isClosed || socket !== undefined || pause !== undefined) return
    let path: string | undefined
    try {
      path = findPath()
      socket = openSocket(path, { onOpen, onFrame: receive, onEnd: (fault) => lose(lastFault ?? fault) })
    } catch (error) {
      pause = setTimeout(() => lose(disconnectError({ path, error: error as Error })), 0)
    }
    keepAlive()
  }

  function onOpen(): void {
    wasConnected = true
    if (isWanted) subscribe()
    for (const [id, call] of calls) sendCall(id, call)
  }

  /** Takes one frame. Throws a sentence without a part of the text, which may hold anything. */
  function receive(text: string): void {
    const frame = parseJson(text)
    if (!isRecord(frame) || !isRecord(frame['data'])) throw new Error('its answer is no frame of kyc-tokend')
    const { type } = frame
    const { id, ...data } = frame['data']
    const call = typeof id === 'string' ? calls.get(id) : undefined
    if (type === 'fault') {
      const fault = faultError(data)
      // Others than these end the connection, without an answer to the other calls.
      if (call === undefined || fault.code === 'busy') lastFault = fault
      call?.settle(undefined, fault)
      if (id !== SUBSCRIPTION) return
      if (isWithoutToken(fault)) set({ fault, isLive: true })
      else set({ ...view, fault, isLive: false })
      return
    }
    if (type === 'token.result' || type === 'token.changed') {
      failures = 0
      const token = data as unknown as ClientToken
      const expiresAtMs = monotonicMs() + Date.parse(token.expiresAt) - Date.now()
      set({ token, expiresAtMs, isLive: true })
    }
    call?.settle(data)
  }

  /** The connection has ended, or could not be made. */
  function lose(fault: TokenClientError): void {
    socket = pause = lastFault = undefined
    if (isClosed) return
    failures += 1
    for (const call of calls.values())
      if (call.sent > 1 || !wasConnected || fault.code === 'denied') call.settle(undefined, fault)
    set({ ...view, fault, isLive: false })
    if (!isWanted && calls.size === 0) return
    const longestMs = Math.min(PAUSE_MS.largest, PAUSE_MS.first * 2 ** failures)
    pause = setTimeout(
      () => {
        pause = undefined
        connect()
      },
      longestMs * (0.5 + Math.random() / 2),
    )
    keepAlive()
  }

  return {
    view: () => view,
    wasConnected: () => wasConnected,
    waits: true,
    monotonicMs,
    want() {
      if (!isWanted && isConnected()) subscribe()
      isWanted = true
      connect()
    },
    hold() {
      holders += 1
      keepAlive()
      return () => {
        holders -= 1
        keepAlive()
      }
    },
    onChange(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    async ask<T>(type: RequestType, data: object, answerMs = ANSWER_MS): Promise<T> {
      if (isClosed) throw closedError()
      if (pause !== undefined && !wasConnected && view.fault !== undefined) throw view.fault
      return new Promise<T>((resolve, reject) => {
        const id = String((lastId += 1))
        const late = (): void =>
          call.settle(undefined, (isConnected() ? undefined : view.fault) ?? timeoutError(answerMs))
        const timer = setTimeout(late, answerMs)
        const call: Call = {
          type,
          data,
          sent: 0,
          settle(answer, error) {
            clearTimeout(timer)
            calls.delete(id)
            keepAlive()
            if (error === undefined) resolve(answer as T)
            else reject(error)
          },
        }
        calls.set(id, call)
        if (isConnected()) sendCall(id, call)
        else connect()
        keepAlive()
      })
    },
    close() {
      if (isClosed) return
      isClosed = true
      clearTimeout(pause)
      socket?.destroy()
      const fault = closedError()
      for (const call of calls.values()) call.settle(undefined, fault)
      set({ fault, isLive: false })
      listeners.clear()
    },
  }
}

/** One connection, from its beginning to its end. Throws for a path that can be none. */
function openSocket(
  path: string,
  on: {
    onOpen(): void
    /** Ends the connection by throwing. */
    onFrame(text: string): void
    /** Called once, whether the connection was ever open or not. */
    onEnd(fault: TokenClientError): void
  },
): Socket {
  const socket = createConnection({ path })
  let error: Error | undefined
  let isOpen = false
  let isAnswered = false
  let rest = ''
  socket.setEncoding('utf8')
  socket.on('connect', () => {
    isOpen = true
    on.onOpen()
  })
  socket.on('data', (text: string) => {
    isAnswered = true
    const texts = (rest + text).split(FRAME_END)
    rest = texts.pop() ?? ''
    try {
      for (const frame of texts) on.onFrame(frame)
      if (rest.length > MAX_FRAME_LENGTH) throw new Error(`a frame is longer than ${MAX_FRAME_LENGTH}`)
    } catch (thrown) {
      socket.destroy(thrown as Error)
    }
  })
  socket.on('error', (cause) => {
    error = cause
  })
  socket.on('close', () => on.onEnd(disconnectError({ path, error, isOpen, isAnswered })))
  return socket
}
