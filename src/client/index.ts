// The package: a client of kyc-tokend on this host, over its Unix socket.
import { createSource } from './create-source.ts'
import { socketFinder } from './find-socket.ts'
import { createLink } from './link.ts'
import type { TokenClientOptions, TokenSource } from './token-source.ts'

export { TokenClientError } from './token-source.ts'
export type * from './token-source.ts'
export type { FaultCode, Phase, RejectResult, RejectVerdict, StatusResult, TokenResult } from '../protocol.ts'

/** An object that is given the methods of a client. */
const Bound = Object as unknown as new () => TokenSource

/**
 * A client of kyc-tokend. It connects when it is first used, and again after a restart of the daemon; while it
 * waits for nothing it does not keep the process alive. A process needs one: its calls share a connection, and
 * report a refused token once.
 */
export class TokenClient extends Bound {
  /**
   * Opens nothing. Throws TypeError if one of `origins` is no URL, and TokenClientError (`bad-request`) if
   * socket and account are both named or the account's name is none.
   */
  constructor(options: TokenClientOptions = {}) {
    super()
    const findPath = socketFinder(() => ({ env: process.env, uid: process.geteuid?.() ?? -1 }), options)
    Object.assign(this, createSource(options, createLink(findPath, options.name)))
  }
}
