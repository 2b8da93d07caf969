// One request to the daemon and its answer: sent again after a restart while there is time, or answered from
// memory.
import { clearImmediate, setImmediate } from 'node:timers'
import { errorCode } from '../lib/error.ts'
import { answerTypes, type FaultCode, type RequestType } from '../protocol.ts'
import type { ReconnectingConnection } from './connection.ts'
import {
  disconnectError,
  faultError,
  isForbidden,
  timeoutError,
  type Disconnect,
  type TokenClientErrorCode,
} from './errors.ts'
import type { Frame } from './frames.ts'
import { unlessAborted } from './signals.ts'

/** The longest wait for an answer to a request without a wait of its own. */
const ANSWER_MS = 5_000
/** The time for an answer that waits for nothing. After it a token in memory is given, or the call fails. */
const SLOW_MS = 250
/** The event loop of a program in which a timer is later than this has been busy. */
const LATE_MS = 50
/** Faults that a daemon gives whatever the request is: it counts as absent. */
const FAULTS_OF_ABSENCE: ReadonlySet<string> = new Set<FaultCode>(['busy'])
/** Root and the daemon's user alone may send these. */
const PRIVILEGED: ReadonlySet<RequestType> = new Set<RequestType>([
  'refresh.request',
  'reload.request',
  'alert.test',
])
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
  /** How long the daemon may wait at most, and the request is sent again if the connection is lost. */
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
export const isWithoutToken = (error: unknown): boolean => ENDS_OF_WAIT.has(errorCode(error) ?? '')

/** The answer's fields. Rejects with TokenClientError, or with a signal's reason. */
export async function call<T>(connection: ReconnectingConnection, options: Call<T>): Promise<T> {
  const { type, waitMs = 0, answerMs = ANSWER_MS, signals, fallback } = options
  const { monotonicMs } = connection
  const untilMs = monotonicMs() + waitMs
  const leftMs = (): number => Math.max(0, untilMs - monotonicMs())
  for (const signal of signals) signal?.throwIfAborted()
  let sends = 0
  let end = (): void => undefined
  const answer = new Promise<T>((resolve, reject) => {
    /** Gives the answer in memory. False: there is none. */
    function fallBack(): boolean {
      const value = fallback?.()
      if (value !== undefined) resolve(value)
      return value !== undefined
    }
    const stopSlow = giveUpAfter(SLOW_MS, { monotonicMs, giveUp: fallBack })
    function giveUp(): void {
      if (fallBack()) return
      if (sends === 0 && connection.isBehind?.() === true) startDeadline()
      else reject(timeoutError(answerMs))
    }
    let stopDeadline = (): void => undefined
    function startDeadline(): void {
      stopDeadline()
      stopDeadline = giveUpAfter(answerMs, { monotonicMs, giveUp })
    }
    startDeadline()
    const close = connection.open({
      isPrivileged: PRIVILEGED.has(type),
      frame() {
        // The time of what is sent at once, or waits for nothing, begins now.
        const isFirst = sends === 0 && waitMs - leftMs() < SLOW_MS
        if (isFirst || waitMs === 0) startDeadline()
        sends += 1
        return { type, data: options.data?.(isFirst ? waitMs : leftMs()) ?? {} }
      },
      onAnswer(frame) {
        if (frame.type === answerTypes[type]) return resolve(frame.data as T)
        if (frame.type !== 'fault') return
        const fault = faultError(frame.data)
        if (!FAULTS_OF_ABSENCE.has(fault.code) || !fallBack()) reject(fault)
      },
      onDisconnect(disconnect) {
        if (fallBack()) return false
        const canBeSent = leftMs() > 0 || (disconnect.wasConnected && sends < 2)
        if (canBeSent && connection.mayStop && options.isOnce !== true && isWorthAnother(disconnect, options))
          return true
        reject(disconnectError(disconnect))
        return false
      },
    })
    end = () => {
      stopSlow()
      stopDeadline()
      close()
    }
  })
  try {
    return await unlessAborted(answer, ...signals)
  } finally {
    end()
  }
}

/**
 * Gives up after `ms`, but never before one more turn of the loop, in which what has come is read. A program
 * that was busy, so that the timer is late, has read nothing meanwhile: it waits a moment longer, once. The
 * turn is a real one under fake timers, too: those replace the global functions.
 */
function giveUpAfter(ms: number, options: { monotonicMs: () => number; giveUp: () => unknown }): () => void {
  const { monotonicMs, giveUp } = options
  const dueMs = monotonicMs() + ms
  let turn: NodeJS.Immediate | undefined
  const afterTurn = (): void => void (turn = setImmediate(giveUp))
  let timer = setTimeout(() => {
    if (monotonicMs() - dueMs < LATE_MS) afterTurn()
    else timer = setTimeout(afterTurn, SLOW_MS)
  }, ms)
  return () => {
    clearTimeout(timer)
    clearImmediate(turn)
  }
}

/**
 * Whether the request waits for another connection. Without `waitsForStart` it does so only if a daemon was
 * there before.
 */
function isWorthAnother(disconnect: Disconnect, options: Call<unknown>): boolean {
  const { error, closeFault, wasEverConnected = false } = disconnect
  const code = errorCode(error)
  if (code === 'bad-request' || isForbidden(closeFault)) return false
  // A daemon that restarts binds its socket first, and opens it to others a moment later.
  if (isForbidden(error)) return wasEverConnected && code === 'EACCES'
  // The queue of the socket is full: a daemon is there.
  return wasEverConnected || options.waitsForStart === true || code === 'EAGAIN'
}
