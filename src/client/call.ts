// One request to the daemon and its answer: sent again after a restart while there is time, or answered from memory.
import { errorCode } from '../lib/error.ts'
import { answerTypes, type FaultCode, type RequestType } from '../protocol.ts'
import type { ReconnectingConnection, Disconnect } from './connection.ts'
import { disconnectError, faultError, isForbidden, timeoutError } from './faults.ts'
import type { TokenClientError } from './errors.ts'
import type { Frame } from './frames.ts'
import { monotonicMs } from '../lib/monotonic.ts'

/** The answer may take so much longer than the daemon was asked to wait. */
const ANSWER_MARGIN_MS = 5_000
/** A daemon that takes longer counts as away, where there is an answer in memory. */
const FALLBACK_AFTER_MS = 250
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
  /** Time for the answer; by default a little longer than `waitMs`. */
  readonly answerMs?: number
  /** Times that it may be sent within no time to wait: a lost connection may have had its request. */
  readonly maxSends?: number
  readonly signal?: AbortSignal | undefined
  /** The answer in memory, read where the daemon is away or slow; undefined: there is none. */
  readonly fallback?: () => T | undefined
}

/** The answer's fields without the id. Rejects with TokenClientError, or with the signal's reason. */
export function call<T>(connection: ReconnectingConnection, options: Call<T>): Promise<T> {
  const { type, waitMs = 0, answerMs = waitMs + ANSWER_MARGIN_MS, signal } = options
  return new Promise<T>((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason as Error)
    const untilMs = monotonicMs() + waitMs
    const leftMs = (): number => Math.max(0, untilMs - monotonicMs())
    let sends = 0
    /** The answer of a daemon that is stopping to those who wait. */
    let parting: TokenClientError | undefined
    const settle = (how: () => void): void => {
      end()
      clearTimeout(timeout)
      clearTimeout(impatience)
      signal?.removeEventListener('abort', onAbort)
      how()
    }
    const onAbort = (): void => settle(() => reject(signal?.reason as Error))
    const fail = (error: Error): void => settle(() => reject(error))
    /** True where there is an answer in memory, which is given. */
    const fallBack = (): boolean => {
      const value = options.fallback?.()
      if (value !== undefined) settle(() => resolve(value))
      return value !== undefined
    }
    const onFault = (fault: TokenClientError): void => {
      if (isOfAbsence(fault) && fallBack()) return
      if (isTooEarly(fault, leftMs())) parting = fault
      else fail(fault)
    }
    const end = connection.open({
      frame: () => ({ type, data: options.data((sends += 1) === 1 ? waitMs : leftMs()) }),
      onAnswer: (frame) => {
        if (frame.type === 'fault') onFault(faultError(frame.data))
        else if (frame.type === answerTypes[type]) settle(() => resolve(withoutId(frame.data) as T))
      },
      onDisconnect: (disconnect) => {
        if (!disconnect.isClosed && fallBack()) return false
        const canBeSent = leftMs() > 0 || (disconnect.wasConnected && sends < (options.maxSends ?? 2))
        if (canBeSent && isWorthAnother(disconnect, options)) return true
        fail(disconnectError(disconnect))
        return false
      },
    })
    const timeout = setTimeout(() => fail(parting ?? timeoutError(answerMs)), answerMs)
    const impatience = options.fallback === undefined ? undefined : setTimeout(fallBack, FALLBACK_AFTER_MS)
    signal?.addEventListener('abort', onAbort)
  })
}

/** A daemon that was never there is waited for only on demand: there may be none. */
function isWorthAnother(disconnect: Disconnect, options: Call<unknown>): boolean {
  const { error, isClosed, wasEverConnected } = disconnect
  if (isClosed) return false
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

export function withoutId(data: Frame['data']): object {
  return Object.fromEntries(Object.entries(data).filter(([name]) => name !== 'id'))
}
