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

/** A failure is kept for so long after the wait that it asks for. */
const FAILURE_KEPT_MS = 3_600_000
export const REFUSAL_MS = 30 * 86_400_000
/** The longest wait that a record may ask for: `Retry-After` of an hour and a fifth of it. */
export const MAX_WAIT_MS = 72 * 60_000
/** The longest wait that follows from failures alone: the cap of a host without a token is twice as long. */
const SOFT_WAIT_MS = 30_000

/** Reports whether the service itself said so: then it holds for every host. */
export function isShared(reason: string): boolean {
  return reason === 'rate-limited' || reason === 'server-error' || reason === 'rejected'
}

export function tokenIn(record: SharedRecord): SharedToken | null {
  return record.kind === 'ok' ? record : record.token
}

/** The token of a record, with its age at `nowMs`, if it is still good under this host's settings. */
export function liveToken(
  { record, obtainedAtMs }: Pick<KnownRecord, 'record' | 'obtainedAtMs'>,
  { assumedLifeMs, nowMs }: { assumedLifeMs: number; nowMs: number },
): SharedToken | null {
  const token = tokenIn(record)
  if (token === null) return null
  const ageMs = token.ageMs + nowMs - obtainedAtMs
  const lifeMs = token.expirySource === 'assumed' ? Math.min(token.lifeMs, assumedLifeMs) : token.lifeMs
  return ageMs < lifeMs ? { ...token, ageMs } : null
}

/** When the token of a record was obtained, on the boot clock; -Infinity: it has none. */
export function tokenAtMs({ record, obtainedAtMs }: Pick<KnownRecord, 'record' | 'obtainedAtMs'>): number {
  const token = tokenIn(record)
  return token === null ? -Infinity : obtainedAtMs - token.ageMs
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

/** The record as the outcome of an attempt that another host made. */
export function outcomeOf(
  known: KnownRecord,
  { host, nowMs }: { host: string; nowMs: number },
): FetchOutcome {
  const { record } = known
  const by = askerOf(record, host)
  if (record.kind === 'ok')
    return grantOf(record, { ...by, ageMs: record.ageMs + nowMs - known.obtainedAtMs })
  const { detail, status } = record
  if (record.kind === 'permanent')
    return { kind: 'permanent', reason: record.reason, detail, status: record.status, ...by }
  const retryAfterMs = waitLeftMs(known, nowMs)
  const { reason } = record
  return { kind: 'transient', reason, detail, ...(status !== null && { status }), retryAfterMs, ...by }
}

/** Before a restart this host may have asked itself. */
export function askerOf({ by }: SharedRecord, host: string): { by?: string } {
  return by === host ? {} : { by }
}

export function grantOf(token: SharedToken, given: { by?: string; ageMs: number }): Grant {
  const { accessToken, lifeMs, expirySource } = token
  return { kind: 'ok', accessToken, lifeMs, expirySource, ...given }
}

export interface Shareable {
  readonly record: SharedRecord
  /** No host asks the service for so long. */
  readonly waitMs: number
  /** It stays in the store for so long. */
  readonly ttlMs: number
  /** The service itself said so: it holds for every host. Else it may be this host's own trouble. */
  readonly isForAll: boolean
}

export interface ShareableContext {
  /** The name of this host to the others. */
  readonly host: string
  readonly wallMs: number
  /** Life of a token that does not say its own, in ms. */
  readonly assumedLifeMs: number
  readonly retry: RetryPolicy
  /** The newest record before this one. */
  readonly before: SharedRecord | null
  /** The token that is still good. */
  readonly token: SharedToken | null
}

export function shareableOf(outcome: ServiceOutcome, context: ShareableContext): Shareable {
  const { host: by, token } = context
  if (outcome.kind === 'transient') return failureOf(outcome, context)
  if (outcome.kind === 'permanent') {
    const { kind, reason, detail, status } = outcome
    const record = { kind, by, reason, detail, status, token }
    return { record, waitMs: REFUSAL_MS, ttlMs: REFUSAL_MS, isForAll: true }
  }
  const { accessToken } = outcome
  const assumed = { lifeMs: context.assumedLifeMs, expirySource: 'assumed' as const }
  const { lifeMs, expirySource } = knownLife(outcome, context.wallMs) ?? assumed
  if (lifeMs <= 0) {
    return failureOf({ reason: 'malformed-answer', detail: 'The token has already expired' }, context)
  }
  const record = { kind: 'ok', by, accessToken, lifeMs, expirySource, ageMs: 0 } as const
  return { record, waitMs: 0, ttlMs: Math.ceil(lifeMs), isForAll: true }
}

function failureOf(
  failure: Omit<TransientFailure, 'kind'>,
  { host: by, before, token, retry: policy }: ShareableContext,
): Shareable {
  const { reason, detail, status = null } = failure
  const attempts = before?.kind === 'transient' ? before.attempts + 1 : 1
  const shortest = retryWait(failure, { attempts, policy, leftMs: Infinity, random: () => 0 })
  // Each host waits as long as it would alone; the first whose time has come asks for all.
  const waitMs = Math.ceil(Math.max(shortest.minWaitMs, Math.min(SOFT_WAIT_MS, shortest.waitMs)))
  const record = { kind: 'transient', by, reason, detail, status, attempts, token } as const
  return { record, waitMs, ttlMs: waitMs + FAILURE_KEPT_MS, isForAll: isShared(reason) }
}
