// What one attempt can come to: an answer with a token, a failure that is repeated, or a refusal that is not.

/** Failures that are repeated (contract, section 4). `rejected` also raises an alert. */
export type TransientReason =
  'rate-limited' | 'server-error' | 'malformed-answer' | 'network' | 'timeout' | 'tls' | 'rejected'
/** Refusals: nothing is asked again until somebody changes something. */
export type PermanentReason = 'account-inactive' | 'account-not-found'
export type Reason = TransientReason | PermanentReason

/** What the service gave: the token, and what is needed to know how long it lives. */
export interface Grant {
  readonly kind: 'ok'
  readonly accessToken: string
  /** The answer's `Date` header, in ms since the epoch, where it had a readable one. */
  readonly serverDateMs?: number
}
export interface TransientFailure {
  readonly kind: 'transient'
  readonly reason: TransientReason
  /** One line for people; never holds a secret, also where the service echoed one. */
  readonly detail: string
  /** HTTP status of the answer, if there was one. */
  readonly status?: number
  /** Not to be asked again for so long (`Retry-After`, at most 1 h), in ms. */
  readonly retryAfterMs?: number
}
export interface PermanentFailure {
  readonly kind: 'permanent'
  readonly reason: PermanentReason
  /** The service's own words; never holds a secret. */
  readonly detail: string
  readonly status: number
}
export type FetchOutcome = Grant | TransientFailure | PermanentFailure

/** One attempt at the service. Never throws for anything that the service or the network does. */
export type FetchToken = (signal: AbortSignal) => Promise<FetchOutcome>
