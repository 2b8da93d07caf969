// Faults and disconnects as TokenClientError: each with its code, and a sentence that names the remedy.
import { accountOfSocket, unitNames } from '../lib/account.ts'
import { errorCode, errorMessage } from '../lib/error.ts'
import { faultCodes } from '../protocol.ts'
import type { Disconnect, Frame } from './connection.ts'
import { TokenClientError } from './errors.ts'

/** The command that starts the daemon of this socket; without a path, the daemon of the default account. */
export function startRemedy(path?: string): string {
  const account = path === undefined ? undefined : accountOfSocket(path)
  const start = `start it with \`systemctl start ${unitNames(account).unit}\``
  return account === undefined ? `${start} or \`kyc-tokend run\`` : start
}

/** The daemon's `fault`. */
export function faultError({ code, message, reason }: Frame['data']): TokenClientError {
  return new TokenClientError(typeof message === 'string' ? message : 'kyc-tokend gave no reason.', {
    code: faultCodes.find((known) => known === code) ?? 'bad-request',
    ...(typeof reason === 'string' && { reason }),
  })
}

/** The error that says why there is no connection to the daemon. */
export function disconnectError({ isClosed, path, error, closeFrame }: Disconnect): TokenClientError {
  if (isClosed) return closedError()
  if (closeFrame?.type === 'fault') return faultError(closeFrame.data)
  if (error instanceof TokenClientError) return error
  if (isForbidden(error)) {
    const message = `The socket ${path} may not be opened by this user: have the user added to its group (usermod -aG kyc-token USER) and log in again.`
    return new TokenClientError(message, { code: 'denied', cause: error })
  }
  const why = error === undefined ? 'it closed the connection' : (errorCode(error) ?? errorMessage(error))
  const message = `No kyc-tokend answers at ${path} (${why}): ${startRemedy(path)}.`
  return new TokenClientError(message, { code: 'daemon-unreachable', cause: error })
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
    `The token is for ${origins.join(', ')} and is not sent to ${origin}: name it in the option origins if it may be.`,
  )

export function timeoutError(answerMs: number): TokenClientError {
  const message = `kyc-tokend gave no answer within ${answerMs / 1_000} s: see its log (journalctl -u 'kyc-tokend*').`
  return new TokenClientError(message, { code: 'timeout' })
}

/** The token was refused, and the time to wait for another is over. */
export function refusedError(retryAfterMs: number): TokenClientError {
  const retryAfterSeconds = Math.max(1, Math.ceil(retryAfterMs / 1_000))
  const message = `The service refused the token and there is no other yet: try again in ${retryAfterSeconds} s, and see \`kyc-tokend status\`.`
  return new TokenClientError(message, { code: 'token-refused', retryAfterSeconds })
}
