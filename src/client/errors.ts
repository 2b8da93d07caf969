// The client's one class of errors, and each of them: a fault, a lost connection, a mistake of the caller.
import { clientRemedyOf } from '../host/remedy.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorCode, errorMessage } from '../lib/error.ts'
import type { FaultCode } from '../protocol.ts'

/** The daemon's codes (a newer daemon may have others) and those of the client itself. */
export type TokenClientErrorCode = FaultCode | 'daemon-unreachable' | 'timeout' | 'closed'

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
  /** The remedy alone; undefined: the message says it. */
  readonly remedy: string | undefined
  constructor(problem: string, options: TokenClientErrorOptions) {
    const { code, reason, remedy } = options
    super(escapeUnsafe(remedy === undefined ? problem : `${problem}: ${remedy}.`), options)
    this.code = code
    this.reason = reason === undefined ? undefined : escapeUnsafe(reason)
    this.problem = escapeUnsafe(problem)
    this.remedy = remedy
  }
}

/** Reports whether the daemon says by this fault that it has no token. */
export function isWithoutToken({ code }: TokenClientError): boolean {
  return ['no-token-yet', 'expired', 'account-inactive', 'account-not-found'].includes(code)
}

/** The daemon's `fault`. */
export function faultError({ code, message, reason }: Readonly<Record<string, unknown>>): TokenClientError {
  return new TokenClientError(String(message), {
    code: String(code) as FaultCode,
    reason: typeof reason === 'string' ? reason : undefined,
  })
}

/**
 * Why there is no connection to the daemon at the path (undefined: there was none). `error`: of the system, of a
 * broken frame, or of the search for the path; undefined: the other side closed the connection.
 */
export function disconnectError(disconnect: {
  readonly path: string | undefined
  readonly error?: Error | undefined
  readonly isOpen?: boolean
  readonly isAnswered?: boolean
}): TokenClientError {
  const { path, error, isOpen = false, isAnswered = false } = disconnect
  if (error instanceof TokenClientError) return error
  const code = errorCode(error)
  if (code === 'EACCES' || code === 'EPERM')
    return new TokenClientError(`The socket ${path} may not be opened by this user`, {
      code: 'denied',
      remedy: clientRemedyOf('denied'),
      cause: error,
    })
  const isUnanswered = isOpen && !isAnswered
  const why = error === undefined ? 'it closed the connection' : (code ?? errorMessage(error))
  const problem = isUnanswered
    ? `kyc-tokend ended the connection at ${path} without an answer`
    : `No kyc-tokend answers at ${path} (${why})`
  return new TokenClientError(problem, {
    code: 'daemon-unreachable',
    remedy: isUnanswered ? clientRemedyOf('unanswered') : clientRemedyOf({ kind: 'no-daemon', socket: path }),
    cause: error,
  })
}

export const closedError = (): TokenClientError =>
  new TokenClientError('This TokenClient was closed: create another one.', { code: 'closed' })

export const badRequest = (message: string): TokenClientError =>
  new TokenClientError(message, { code: 'bad-request' })

export const timeoutError = (answerMs: number): TokenClientError =>
  new TokenClientError(`kyc-tokend gave no answer within ${answerMs / 1_000} s: ${clientRemedyOf('late')}.`, {
    code: 'timeout',
  })
