// The connection to the daemon: one socket with one subscription, whose newest answer is in one variable.
import { createConnection, type Socket } from 'node:net'
import { accountOf } from '../host/account.ts'
import { remedyWithoutPlace } from '../host/remedy.ts'
import { monotonicMs } from '../lib/clock.ts'
import { errorCode, errorMessage } from '../lib/error.ts'
import { isRecord, parseRecord } from '../lib/input.ts'
import { FRAME_END, type FaultCode, type RequestType } from '../protocol.ts'
import { TokenClientError, type ClientToken } from './token-source.ts'

/** The longest wait for an answer to a request that does not wait for a token, in ms. */
export const ANSWER_MS = 5_000
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
export type Link = ReturnType<typeof createLink>

interface Call {
  readonly type: RequestType
  readonly data: object
  /** How often it was sent. */
  sent: number
  settle(answer: unknown, error?: TokenClientError): void
}

/**
 * Connects at the first use, to the path that `findPath` gives then (it may throw), and again whenever the
 * connection ends while the token or an answer is wanted. The connection keeps no process alive.
 */
export function createLink(findPath: () => string, name: string | undefined) {
  /** By id; the subscription is one that is never settled. */
  const calls = new Map<string, Call>()
  const listeners = new Set<() => void>()
  let view: View = { isLive: false }
  let socket: Socket | undefined
  let pause: NodeJS.Timeout | undefined
  let wasConnected = false
  let failures = 0
  let lastId = 0

  const isClosed = (): boolean => view.fault?.code === 'closed'
  const isConnected = (): boolean => socket?.readyState === 'open'

  function set(next: View): void {
    view = next
    for (const listener of listeners) listener()
  }

  function start(id: string, call: Call): void {
    calls.set(id, call)
    if (isConnected()) send(id, call)
    else connect()
  }
  function send(id: string, call: Call): void {
    const { type, data } = call
    call.sent += 1
    socket?.write(`${JSON.stringify({ type, data: { id, ...data } })}${FRAME_END}`)
  }

  /** Makes a connection, unless one is there, or the pause before it is not over. */
  function connect(): void {
    if (socket !== undefined || pause !== undefined) return
    let path: string | undefined
    try {
      path = findPath()
      socket = openSocket(path)
    } catch (error) {
      lose(disconnectError(path, error as Error))
    }
  }

  /** Throws for a path that can be none. */
  function openSocket(path: string): Socket {
    const opened = createConnection({ path }).setEncoding('utf8').unref()
    let rest = ''
    opened.on('connect', onOpen)
    opened.on('data', (text: string) => {
      const frames = (rest + text).split(FRAME_END)
      rest = frames.pop() ?? ''
      try {
        for (const frame of frames) receive(frame)
      } catch (error) {
        opened.destroy(error as Error)
      }
    })
    opened.on('error', () => undefined)
    opened.on('close', () => lose(disconnectError(path, opened.errored)))
    return opened
  }

  function onOpen(): void {
    wasConnected = true
    for (const [id, call] of calls) send(id, call)
  }

  /** Takes one frame. Throws a sentence without a part of the text, which may hold anything. */
  function receive(text: string): void {
    const frame = parseRecord(text)
    if (!isRecord(frame?.['data'])) throw new Error('its answer is no frame of kyc-tokend')
    const { type } = frame
    const { id, ...data } = frame['data']
    const call = calls.get(String(id))
    if (type === 'fault') {
      const fault = faultError(data)
      call?.settle(undefined, fault)
      const isAboutRequest = ['denied', 'bad-request', 'busy'].includes(fault.code)
      if (id === SUBSCRIPTION && !isAboutRequest) set({ fault, isLive: true })
      // It is about the whole connection, which the daemon ends.
      else if (id === SUBSCRIPTION || call === undefined || fault.code === 'busy') throw fault
      return
    }
    if (type === 'token.result' || type === 'token.changed') {
      failures = 0
      const token = Object.freeze(data) as unknown as ClientToken
      const expiresAtMs = monotonicMs() + Date.parse(token.expiresAt) - Date.now()
      set({ token, expiresAtMs, isLive: true })
    }
    call?.settle(data)
  }

  /** The connection has ended, or could not be made. That is no news if nobody wants anything. */
  function lose(fault: TokenClientError): void {
    socket = undefined
    if (isClosed()) return
    failures += 1
    for (const call of calls.values()) if (call.sent > 1 || !wasConnected) call.settle(undefined, fault)
    if (calls.size === 0) return
    set({ ...view, fault, isLive: false })
    const longestMs = Math.min(PAUSE_MS.largest, PAUSE_MS.first * 2 ** failures)
    pause = setTimeout(
      () => {
        pause = undefined
        connect()
      },
      longestMs * (0.5 + Math.random() / 2),
    ).unref()
  }

  return {
    view: () => view,
    /** Calls the listener at each change of the view; returns a function that ends this. */
    onChange(listener: () => void): () => void {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    /** Has the view follow the daemon from now on. Throws TokenClientError (`closed`). */
    follow(): void {
      if (isClosed()) throw closedError()
      if (calls.has(SUBSCRIPTION)) return
      const data = { client: name }
      start(SUBSCRIPTION, { type: 'token.subscribe', data, sent: 0, settle: () => undefined })
    },
    /** Reports whether the view may change by itself. `isExplicit`: also if there never was a connection. */
    isWorthWait: (isExplicit: boolean): boolean => isExplicit || wasConnected,
    /**
     * Sends a request, and once more on the next connection if the present one ends before its answer. Rejects
     * with TokenClientError. `answerMs`: the longest wait for the answer.
     */
    async ask<T>(type: RequestType, data: object, answerMs = ANSWER_MS): Promise<T> {
      if (isClosed()) throw closedError()
      return new Promise<T>((resolve, reject) => {
        const id = String((lastId += 1))
        const settle = (answer: unknown, error?: TokenClientError): void => {
          clearTimeout(timer)
          calls.delete(id)
          if (error === undefined) resolve(answer as T)
          else reject(error)
        }
        const timer = setTimeout(() => {
          const fault = isConnected() ? undefined : view.fault
          settle(undefined, fault ?? timeoutError(answerMs))
        }, answerMs)
        start(id, { type, data, sent: 0, settle })
      })
    },
    close(): void {
      clearTimeout(pause)
      socket?.destroy()
      const fault = closedError()
      for (const call of calls.values()) call.settle(undefined, fault)
      calls.clear()
      set({ fault, isLive: false })
    },
  }
}

/** The daemon's `fault`. */
export function faultError({ code, message, reason }: Readonly<Record<string, unknown>>): TokenClientError {
  return new TokenClientError(String(message), String(code) as FaultCode, {
    reason: typeof reason === 'string' ? reason : undefined,
  })
}

/**
 * Why there is no connection to the daemon at the path. `cause`: of the system, of a broken frame, or of the
 * search for the path; null: the other side closed the connection.
 */
function disconnectError(path: string | undefined, cause: Error | null): TokenClientError {
  if (cause instanceof TokenClientError) return cause
  const why = errorCode(cause) ?? errorMessage(cause)
  if (why === 'EACCES' || why === 'EPERM') {
    const message = `The socket ${path} may not be opened by this user: ${remedyWithoutPlace({ fault: 'denied', path })}.`
    return new TokenClientError(message, 'denied', { cause })
  }
  const message =
    cause === null
      ? `kyc-tokend ended the connection at ${path}: ${remedyWithoutPlace('unanswered')}.`
      : `No kyc-tokend answers at ${path} (${why}): ${remedyWithoutPlace({ fault: 'no-daemon', account: path && accountOf(path) })}.`
  return new TokenClientError(message, 'daemon-unreachable', { cause })
}

export const closedError = (): TokenClientError =>
  new TokenClientError('This TokenClient was closed: create another one.', 'closed')

export function timeoutError(answerMs: number): TokenClientError {
  const message = `kyc-tokend gave no answer within ${answerMs / 1_000} s: ${remedyWithoutPlace('late')}.`
  return new TokenClientError(message, 'timeout')
}
