// Outcomes of one attempt: a token, a failure that is retried, a refusal that is not, or that it is postponed.
import type { ExpirySource, PermanentReason, PostponedReason, TransientReason } from '../protocol.ts'

interface Answered {
  /** The answer's `Date` header, in ms since the epoch, if it had a readable one. */
  readonly serverDateMs?: number | undefined
  /** The host of the fleet that got this answer, and notifies people; absent: this one. */
  readonly askedBy?: string
}

/** The token that the service gave, and the facts that its life follows from. */
export interface Grant extends Answered {
  readonly kind: 'ok'
  readonly accessToken: string
  /** The life that the answer itself gives, in ms; above 0. */
  readonly answerLifeMs?: number | undefined
  /** The life that another host of the fleet determined, in ms; without it, the token and the settings decide. */
  readonly lifeMs?: number
  readonly expirySource?: ExpirySource
  /** Time since that host obtained it, in ms. */
  readonly ageMs?: number
}
export interface TransientFailure extends Answered {
  readonly kind: 'transient'
  readonly reason: TransientReason
  /** One line for people; never holds a secret, even if the service echoed one. */
  readonly detail: string
  /** HTTP status of the answer, if there was one. */
  readonly status?: number
  /** The time for which the service must not be asked again (`Retry-After`, at most 1 h), in ms. */
  readonly retryAfterMs?: number
}
export interface PermanentFailure extends Answered {
  readonly kind: 'permanent'
  readonly reason: PermanentReason
  /** The service's own words; never holds a secret. */
  readonly detail: string
  readonly status: number
}
/**
 * No request was made, and none is to be made by itself for `retryAfterMs`: no failure, no backoff, no alert.
 * A client's report and an operator are not held back by it.
 */
export interface Postponed {
  readonly kind: 'postponed'
  readonly retryAfterMs: number
  /** Why there may be no token for long, a line for people, and the host that was answered so. */
  readonly reason?: PostponedReason
  readonly detail?: string
  readonly askedBy?: string
}
/** The outcomes that the service itself can cause. */
export type ServiceOutcome = Grant | TransientFailure | PermanentFailure
export type FetchOutcome = ServiceOutcome | Postponed

/** The reason for a request. `reload`: another pair is in the files. `fleet`: another host made it. */
export type Cause = 'start' | 'refresh' | 'retry' | 'client' | 'operator' | 'reload' | 'fleet'

export interface Attempt {
  readonly cause: Cause
  /**
   * Await it before a request goes out: it is counted, and saved as failed in case the process ends. `assertion`:
   * fingerprint of the ready-made one in it.
   */
  readonly beforeRequest: (assertion?: string) => Promise<void>
  /** The service's clock, in ms since the epoch, by which an assertion is signed; absent: it is ours. */
  readonly serviceWallMs?: number | undefined
  /** Call it when the request was written: connecting takes time, and so does a stopped process. */
  readonly onSent?: () => void
}

/** One attempt to get a token. Never throws for anything that the service or the network does. */
export type FetchToken = (signal: AbortSignal, attempt: Attempt) => Promise<FetchOutcome>
