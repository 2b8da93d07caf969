// One request to the daemon and its answer: sent again after a restart while there is time, or answered from memory.
import { errorCode } from '../lib/error.ts'
import { answerTypes, type FaultCode, type RequestType } from '../protocol.ts'
import type { Disconnect, Frame, ReconnectingConnection } from './connection.ts'
import type { TokenClientError } from './errors.ts'
import { disconnectError, faultError, isForbidden, timeoutError } from './faults.ts'

/** The longest wait for an answer to a request without a wait of its own. */
const ANSWER_MS = 5_000
/** The time that a daemon has to answer once it waits for nothing. After it a token in memory is given, or the call fails. */
const SLOW_MS = 250
/** Client and daemon each count the wait. A fault that comes with more than this of it left came before the wait was over. */
const EARLY_MS = 500
/** Faults that a daemon gives without looking at the request: it counts as absent. */
const FAULTS_OF_ABSENCE: ReadonlySet<string> = new Set<FaultCode>(['busy', 'misconfigured'])
/** Faults that a daemon gives when the wait is over; before that, only one that is stopping gives them. */
const FAULTS_WITHOUT_TOKEN: ReadonlySet<string> = new Set<FaultCode>(['no-token-yet', 'expired'])

export interface Call<T> {
  readonly type: RequestType
  /** Computed again for each connection. */
  readonly data?: (leftMs: number) => Frame['data']
  /** The longest time that the daemon may wait, and in which the request is sent again if the connection is lost. */
  readonly waitMs?: number
  /** True: also wait for a daemon that was never there. */
  readonly waitsForStart?: boolean
  /** Time for the answer, if `waitMs` does not say it. */
  readonly answerMs?: number
  /** The request must not be sent twice: the daemon may have got it before the connection was lost. */
  readonly isOnce?: boolean
  readonly signal?: AbortSignal | undefined
  /** The answer in memory, read if the daemon is away or slow; undefined: there is none. */
  readonly fallback?: () => T | undefined
}

/** The answer's fields. Rejects with TokenClientError, or with the signal's reason. */
export function call<T>(connection: ReconnectingConnection, options: Call<T>): Promise<T> {
  const { type, waitMs = 0, signal, fallback = () => undefined } = options
  const { monotonicMs } = connection
  const answerMs =
    options.waitMs === undefined ? (options.answerMs ?? ANSWER_MS) : Math.max(waitMs, SLOW_MS) + SLOW_MS
  const untilMs = monotonicMs() + waitMs
  const leftMs = (): number => Math.max(0, untilMs - monotonicMs())
  const inMemory = connection.isSilent && signal?.aborted !== true ? fallback() : undefined
  // Not at once: a caller that asks in a loop would keep the process from reading the daemon's answers.
  if (inMemory !== undefined) return new Promise((resolve) => setImmediate(resolve, inMemory))
  let sends = 0
  /** A fault of a daemon that may be stopping: the next daemon may have a token. */
  let earlyFault: TokenClientError | undefined

  /** Gives the answer in memory. False: there is none. */
  function fallBack({ resolve }: Wait<T>): boolean {
    const value = fallback()
    if (value !== undefined) resolve(value)
    return value !== undefined
  }

  return waitFor<T>({
    forMs: answerMs,
    signal,
    onDeadline(wait) {
      if (!fallBack(wait)) wait.reject(earlyFault ?? timeoutError(answerMs))
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
          if (FAULTS_OF_ABSENCE.has(fault.code) && fallBack(wait)) return
          const isEarly = FAULTS_WITHOUT_TOKEN.has(fault.code) && leftMs() > EARLY_MS
          if (isEarly && connection.mayStop) earlyFault = fault
          else wait.reject(fault)
        },
        onDisconnect(disconnect) {
          if (!disconnect.isClosed && fallBack(wait)) return false
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
  const { error, isClosed, wasEverConnected = false } = disconnect
  const code = errorCode(error)
  if (isClosed || code === 'bad-request') return false
  // A daemon that restarts binds its socket first, and opens it to others a moment later.
  if (isForbidden(error)) return wasEverConnected && code === 'EACCES'
  // The queue of the socket is full: a daemon is there.
  return wasEverConnected || options.waitsForStart === true || code === 'EAGAIN'
}

interface Wait<T> {
  readonly resolve: (value: T) => void
  readonly reject: (error: Error) => void
}

/** Calls `begin`, which returns the clean-up and must not settle the wait itself. `onDeadline` must settle it. */
export function waitFor<T>(options: {
  /** Time to the deadline. */
  readonly forMs: number
  readonly signal: AbortSignal | undefined
  readonly onDeadline: (wait: Wait<T>) => void
  readonly begin: (wait: Wait<T>) => () => void
}): Promise<T> {
  const { signal } = options
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason as Error)
    const settle = (how: () => void): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', onAbort)
      end()
      how()
    }
    const wait: Wait<T> = {
      resolve: (value) => settle(() => resolve(value)),
      reject: (error) => settle(() => reject(error)),
    }
    const onAbort = (): void => wait.reject(signal?.reason as Error)
    const timer = setTimeout(() => options.onDeadline(wait), options.forMs)
    signal?.addEventListener('abort', onAbort)
    const end = options.begin(wait)
  })
}
