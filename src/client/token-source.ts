// A client of kyc-tokend as an interface that tests can fake, and its one class of errors.
import { escapeUnsafe } from '../lib/display-text.ts'
import type { FaultCode, RejectResult, StatusResult, TokenResult } from '../protocol.ts'

/** A token with its times, and how the API wants it. All callers share the object. */
export interface ClientToken extends Readonly<TokenResult> {
  /** From the client's memory, because the daemon is away. */
  readonly cached?: true
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
export interface AuthorizeOptions extends Pick<GetOptions, 'minValidSeconds' | 'signal'> {
  /** The address of the call. Without it, each call that the API refuses for a reason of its own is reported. */
  url?: string | URL | undefined
  /** By default `GET`. */
  method?: string | undefined
}

/** The header and the token for one call to the API. */
export interface Authorization {
  /** The header with the token, as the API wants it: by default `{ Authorization: 'Bearer …' }`. */
  readonly headers: Readonly<Record<string, string>>
  /** Its `refusedBy` has the statuses by which the API says that it refuses the token. */
  readonly token: ClientToken
  /**
   * Reports the token, once however many calls it hits, and gives the authorization for one repetition;
   * undefined if no other token comes within 10 s: then the refusal is the answer to the call.
   */
  readonly refused: () => Promise<Authorization | undefined>
}

export interface ClientOptions {
  /** Names this program in the daemon's log. */
  name?: string | undefined
  /** Origins to which `fetch` may send the token; by default that of the service's `baseUrl` alone. */
  origins?: readonly string[] | undefined
}

export interface TokenClientOptions extends ClientOptions {
  /** The daemon's socket; by default `$KYC_TOKEND_SOCKET`, else the system's or the person's own. */
  socketPath?: string | undefined
  /** The account whose daemon it is; by default `$KYC_TOKEND_ACCOUNT`. Not with `socketPath`. */
  account?: string | undefined
}

/**
 * `TokenClient` implements it; for tests `createFakeTokenClient` of `kyc-tokend/testing` does. All methods
 * are bound, and reject with TokenClientError: `denied`, `busy`, `bad-request`, `daemon-unreachable`, `timeout`,
 * `closed`; if there is no token `no-token-yet`, `expired`, `account-inactive`, `account-not-found`.
 */
export interface TokenSource {
  /**
   * The token. Waits for a first one, or for one that lives long enough, up to `waitSeconds`, also across a
   * restart of the daemon; then gives the freshest there is. While the daemon is away it gives the last token
   * again (`cached: true`), unless that was reported, is too old for `minValidSeconds` or has ended.
   */
  readonly get: (options?: GetOptions) => Promise<ClientToken>

  /** A token for one call of a program with another HTTP client than `fetch`. Waits and rejects as `get`. */
  readonly authorize: (options?: AuthorizeOptions) => Promise<Authorization>

  /**
   * As the platform's `fetch`, with the token in the header that the API wants. If the answer refuses the token,
   * this call alone waits, up to 10 s, for another one and is sent once more: after a 401 if the body can be
   * sent again, after another status if it is a GET, HEAD or OPTIONS. If no other token comes, the refusal is the
   * answer. Also rejects with `bad-request`, for another origin than the permitted ones.
   */
  readonly fetch: (input: string | URL | Request, init?: RequestInit) => Promise<Response>

  /**
   * Calls the listener with the token, now and at each change of it or of its state, until the returned function
   * is called; the process stays alive so long. An exception of a listener is an uncaught one of the program.
   */
  readonly subscribe: (listener: (token: ClientToken) => void) => () => void

  /** Reports that the service refused this token. The client sends its fingerprint alone, which is enough. */
  readonly reject: (token: string | { fingerprint: string }, options?: SignalOption) => Promise<RejectResult>

  /** The daemon's state: its token's times, failures, files and clients. It never has the token. */
  readonly status: (options?: SignalOption) => Promise<StatusResult>

  /** Ends every wait with `closed`, and every subscription. Requests of `fetch` that are under way go on. */
  readonly close: () => void
}

/** The daemon's codes (a newer daemon may have others) and those of the client itself. */
export type TokenClientErrorCode = FaultCode | 'daemon-unreachable' | 'timeout' | 'closed'

/**
 * Every error of TokenClient. The message is one sentence or two with the remedy, and holds no secret and no
 * control character. Recognise it by its `code`: a program may have loaded two copies of this class.
 */
export class TokenClientError extends Error {
  override readonly name = 'TokenClientError'
  readonly code: TokenClientErrorCode
  /** Why the last attempt at the service failed, if that is why there is no token. */
  readonly reason: string | undefined
  constructor(
    message: string,
    code: TokenClientErrorCode,
    options: ErrorOptions & { reason?: string | undefined } = {},
  ) {
    const { reason } = options
    super(escapeUnsafe(message), options)
    this.code = code
    this.reason = reason === undefined ? undefined : escapeUnsafe(reason)
  }
}

/** A mistake of the caller. */
export function badRequest(message: string): TokenClientError {
  return new TokenClientError(message, 'bad-request')
}
