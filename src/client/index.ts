// The package: a client of kyc-tokend on this host, over its Unix socket.
import { UserError } from '../lib/error.ts'
import { CONNECTION_IDLE_MS, type AlertTestResult } from '../protocol.ts'
import { createSource } from './create-source.ts'
import { createReconnectingConnection } from './connection.ts'
import { currentIdentity, findSocket, socketName } from './find-socket.ts'
import { asClientError } from './faults.ts'
import type { TokenSource } from './token-source.ts'

export { TokenClientError, type TokenClientErrorCode } from './errors.ts'
export type { ClientToken, GetOptions, TokenSource } from './token-source.ts'
export type {
  AlertTestResult,
  FaultCode,
  Phase,
  RefreshResult,
  RejectResult,
  RejectVerdict,
  StatusResult,
  TokenDescription,
  TokenResult,
} from '../protocol.ts'

export interface TokenClientOptions {
  /** The daemon's socket; by default `$KYC_TOKEND_SOCKET`, else the first that is there of the system's and the person's own. */
  socketPath?: string
  /** The account whose daemon it is, where a host has several; by default `$KYC_TOKEND_ACCOUNT`. Not with `socketPath`. */
  account?: string
  /** Names this program in the daemon's log. */
  name?: string
  /** Origins to which `fetch` may send the token; by default that of the service's `baseUrl` alone. */
  origins?: readonly string[]
}

/** Enough for every answer: a token of 16 KiB, or the status with many files. */
const MAX_ANSWER_BYTES = 1024 * 1024
/** Before the daemon does it: a request must not meet a connection that is being closed. */
const IDLE_MS = CONNECTION_IDLE_MS / 2

/**
 * A client of kyc-tokend. It connects when it is first used and again after a restart of the daemon; while it waits
 * for nothing it does not keep the process alive.
 *
 * @example
 * ```js
 * import { TokenClient } from 'kyc-tokend'
 *
 * const tokens = new TokenClient({ name: 'my-service' })
 * const { accessToken, expiresAt } = await tokens.get({ minValidSeconds: 60 })
 * ```
 */
export class TokenClient implements TokenSource {
  readonly get: TokenSource['get']
  readonly fetch: TokenSource['fetch']
  readonly subscribe: TokenSource['subscribe']
  readonly reject: TokenSource['reject']
  readonly status: TokenSource['status']
  readonly refresh: TokenSource['refresh']
  /** Raises an alert that is marked as a test, for 10 s. For root and the daemon's own user; others are `denied`. */
  readonly alertTest: () => Promise<AlertTestResult>
  readonly close: TokenSource['close']

  /**
   * Opens nothing. Throws TypeError where one of `origins` is no URL, and TokenClientError (`bad-request`) where
   * socket and account are both named or the account's name is none.
   */
  constructor(options: TokenClientOptions = {}) {
    const socket = named(options)
    const source = createSource({
      name: options.name,
      origins: options.origins?.map((origin) => new URL(origin).origin),
      connect: (onAnswer) =>
        createReconnectingConnection({
          findPath: () => findSocket(currentIdentity(), socket),
          maxFrameBytes: MAX_ANSWER_BYTES,
          idleMs: IDLE_MS,
          random: Math.random,
          onAnswer,
        }),
    })
    this.get = source.get
    this.fetch = source.fetch
    this.subscribe = source.subscribe
    this.reject = source.reject
    this.status = source.status
    this.refresh = source.refresh
    this.alertTest = source.alertTest
    this.close = source.close
  }
}

function named(options: TokenClientOptions): ReturnType<typeof socketName> {
  try {
    return socketName(currentIdentity(), options)
  } catch (error) {
    throw error instanceof UserError ? asClientError(error) : error
  }
}
