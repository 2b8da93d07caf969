// A client of kyc-tokend as an interface that tests can fake.
import type { RejectResult, StatusResult, TokenResult } from '../protocol.ts'

/** A token with its times, and how the API wants it. */
export interface ClientToken extends TokenResult {
  header: string
  prefix: string
  refusedBy: readonly number[]
  /** From the client's memory, because the daemon is away. */
  cached?: true
}

export interface SignalOption {
  /** Ends the waiting: the call is rejected with the signal's reason. Null is none. */
  signal?: AbortSignal | null | undefined
}

export interface GetOptions extends SignalOption {
  /** The life that the token should still have, in seconds (0 to 86400). The answer says whether it does. */
  minValidSeconds?: number | undefined
  /** Wait for another token than the one with this fingerprint. */
  notFingerprint?: string | undefined
  /** The longest wait, in seconds (0 to 60; 10); if given, also for a daemon that is not started yet. */
  waitSeconds?: number | undefined
}

/** `signal` also ends the waiting of `refused`. */
export interface AuthorizeOptions extends SignalOption {
  /** As that of `get`. */
  minValidSeconds?: number | undefined
  /**
   * Where the call goes, and its method (GET): if two tokens are refused there, its refusals concern the
   * callers of this method, origin and path alone for 5 min. Without it that is not remembered, and each call
   * that the API refuses for a reason of its own costs another token.
   */
  url?: string | URL | undefined
  method?: string | undefined
}

/** The header and the token for one call to the API. */
export interface Authorization {
  /** The header with the token, as the API wants it: by default `{ Authorization: 'Bearer …' }`. */
  readonly headers: Readonly<Record<string, string>>
  /** Its `refusedBy` has the statuses by which the API says that it refuses the token. */
  readonly token: ClientToken
  /**
   * Call it if the API refuses the token. Reports the token, once however many calls it hits, and gives the
   * authorization for one repetition; undefined if no other token comes within 10 s, none can come, or this was
   * the repetition: then the refusal is the answer to the call.
   */
  readonly refused: () => Promise<Authorization | undefined>
}

export interface ClientOptions {
  /** Names this program in the daemon's log. */
  name?: string | undefined
  /** Origins to which `fetch` may send the token; by default that of the service's `baseUrl` alone. */
  origins?: readonly string[] | undefined
}

/**
 * Implemented by `TokenClient`, and for tests by `createFakeTokenClient` of `kyc-tokend/testing`. All methods
 * are bound, and reject with TokenClientError: `denied`, `busy`, `bad-request` (the daemon did not accept the
 * request), `daemon-unreachable`, `timeout`, `closed`; if there is no token `no-token-yet`, `expired`,
 * `account-inactive`, `account-not-found`.
 */
export interface TokenSource {
  /**
   * The token. Waits for a first one, or for one that lives long enough, up to `waitSeconds`, also across a
   * restart of the daemon; then gives the freshest there is. While the daemon is away it gives the last token
   * again (`cached: true`), unless that was reported, is too old for `minValidSeconds` or has ended.
   *
   * @example
   * ```js
   * const { accessToken, expiresAt } = await tokens.get({ waitSeconds: 20 })
   * ```
   */
  readonly get: (options?: GetOptions) => Promise<ClientToken>

  /**
   * A token for one call of a program with another HTTP client than `fetch`. Waits and rejects as `get`.
   *
   * @example
   * ```js
   * const authorization = await tokens.authorize({ url, method })
   * const { status, data } = await send({ headers: authorization.headers })
   * if (authorization.token.refusedBy.includes(status)) {
   *   const next = await authorization.refused()
   *   if (next !== undefined) await send({ headers: next.headers })
   * }
   * ```
   */
  readonly authorize: (options?: AuthorizeOptions) => Promise<Authorization>

  /**
   * As the platform's `fetch`, with the token in the header that the API wants, for the origin of the service's
   * `baseUrl` (or those of the option `origins`) and no other. It follows redirects as the platform does; where
   * the header is not `Authorization`, a redirect is an error. If the answer refuses the token, that is reported
   * once for all calls. This call alone waits, up to 10 s, for another token and is sent once more with it:
   * after a 401 if the body can be sent again (a stream cannot), after another status if it is a GET, HEAD or
   * OPTIONS. If no other token comes, the refusal is the answer. If the other token is refused as well, the
   * refusals of this method, origin and path are their own calls' answers for 5 min.
   *
   * @throws {TokenClientError} also `bad-request` for another origin
   */
  readonly fetch: (input: string | URL | Request, init?: RequestInit) => Promise<Response>

  /**
   * Calls the listener with the token, now and at each change of it or of its state, also across restarts of
   * the daemon; never twice for the same, and never after its end. Returns a function that ends it; until then
   * the process stays alive. An exception of a listener is an uncaught exception of the program, and the
   * subscription goes on.
   */
  readonly subscribe: (listener: (token: ClientToken) => void) => () => void

  /** Reports that the service refused this token. The client sends its fingerprint alone, which is enough. */
  readonly reject: (token: string | { fingerprint: string }, options?: SignalOption) => Promise<RejectResult>

  /** The daemon's state: its token's times, failures, files and clients. It never has the token. */
  readonly status: (options?: SignalOption) => Promise<StatusResult>

  /**
   * Ends everything: calls that wait are rejected with `closed`, and listeners are called no more. Requests of
   * `fetch` that are under way go on; a refusal is then their answer.
   */
  readonly close: () => void
}
