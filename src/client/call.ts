// One request to the daemon and its answer: sent again after a restart while there is time, or answered from memory; and calls
// that ask for the same share one request.
import { errorCode } from '../lib/error.ts'
import { answerTypes, type FaultCode, type RequestType } from '../protocol.ts'
import type { Frame, ReconnectingConnection } from './connection.ts'
import {
  disconnectError,
  faultError,
  isForbidden,
  timeoutError,
  TokenClientError,
  type Disconnect,
  type TokenClientErrorCode,
} from './errors.ts'

/** The longest wait for an answer to a request without a wait of its own. */
const ANSWER_MS = 5_000
/** The time that a daemon has to answer once it waits for nothing. After it a token in memory is given, or the call fails. */
const SLOW_MS = 250
/** Faults that a daemon gives without looking at the request: it counts as absent. */
const FAULTS_OF_ABSENCE: ReadonlySet<string> = new Set<FaultCode>(['busy', 'misconfigured'])
/** Ends of a request's wait: a caller that shares it, and began later, may go on waiting. */
const ENDS_OF_WAIT: ReadonlySet<string> = new Set<TokenClientErrorCode>([
  'no-token-yet',
  'expired',
  'timeout',
])

export interface Call<T> {
  readonly type: RequestType
  /** Computed again for each connection. */
  readonly data?: (leftMs: number) => Frame['data']
  /** The longest time that the daemon may wait, and in which the request is sent again if the connection is lost. */
  readonly waitMs?: number
  /** True: also wait for a daemon that was never there. */
  readonly waitsForStart?: boolean
  /** Time for the answer. */
  readonly answerMs?: number
  /** The request must not be sent twice: the daemon may have got it before the connection was lost. */
  readonly isOnce?: boolean
  /** Each ends the call, which is then rejected with the signal's reason. */
  readonly signals: readonly (AbortSignal | undefined)[]
  /** The answer in memory, read if the daemon is away or slow; undefined: there is none. */
  readonly fallback?: () => T | undefined
}

/** The time for the answer to a request for which the daemon may wait so long. */
export const answerMsFor = (waitMs: number): number => Math.max(waitMs, SLOW_MS) + SLOW_MS

/** True if the error says that no token has come in time. */
export const isWithoutToken = (error: unknown): boolean =>
  error instanceof TokenClientError && ENDS_OF_WAIT.has(error.code)

/** The answer's fields. Rejects with TokenClientError, or with a signal's reason. */
export function call<T>(connection: ReconnectingConnection, options: Call<T>): Promise<T> {
  const { type, waitMs = 0, answerMs = ANSWER_MS, signals, fallback = () => undefined } = options
  const { monotonicMs } = connection
  const untilMs = monotonicMs() + waitMs
  const leftMs = (): number => Math.max(0, untilMs - monotonicMs())
  let sends = 0

  /** Gives the answer in memory. False: there is none. */
  function fallBack({ resolve }: Wait<T>): boolean {
    const value = fallback()
    if (value !== undefined) resolve(value)
    return value !== undefined
  }

  return waitFor<T>({
    signals,
    deadline: {
      ms: answerMs,
      onDeadline(wait) {
        if (!fallBack(wait)) wait.reject(timeoutError(answerMs))
      },
    },
    begin(wait) {
      const slow = setTimeout(() => {
        if (fallBack(wait)) connection.onSilence()
      }, SLOW_MS)
      const close = connection.open({
        frame() {
          sends += 1
          return { type, data: options.data?.(sends === 1 ? waitMs : leftMs()) ?? {} }
        },
        onAnswer(frame) {
          if (frame.type === answerTypes[type]) return wait.resolve(frame.data as T)
          if (frame.type !== 'fault') return
          const fault = faultError(frame.data)
          if (!FAULTS_OF_ABSENCE.has(fault.code) || !fallBack(wait)) wait.reject(fault)
        },
        onDisconnect(disconnect) {
          if (fallBack(wait)) return false
          const canBeSent = leftMs() > 0 || (disconnect.wasConnected && sends < 2)
          if (canBeSent && options.isOnce !== true && isWorthAnother(disconnect, options)) return true
          wait.reject(disconnectError(disconnect))
          return false
        },
      })
      return () => {
        clearTimeout(slow)
        close()
      }
    },
  })
}

/** Reports whether to wait for another connection. Without `waitsForStart`, not for a daemon that was never there. */
function isWorthAnother(disconnect: Disconnect, options: Call<unknown>): boolean {
  const { error, wasEverConnected = false } = disconnect
  const code = errorCode(error)
  if (code === 'bad-request') return false
  // A daemon that restarts binds its socket first, and opens it to others a moment later.
  if (isForbidden(error)) return wasEverConnected && code === 'EACCES'
  // The queue of the socket is full: a daemon is there.
  return wasEverConnected || options.waitsForStart === true || code === 'EAGAIN'
}

/** `ask` begins the request; its signal ends it when nobody waits for it any more. */
type Share<T> = (
  key: string,
  ask: (end: AbortSignal) => Promise<T>,
  signal: AbortSignal | undefined,
) => Promise<T>

/** Callers with the same key share one request while it is under way: few requests of a connection may wait. */
export function createSharing<T>(): Share<T> {
  const underWay = new Map<string, { answer: Promise<T>; end: AbortController; callers: number }>()
  return async (key, ask, signal) => {
    signal?.throwIfAborted()
    const end = new AbortController()
    const shared = underWay.get(key) ?? { answer: ask(end.signal), end, callers: 0 }
    const remove = (): void => {
      if (underWay.get(key) === shared) underWay.delete(key)
    }
    underWay.set(key, shared)
    shared.callers += 1
    try {
      return await unlessAborted(shared.answer.finally(remove), signal)
    } finally {
      shared.callers -= 1
      if (shared.callers === 0) {
        remove()
        shared.end.abort()
      }
    }
  }
}

/** As the promise, but rejects with the signal's reason as soon as that is aborted; it must not be aborted yet. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  return waitFor<T>({
    signals: [signal],
    begin({ resolve, reject }) {
      promise.then(resolve, reject)
      return () => undefined
    },
  })
}

interface Wait<T> {
  readonly resolve: (value: T) => void
  readonly reject: (error: Error) => void
}

/** Calls `begin`, which returns the clean-up and must not settle the wait itself. `onDeadline` must settle it. */
function waitFor<T>(options: {
  readonly signals: readonly (AbortSignal | undefined)[]
  readonly begin: (wait: Wait<T>) => () => void
  readonly deadline?: { readonly ms: number; readonly onDeadline: (wait: Wait<T>) => void }
}): Promise<T> {
  const { begin, deadline } = options
  const signals = options.signals.filter((signal) => signal !== undefined)
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined
    let end = (): void => undefined
    const settle = (how: () => void): void => {
      clearTimeout(timer)
      for (const signal of signals) signal.removeEventListener('abort', onAbort)
      end()
      how()
    }
    const wait: Wait<T> = {
      resolve: (value) => settle(() => resolve(value)),
      reject: (error) => settle(() => reject(error)),
    }
    const onAbort = (): void => wait.reject(signals.find(({ aborted }) => aborted)?.reason as Error)
    if (signals.some(({ aborted }) => aborted)) return onAbort()
    for (const signal of signals) signal.addEventListener('abort', onAbort)
    if (deadline !== undefined) timer = setTimeout(() => deadline.onDeadline(wait), deadline.ms)
    end = begin(wait)
  })
}
