// The package: a client of kyc-tokend on this host, over its Unix socket.
import type { AlertTestResult, ReloadResult } from '../protocol.ts'
import { createSource } from './create-source.ts'
import { createReconnectingConnection, type Connect } from './connection.ts'
import { socketFinder } from './find-socket.ts'
import type { ClientOptions, TokenSource } from './token-source.ts'

export { TokenClientError, type TokenClientErrorCode } from './errors.ts'
export type {
  Authorization,
  AuthorizeOptions,
  ClientOptions,
  ClientToken,
  FetchOptions,
  GetOptions,
  SubscribeOptions,
  TokenSource,
} from './token-source.ts'
export type {
  AlertTestResult,
  FaultCode,
  Phase,
  RefreshResult,
  ReloadResult,
  RejectResult,
  RejectVerdict,
  StatusResult,
  TokenDescription,
  TokenResult,
} from '../protocol.ts'

export interface TokenClientOptions extends ClientOptions {
  /** The daemon's socket; by default `$KYC_TOKEND_SOCKET`, else the system's or the person's own. */
  socketPath?: string | undefined
  /** The account whose daemon it is; by default `$KYC_TOKEND_ACCOUNT`. Not with `socketPath`. */
  account?: string | undefined
}

/**
 * A client of kyc-tokend. It connects when it is first used, and again after a restart of the daemon; while
 * it waits for nothing it does not keep the process alive. A process needs one: its calls share a connection,
 * and report a refused token once.
 */
export class TokenClient implements TokenSource {
  declare readonly get: TokenSource['get']
  declare readonly authorize: TokenSource['authorize']
  declare readonly fetch: TokenSource['fetch']
  declare readonly subscribe: TokenSource['subscribe']
  declare readonly reject: TokenSource['reject']
  declare readonly status: TokenSource['status']
  declare readonly refresh: TokenSource['refresh']
  /** Raises an alert marked as a test, for 10 s. For root and the daemon's user; others are `denied`. */
  declare readonly alertTest: () => Promise<AlertTestResult>
  /** Has the daemon read its configuration and secrets again. For root and the daemon's user. */
  declare readonly reload: () => Promise<ReloadResult>
  declare readonly close: TokenSource['close']
  declare readonly [Symbol.dispose]: TokenSource['close']

  /**
   * Opens nothing. Throws TypeError if one of `origins` is no URL, and TokenClientError (`bad-request`) if
   * socket and account are both named or the account's name is none.
   */
  constructor(options: TokenClientOptions = {}) {
    const findPath = socketFinder(() => ({ env: process.env, uid: process.geteuid?.() ?? -1 }), options)
    const connect: Connect = (...wiring) => createReconnectingConnection(findPath, ...wiring)
    Object.assign(this, createSource(options, connect))
  }
}
