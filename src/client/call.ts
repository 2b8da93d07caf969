// One request to the daemon and its answer: sent again after a restart while there is time, or answered from memory.
import { errorCode, exitStatus, UserError } from '../lib/error.ts'
import { answerTypes, type FaultCode, type RequestType } from '../protocol.ts'
import type { Disconnect, Frame, ReconnectingConnection } from './connection.ts'
import { disconnectError, faultError, isForbidden, timeoutError } from './faults.ts'
import type { TokenClientError } from './errors.ts'
import { waitFor, type Wait } from './wait.ts'

/** Time for an answer for which the daemon has nothing to wait. */
const ANSWER_MS = 5_000
/** An answer may take so much longer than the daemon was asked to wait, and than an answer in memory can wait for it. */
const SLOW_MS = 250
/** Waits are counted on both sides of a socket: an answer with more time left did not wait for its end. */
const EARLY_MS = 500

export interface Call<T> {
  readonly type: RequestType
  /** Computed again for each connection. */
  readonly data: (leftMs: number) => Frame['data']
  /** The daemon may wait so long, and so long the request is sent again where the connection is lost. */
  readonly waitMs?: number
  /** True: wait for a daemon, too, that was never there. */
  readonly waitsForStart?: boolean
  /** Time for the answer of a daemon that does not wait. */
  readonly answerMs?: number
  /** A lost connection may have had the request, which must not be sent twice. */
  readonly isOnce?: boolean
  readonly signal?: AbortSignal | undefined
  /** The answer in memory, read where the daemon is away or slow; undefined: there is none. */
  readonly fallback?: () => T | undefined
}

/** The answer's fields. Rejects with TokenClientError, or with the signal's reason. */
export function call<T>(connection: ReconnectingConnection, options: Call<T>): Promise<T> {
  const { type, waitMs = 0, signal, fallback = () => undefined } = options
  const { monotonicMs } = connection
  const answerMs = waitMs > 0 ? waitMs + SLOW_MS : (options.answerMs ?? ANSWER_MS)
  const untilMs = monotonicMs() + waitMs
  const leftMs = (): number => Math.max(0, untilMs - monotonicMs())
  const inMemory = fallback()
  if (inMemory !== undefined && connection.isStuck && signal?.aborted !== true)
    return Promise.resolve(inMemory)
  let sends = 0
  /** At the next deadline. With an answer in memory the first one comes early. */
  let isOver = inMemory === undefined
  /** The answer of a daemon that is stopping to those who wait. */
  let parting: TokenClientError | undefined

  /** True where there is an answer in memory, which is given. */
  function fallBack({ resolve }: Wait<T>): boolean {
    const value = fallback()
    if (value !== undefined) resolve(value)
    return value !== undefined
  }

  return waitFor<T>({
    forMs: isOver ? answerMs : SLOW_MS,
    signal,
    onDeadline: (wait) => {
      if (fallBack(wait)) return connection.onSilence()
      if (isOver) return wait.reject(parting ?? timeoutError(answerMs))
      isOver = true
      return answerMs - SLOW_MS
    },
    begin: (wait) =>
      connection.open({
        frame: () => ({ type, data: options.data((sends += 1) === 1 ? waitMs : leftMs()) }),
        onAnswer: (frame) => {
          if (frame.type === answerTypes[type]) return wait.resolve(frame.data as T)
          if (frame.type !== 'fault') return
          const fault = faultError(frame.data)
          if (isOfAbsence(fault) && fallBack(wait)) return
          if (connection.mayStop && isTooEarly(fault, leftMs())) parting = fault
          else wait.reject(fault)
        },
        onDisconnect: (disconnect) => {
          if (!disconnect.isClosed && fallBack(wait)) return false
          const canBeSent = leftMs() > 0 || (disconnect.wasConnected && sends < 2)
          if (canBeSent && options.isOnce !== true && isWorthAnother(disconnect, options)) return true
          wait.reject(disconnectError(disconnect))
          return false
        },
      }),
  })
}

/** A daemon that was never there is waited for only on demand: there may be none. */
function isWorthAnother(disconnect: Disconnect, options: Call<unknown>): boolean {
  const { error, isClosed, wasEverConnected } = disconnect
  if (isClosed || (error instanceof UserError && error.status === exitStatus.usage)) return false
  // A daemon that restarts binds its socket first, and opens it to others a moment later.
  if (isForbidden(error)) return wasEverConnected && errorCode(error) === 'EACCES'
  // The queue of the socket is full: a daemon is there.
  return wasEverConnected || options.waitsForStart === true || errorCode(error) === 'EAGAIN'
}

/** Faults of a daemon that does not look at the request. */
function isOfAbsence({ code }: TokenClientError): boolean {
  return (['busy', 'misconfigured'] satisfies FaultCode[] as string[]).includes(code)
}

/** A daemon that stays says so only when the time to wait is over. */
function isTooEarly({ code }: TokenClientError, leftMs: number): boolean {
  return (code === 'no-token-yet' || code === 'expired') && leftMs > EARLY_MS
}
