// Records of the fleet as outcomes of attempts, and the outcome of this host's own attempt as a record for the others. Pure.
import { retryWait, type RetryPolicy } from '../token/backoff.ts'
import type { FetchOutcome, Grant, ServiceOutcome, TransientFailure } from '../token/outcome.ts'
import { knownLife } from '../token/token.ts'
import type { SharedRecord, SharedToken } from './seal.ts'
import type { RecordHead } from './store.ts'

/** A record that this host has opened or written. */
export interface KnownRecord {
  readonly head: RecordHead
  readonly record: SharedRecord
  /** When the asker had the answer, on this host's boot clock. */
  readonly obtainedAtMs: number
}

/** An answer that the store does not have, or not yet. */
export type Answer = Pick<KnownRecord, 'record' | 'obtainedAtMs'>

/** The circumstances of a step, and the facts about the keeper. */
export interface Moment {
  /** On the boot clock. */
  readonly nowMs: number
  readonly wallMs: number
  /** Life of a token that does not say its own, in ms. */
  readonly assumedLifeMs: number
  /** Until when the token that the keeper holds can be used, on the boot clock; null: it holds none. */
  readonly usableUntilMs: number | null
  /** The name of this host to the others. */
  readonly host: string
}

/** A failure is kept for so long after the wait that it asks for. */
const FAILURE_KEPT_MS = 3_600_000
export const REFUSAL_MS = 30 * 86_400_000
/** The longest wait that a record may ask for: `Retry-After` of an hour and a fifth of it. */
export const MAX_WAIT_MS = 72 * 60_000
/** The longest wait that follows from failures alone: the cap of a host without a token is twice as long. */
const SOFT_WAIT_MS = 30_000

/** Reports whether the service itself said so: then it holds for every host. Else it may be the asker's own trouble. */
export function isForAll(record: SharedRecord): boolean {
  return record.kind !== 'transient' || ['rate-limited', 'server-error', 'rejected'].includes(record.reason)
}

export function tokenIn(record: SharedRecord): SharedToken | null {
  return record.kind === 'ok' ? record : record.token
}

/** The token of a record, with its age now, if it is still good under this host's settings. */
export function liveToken(
  { record, obtainedAtMs }: Answer,
  { assumedLifeMs, nowMs }: Moment,
): SharedToken | null {
  const token = tokenIn(record)
  if (token === null) return null
  const ageMs = token.ageMs + nowMs - obtainedAtMs
  const lifeMs = token.expirySource === 'assumed' ? Math.min(token.lifeMs, assumedLifeMs) : token.lifeMs
  return ageMs < lifeMs ? { ...token, ageMs } : null
}

/** The time in which no host asks because of this record, in ms. */
export function waitLeftMs({ head, obtainedAtMs }: KnownRecord, nowMs: number): number {
  return Math.max(0, Math.min(MAX_WAIT_MS, head.notBeforeMs - head.atMs) - (nowMs - obtainedAtMs))
}

/** The time that a record may still stay in a store, in ms. */
export function keptMs({ record, head, obtainedAtMs }: KnownRecord, nowMs: number): number {
  const lifeMs =
    record.kind === 'ok' ? record.lifeMs - record.ageMs : head.notBeforeMs - head.atMs + FAILURE_KEPT_MS
  return Math.ceil(lifeMs - (nowMs - obtainedAtMs))
}

/** The record as the outcome of an attempt that another host made; a failure without the token that it carries. */
export function outcomeOf(known: KnownRecord, { host, nowMs }: Pick<Moment, 'host' | 'nowMs'>): FetchOutcome {
  const { record, obtainedAtMs } = known
  const asker = askerOf(record, host)
  if (record.kind === 'ok') return grantOf(record, { ...asker, ageMs: record.ageMs + nowMs - obtainedAtMs })
  const { detail } = record
  if (record.kind === 'permanent')
    return { kind: 'permanent', reason: record.reason, status: record.status, detail, ...asker }
  const { reason, status } = record
  const retryAfterMs = waitLeftMs(known, nowMs)
  return { kind: 'transient', reason, ...(status !== null && { status }), retryAfterMs, detail, ...asker }
}

/** Before a restart this host may have asked itself. */
export function askerOf({ by }: SharedRecord, host: string): { by?: string } {
  return by === host ? {} : { by }
}

export function grantOf(token: SharedToken, given: { by?: string; ageMs: number }): Grant {
  const { accessToken, lifeMs, expirySource } = token
  return { kind: 'ok', accessToken, lifeMs, expirySource, ...given }
}

/** An outcome of this host as a record for the others; `waitMs`: for so long no host asks the service. */
export function recordOf(
  outcome: ServiceOutcome,
  { newest, retry: policy }: { newest: KnownRecord | null; retry: RetryPolicy },
  moment: Moment,
): { record: SharedRecord; waitMs: number } {
  const { host: by, wallMs, assumedLifeMs } = moment
  const token = newest && liveToken(newest, moment)
  if (outcome.kind === 'permanent') {
    const { kind, reason, detail, status } = outcome
    return { record: { kind, by, reason, detail, status, token }, waitMs: REFUSAL_MS }
  }
  let failure: Omit<TransientFailure, 'kind'> = {
    reason: 'malformed-answer',
    detail: 'The token has already expired',
  }
  if (outcome.kind === 'transient') failure = outcome
  else {
    const assumed = { lifeMs: assumedLifeMs, expirySource: 'assumed' as const }
    const life = knownLife(outcome, wallMs) ?? assumed
    const { accessToken } = outcome
    if (life.lifeMs > 0) return { record: { kind: 'ok', by, accessToken, ...life, ageMs: 0 }, waitMs: 0 }
  }
  const { reason, detail, status = null } = failure
  const attempts = newest?.record.kind === 'transient' ? newest.record.attempts + 1 : 1
  const shortest = retryWait(failure, { attempts, policy, leftMs: Infinity, random: () => 0 })
  // Each host waits as long as it would alone; the first whose time has come asks for all.
  const waitMs = Math.ceil(Math.max(shortest.minWaitMs, Math.min(SOFT_WAIT_MS, shortest.waitMs)))
  return { record: { kind: 'transient', by, reason, detail, status, attempts, token }, waitMs }
}
