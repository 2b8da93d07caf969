// The package: a client of kyc-tokend on this host, over its Unix socket.
import { createSource } from './create-source.ts'
import { socketFinder } from './find-socket.ts'
import { createLink } from './link.ts'
import type { ClientOptions, TokenSource } from './token-source.ts'

export { TokenClientError } from './token-source.ts'
export type * from './token-source.ts'
export type { FaultCode, Phase, RejectResult, RejectVerdict, StatusResult, TokenResult } from '../protocol.ts'

export interface TokenClientOptions extends ClientOptions {
  /** The daemon's socket; by default `$KYC_TOKEND_SOCKET`, else the system's or the person's own. */
  socketPath?: string | undefined
  /** The account whose daemon it is; by default `$KYC_TOKEND_ACCOUNT`. Not with `socketPath`. */
  account?: string | undefined
}

/**
 * A client of kyc-tokend. It connects when it is first used, and again after a restart of the daemon; while it
 * waits for nothing it does not keep the process alive. A process needs one: its calls share a connection, and
 * report a refused token once.
 */
export class TokenClient implements TokenSource {
  declare readonly get: TokenSource['get']
  declare readonly authorize: TokenSource['authorize']
  declare readonly fetch: TokenSource['fetch']
  declare readonly subscribe: TokenSource['subscribe']
  declare readonly reject: TokenSource['reject']
  declare readonly status: TokenSource['status']
  declare readonly close: TokenSource['close']

  /**
   * Opens nothing. Throws TypeError if one of `origins` is no URL, and TokenClientError (`bad-request`) if
   * socket and account are both named or the account's name is none.
   */
  constructor(options: TokenClientOptions = {}) {
    const findPath = socketFinder(() => ({ env: process.env, uid: process.geteuid?.() ?? -1 }), options)
    Object.assign(this, createSource(options, createLink(findPath, options.name)))
  }
}
