// The one error class of the client library, in a file of its own: both bundles of the package must have the same class.
import type { FaultCode } from '../protocol.ts'

/** The daemon's codes, and: no daemon there, no answer in time, client closed, token refused and no other there yet. */
export type TokenClientErrorCode = FaultCode | 'daemon-unreachable' | 'timeout' | 'closed' | 'token-refused'

/** Every error of TokenClient. The message is one sentence with the remedy, and holds no secret. */
export class TokenClientError extends Error {
  override readonly name = 'TokenClientError'
  readonly code: TokenClientErrorCode
  /** Why the last attempt at the service failed, if that is why there is no token. */
  readonly reason: string | undefined
  /** With `token-refused`: when the daemon asks the service for another, in seconds from now. */
  readonly retryAfterSeconds: number | undefined
  constructor(
    message: string,
    options: ErrorOptions & { code: TokenClientErrorCode; reason?: string; retryAfterSeconds?: number },
  ) {
    super(message, options)
    this.code = options.code
    this.reason = options.reason
    this.retryAfterSeconds = options.retryAfterSeconds
  }
}
