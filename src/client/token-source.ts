// A client of kyc-tokend as an interface that tests can fake.
import type { RefreshResult, RejectResult, StatusResult, TokenResult } from '../protocol.ts'
import type { TokenClientError } from './errors.ts'

/** A token with its times. */
export interface ClientToken extends TokenResult {
  /** From the client's memory, because the daemon was away or slow to answer. */
  cached?: true
}

export interface GetOptions {
  /** The life that the token should still have, in seconds (0 to 86400). The answer says whether it does. */
  minValidSeconds?: number
  /** Wait for another token than the one with this fingerprint. */
  notFingerprint?: string
  /** The longest wait for it, in seconds (0 to 60, by default 10); if given, also for a daemon that is not started yet. */
  waitSeconds?: number
  /** Ends the waiting: the call is rejected with the signal's reason. */
  signal?: AbortSignal
}

export interface FetchOptions {
  /** Origins to which `fetch` may send the token; by default that of the service's `baseUrl` alone. */
  origins?: readonly string[] | undefined
  /** Reports that an answer says that the token is refused; by default its status does (`refusedBy` of the token, 401). */
  isRefusal?: ((response: Response) => boolean | Promise<boolean>) | undefined
}

export interface SubscribeOptions {
  /** Called once for each cause why there is no token. The absence of a daemon that is back within a second is no cause. */
  onFault?: (fault: TokenClientError) => void
  /** Ends the subscription. */
  signal?: AbortSignal
}

/**
 * Implemented by `TokenClient`, and for tests by `createFakeTokenClient` of `kyc-tokend/testing`. All methods are bound,
 * and reject with TokenClientError: `denied`, `busy`, `bad-request` (the daemon did not accept the request),
 * `daemon-unreachable`, `timeout`, `closed`; if there is no token `no-token-yet`, `expired`, `account-inactive`,
 * `account-not-found`, `misconfigured`.
 */
export interface TokenSource {
  /**
   * The token. Waits for a first one, or for one that lives long enough, up to `waitSeconds`, also across a restart
   * of the daemon; then gives the freshest there is. Where the daemon is away, or has not answered within 250 ms, it
   * gives the last token again (`cached: true`), unless that was refused, is too old for `minValidSeconds` or expired.
   *
   * @example
   * ```js
   * const { accessToken } = await tokens.get({ minValidSeconds: 60, waitSeconds: 20 })
   * const response = await fetch(url, { headers: { authorization: `Bearer ${accessToken}` } })
   * ```
   */
  readonly get: (options?: GetOptions) => Promise<ClientToken>

  /**
   * As the platform's `fetch`, with the token in the Authorization header, for the origin of the service's `baseUrl`
   * (or those of the option `origins`) and no other. A 401 is reported; if another token comes within 10 s and
   * the body can be sent again (a stream cannot; of a Request object, up to 1 MiB), the request is sent once more,
   * else the 401 is the answer. Further calls are sent with the reported token one at a time, until one is answered with
   * a 2xx: then the 401 concerned its caller alone. Meanwhile the others wait, up to 10 s.
   *
   * @throws {TokenClientError} also `bad-request` for another origin, and `token-refused` if the service refused the
   * token and there is no other yet (`retryAfterSeconds` says when the daemon asks for one)
   */
  readonly fetch: (input: string | URL | Request, init?: RequestInit) => Promise<Response>

  /**
   * Calls the listener with the token, now and at each change of it or of its state, also across restarts of the
   * daemon; never twice for the same, and never after its end. Returns a function that ends it; until then the
   * process stays alive.
   *
   * While there is no token, or no daemon, the listener is not called; `onFault` is, once for each cause. What a
   * listener throws is an uncaught exception of the program, and the subscription goes on.
   */
  readonly subscribe: (listener: (token: TokenResult) => void, options?: SubscribeOptions) => () => void

  /** Reports that the service answered 401 to this token. Only its fingerprint is sent, so `{ fingerprint }` is enough. */
  readonly reject: (token: string | { fingerprint: string }) => Promise<RejectResult>

  /** The token that the daemon holds, what fails and since when, and what it writes and serves. Never has the token itself. */
  readonly status: () => Promise<StatusResult>

  /** Has the daemon ask the service now, also after a refusal. For root and the daemon's own user; others are `denied`. */
  readonly refresh: (options?: { signal?: AbortSignal }) => Promise<RefreshResult>

  /** Ends everything: calls under way are rejected with `closed`, listeners are called no more. */
  readonly close: () => void
  readonly [Symbol.dispose]: () => void
}
