// The protocol of the sockets: names, shapes and limits. Clients in other languages are written from it.
//
// On `ipc.sock` a message is one JSON object {"type": …, "data": …} followed by a form feed (0x0C), in UTF-8.
// Every request carries `data.id`, a string of 1 to 64 characters, and every answer repeats it:
//
//   → {"type":"token.get","data":{"id":"1","minValidSeconds":60,"waitSeconds":10}}\f
//   ← {"type":"token.result","data":{"id":"1","accessToken":"…","tokenType":"Bearer",…}}\f
//   ← {"type":"fault","data":{"id":"1","code":"no-token-yet","message":"…","reason":"network"}}\f
//
// Answers to several requests on one connection may come in another order; the id says which is which.
// Ignore unknown fields of an answer, and show an unknown `state`,
// `reason`, `verdict` or `code` as it is: new ones may come. On `http.sock` the same shapes are JSON bodies.

import { createHash } from 'node:crypto'

/** Ends every frame. */
export const FRAME_END = '\f'
/** Longest frame that is accepted from a client, in bytes, without the form feed. */
export const MAX_FRAME_BYTES = 32_768
/** Longest `data.id`, in characters; the shortest is 1. */
export const MAX_ID_LENGTH = 64
/** Largest `minValidSeconds`. */
export const MAX_MIN_VALID_SECONDS = 86_400
/** Largest `waitSeconds`. */
export const MAX_WAIT_SECONDS = 60
/** The longest time for which a good token waits for one with the life that was asked for, in ms. */
export const SHORT_LIFE_WAIT_MS = 1_000
/** The daemon closes a connection without a subscription that has sent no request for this time. */
export const CONNECTION_IDLE_MS = 75_000
/** Hex digits of a token's SHA-256 that name it. */
export const FINGERPRINT_LENGTH = 16
/** The name of a token, where it may not be shown. */
export function fingerprintOf(accessToken: string): string {
  // `hash` of node:crypto is not in Node 18, on which clients run.
  return createHash('sha256').update(accessToken).digest('hex').slice(0, FINGERPRINT_LENGTH)
}

/** Requests on `ipc.sock`, and the type of the answer to each if it is not `fault`. */
export const answerTypes = {
  'token.get': 'token.result',
  'token.subscribe': 'token.result',
  'token.reject': 'reject.result',
  'status.get': 'status.result',
  'refresh.request': 'refresh.result',
  'reload.request': 'reload.result',
  'alert.test': 'alert.result',
} as const
export type RequestType = keyof typeof answerTypes

/** `data` of `token.get` and `token.subscribe`, beside `id`. Each field may be left out. */
export interface TokenRequest {
  /** The life that the token has to have left: for less, the daemon fetches another. 0 to 86400. */
  minValidSeconds?: number
  /** Wait for another token than the one with this fingerprint. */
  notFingerprint?: string
  /** The longest wait for such a token; then the freshest one is given. 0 (the default) to 60. */
  waitSeconds?: number
  /** The client's name, for the daemon's log only. */
  client?: string
}
/** `data` of `token.reject`, beside `id`: the token to which the service answered 401, or its fingerprint. */
export interface RejectRequest {
  accessToken?: string
  fingerprint?: string
  /** The client's name, for the daemon's log only. */
  client?: string
}

/**
 * `starting`: no token yet. `ready`: all is well. `degraded`: the token is good, refreshing it fails.
 * `expired`: there was a token, none is usable now. `refused`: the service refuses the account; nothing is
 * asked until an operator acts.
 */
export type Phase = 'starting' | 'ready' | 'degraded' | 'expired' | 'refused'

/** Failures that are retried. `rejected` also raises an alert. */
export const transientReasons = [
  'rate-limited',
  'server-error',
  'malformed-answer',
  'network',
  'timeout',
  'tls',
  'assertion',
  'rejected',
] as const
export type TransientReason = (typeof transientReasons)[number]
/** `not-asked`: this host never asks (`share.asks`). `share-lost`: it waits for the shared store. */
export type PostponedReason = TransientReason | 'not-asked' | 'share-lost'
/** Refusals: the service is not asked again until an operator acts. */
export const permanentReasons = ['account-inactive', 'account-not-found'] as const
export type PermanentReason = (typeof permanentReasons)[number]
export type Reason = TransientReason | PermanentReason
/** `no-token`: there has been none for `alerts.noTokenAfter`. `test`: a rehearsal. */
export type AlertReason = PermanentReason | 'rejected' | 'no-token' | 'test'

/** How the API wants the token: in this header, after this text. */
export interface TokenUse {
  readonly header: string
  readonly prefix: string
}
export const STANDARD_USE: TokenUse = { header: 'Authorization', prefix: 'Bearer ' }

/** The source of the expiry: the token, the answer with it, or neither (`refresh.maxAge`). */
export type ExpirySource = 'jwt' | 'response' | 'assumed'

/** A token without the token: what may be shown. Instants are ISO 8601. */
export interface TokenDescription extends TokenUse {
  /** Null if the API wants the token in another way than after `Bearer `. */
  tokenType: 'Bearer' | null
  obtainedAt: string
  /** When it expires; for a token that does not say so, the end of the life assumed for it. */
  expiresAt: string
  expirySource: ExpirySource
  baseUrl: string
  /** Statuses by which the API says that the token is refused. */
  refusedBy: readonly number[]
  refreshAt: string
  /** Counts tokens. */
  generation: number
  /** First 16 hex digits of the token's SHA-256. */
  fingerprint: string
  state: Phase
  /** The token is past the life assumed for it, and is handed out because there is no better one. */
  stale: boolean
}
/** `data` of `token.result` and `token.changed`, beside `id`. */
export interface TokenResult extends TokenDescription {
  accessToken: string
}

/**
 * `replaced`: not the current token, or unknown: take the current one. `refreshing`: another is being
 * fetched. `held`: too soon after the last report; the service is asked when `retryAfterSeconds` are over.
 * `unchanged`: the service gave the same token again. `refused`: the service refuses the account.
 */
export type RejectVerdict = 'replaced' | 'refreshing' | 'held' | 'unchanged' | 'refused'
/** `data` of `reject.result`, beside `id`. */
export interface RejectResult {
  verdict: RejectVerdict
  /** The current token's, if there is one. */
  fingerprint?: string
  retryAfterSeconds?: number
}

/** `data` of `refresh.result`, beside `id` and, if there is a token, the fields of TokenDescription. */
export interface RefreshResult extends Partial<TokenDescription> {
  outcome: 'ok' | 'failed'
  /** Why it failed, or `stopping` if the daemon ends before the attempt does. */
  reason?: string
  detail?: string
  /** Another pair in the files was asked first, and gave no token; null: it gave one, or there is none. */
  candidate: { reason: string; detail: string } | null
}

/** `data` of `reload.result`, beside `id`: the configuration was read again. */
export interface ReloadResult {
  /**
   * `faulty`: nothing was taken over. `ok`: the settings are in force, and so is the pair. `failed`: the
   * settings are in force, and another pair in the files is not.
   */
  outcome: 'ok' | 'faulty' | 'failed'
  /** The faults, or why the pair is not in use: sentences with their remedies. */
  problems: string[]
  /** Settings that were changed and take effect at a restart alone. */
  needsRestart: string[]
  /** The other pair in the files; null: they hold the running one. `tried`: it has given no token yet. */
  pair: 'in-use' | 'refused' | 'tried' | null
}

/** `data` of `alert.result`, beside `id`: a test alert goes the whole way and is resolved by itself. */
export interface AlertTestResult {
  /** `refused`: an alert is raised already, and `detail` says which. */
  outcome: 'raised' | 'refused'
  /** When it is resolved. ISO 8601. */
  resolvesAt?: string
  detail?: string
}

/** `data` of `status.result`, beside `id`. */
export interface StatusResult {
  state: Phase
  token: TokenDescription | null
  /** The last failure since the last success. */
  failure: {
    reason: string
    detail: string
    status?: number
    since: string
    attempts: number
  } | null
  nextAttemptAt: string | null
  /**
   * Another pair in the files, which comes into use by giving a token, and the last answer to it; null: there
   * is none.
   */
  candidate: {
    since: string
    /** Null: it was not asked with yet. */
    reason: string | null
    detail: string | null
    status?: number
    attempts: number
    /** Null: not until a person acts. */
    nextAttemptAt: string | null
  } | null
  /** `contact`: the person to call (`alerts.contact`). */
  alert: { reason: string; since: string; remedy: string; contact: string | null } | null
  files: {
    path: string
    format: string
    ok: boolean
    error: string | null
    /** False while no token is usable: the file is absent then. */
    present: boolean
    /** When it was last written. */
    writtenAt: string | null
    repairs: number
  }[]
  clients: {
    ipc: { connections: number; subscribers: number }
    http: { connections: number; subscribers: number } | null
  }
  service: {
    baseUrl: string
    lastRequestAt: string | null
    lastSuccessAt: string | null
    /** Since the start of the daemon. */
    requests: number
  }
  daemon: {
    version: string
    pid: number
    startedAt: string
    configFile: string
    host: string
    /**
     * The configuration on disk against the running one; `problem` is the faults with their remedies. `pair`:
     * the problem is another pair in the secret files, which the service refused, or which is being tried.
     */
    configuration: {
      state: 'current' | 'changed' | 'faulty'
      problem: string | null
      pair?: 'refused' | 'tried'
    }
    /**
     * When key and secret (`credentials`) or the client certificate end, whichever comes first; null: not known.
     * `daysLeft` 0: it has ended.
     */
    credentials: { what: 'credentials' | 'certificate'; expiresAt: string; daysLeft: number } | null
    /** Why the state for a restart cannot be saved, with the remedy; null: it can. */
    stateProblem: string | null
    /** Sockets that are opened too wide, each a sentence with its remedy. */
    pathProblems: string[]
  }
  /** The shared store; null: this host does not share its token. */
  share: {
    /** `alone`: the store cannot be used; `denied`: it refuses access. */
    state: 'connected' | 'alone' | 'denied'
    server: string
    since: string
    /** The host that asked last; null: not known. */
    askedBy: string | null
    lastError: string | null
  } | null
  /** To operators: the users that took tokens. */
  readers?: {
    uid: number
    name: string
    /** Open now. */
    connections: number
    /** Tokens taken since the start, and when the last one was. */
    count: number
    lastAt: string
    /** Names that its clients give themselves, at most 8. */
    clients: string[]
  }[]
}

/** `denied`, `bad-request` and `busy` are about the request; the others say why there is no token. */
export const faultCodes = [
  'no-token-yet',
  'expired',
  'account-inactive',
  'account-not-found',
  'denied',
  'bad-request',
  'busy',
] as const
export type FaultCode = (typeof faultCodes)[number]
/** `data` of `fault`, beside `id` (null if the request had no valid one). */
export interface Fault {
  code: FaultCode
  /** One sentence for people, with the remedy. */
  message: string
  /** The reason of the last failed attempt, if there is one. */
  reason?: string
}
