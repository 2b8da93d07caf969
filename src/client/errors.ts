// The client's one class of errors, and each of them: a fault, a lost connection, a mistake of the caller.
import { clientRemedyOf } from '../host/remedy.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorCode, errorMessage } from '../lib/error.ts'
import type { FaultCode } from '../protocol.ts'

/** No daemon there, no answer in time, client closed. */
const CLIENT_CODES = ['daemon-unreachable', 'timeout', 'closed'] as const
/** The daemon's codes and the client's. A newer daemon may have others, which are as it sends them. */
export type TokenClientErrorCode = FaultCode | (typeof CLIENT_CODES)[number]
/** A code, a verdict: also one of a newer daemon. */
export const WORD = /^[a-z-]{1,64}$/
/** Longest text of a daemon in an error. */
const MAX_TEXT = 1_000

interface TokenClientErrorOptions extends ErrorOptions {
  readonly code: TokenClientErrorCode
  readonly reason?: string | undefined
  readonly remedy?: string | undefined
}

/**
 * Every error of TokenClient. The message is one sentence or two with the remedy, and holds no secret and no
 * control character. Recognise it by its `code`: a program may have loaded two copies of this class.
 */
export class TokenClientError extends Error {
  override readonly name = 'TokenClientError'
  readonly code: TokenClientErrorCode
  /** Why the last attempt at the service failed, if that is why there is no token. */
  readonly reason: string | undefined
  /** The message without the remedy. */
  readonly problem: string
  /** What to do, where another may know it better; undefined: the message says it. */
  readonly remedy: string | undefined
  constructor(problem: string, options: TokenClientErrorOptions) {
    const { code, reason, remedy } = options
    super(escapeUnsafe(remedy === undefined ? problem : `${problem}: ${remedy}.`), options)
    this.code = code
    this.reason = reason === undefined ? undefined : escapeUnsafe(reason)
    this.problem = escapeUnsafe(problem)
    this.remedy = remedy === undefined ? undefined : escapeUnsafe(remedy)
  }
}

/** What is known of a connection that was not made or was lost. */
export interface Disconnect {
  /** The socket's path; undefined: none was found. */
  path?: string | undefined
  /** The system's error, a broken frame, or why no path was found; undefined: the other side just closed. */
  error?: Error
  /** `data` of the fault on the lost connection that says why it was closed. */
  closeFault?: Readonly<Record<string, unknown>>
  /** This connection was open. */
  wasConnected?: boolean
  /** Something came on it. */
  wasAnswered?: boolean
  /** Some connection was open at some time. */
  wasEverConnected?: boolean
}

/** The daemon's `fault`, whose texts may be anything. */
export function faultError({ code, message, reason }: Readonly<Record<string, unknown>>): TokenClientError {
  const text = (value: unknown): string | undefined =>
    typeof value === 'string' ? value.slice(0, MAX_TEXT) : undefined
  return new TokenClientError(text(message) ?? 'kyc-tokend gave no reason.', {
    code: isDaemonCode(code) ? code : 'bad-request',
    reason: text(reason),
  })
}

function isDaemonCode(code: unknown): code is FaultCode {
  return typeof code === 'string' && WORD.test(code) && !CLIENT_CODES.some((known) => known === code)
}

/** True if the daemon answered so. */
export function isFault(error: unknown): boolean {
  return error instanceof TokenClientError && isDaemonCode(error.code)
}

/** Why there is no connection to the daemon. */
export function disconnectError(disconnect: Disconnect): TokenClientError {
  const { path, error, closeFault, wasConnected = false, wasAnswered = false } = disconnect
  if (closeFault !== undefined) return faultError(closeFault)
  if (error?.name === 'TokenClientError') return error as TokenClientError
  if (isForbidden(error))
    return new TokenClientError(`The socket ${path} may not be opened by this user`, {
      code: 'denied',
      remedy: clientRemedyOf('denied'),
      cause: error,
    })
  if (wasConnected && !wasAnswered && (error === undefined || errorCode(error) !== undefined))
    return new TokenClientError(`kyc-tokend ended the connection at ${path} without an answer`, {
      code: 'daemon-unreachable',
      remedy: clientRemedyOf('unanswered'),
      cause: error,
    })
  const why = error === undefined ? 'it closed the connection' : (errorCode(error) ?? errorMessage(error))
  return new TokenClientError(`No kyc-tokend answers at ${path} (${why})`, {
    code: 'daemon-unreachable',
    remedy: clientRemedyOf({ kind: 'no-daemon', socket: path }),
    cause: error,
  })
}

/** True if waiting cannot help: access to the socket is denied. */
export function isForbidden(error: unknown): boolean {
  return ['EACCES', 'EPERM', 'denied'].includes(errorCode(error) ?? '')
}

export const closedError = (): TokenClientError =>
  new TokenClientError('This TokenClient was closed: create another one.', { code: 'closed' })

export const badRequest = (message: string): TokenClientError =>
  new TokenClientError(message, { code: 'bad-request' })

export const originError = (origin: string, origins: readonly string[]): TokenClientError =>
  badRequest(
    `The token is for ${origins.join(', ')} and is not sent to ${origin}: name it in the option origins ` +
      "if it may be, or, if a redirect leads there, follow it yourself (redirect: 'manual') without the token.",
  )

export const timeoutError = (answerMs: number): TokenClientError =>
  new TokenClientError(`kyc-tokend gave no answer within ${answerMs / 1_000} s: ${clientRemedyOf('late')}.`, {
    code: 'timeout',
  })
