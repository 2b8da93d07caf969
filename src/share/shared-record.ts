// An outcome of this host's own attempt as a record for the others: until when no host asks, and for how long it stays.
import { retryWait, type RetryPolicy } from '../token/backoff.ts'
import type { ServiceOutcome, TransientFailure } from '../token/outcome.ts'
import { knownLife } from '../token/token.ts'
import { FAILURE_KEPT_MS, isShared } from './records.ts'
import type { SharedRecord, SharedToken } from './seal.ts'

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

const REFUSAL_MS = 30 * 86_400_000
/** The longest wait that follows from failures alone: the cap of a host without a token is twice as long. */
const SOFT_WAIT_MS = 30_000

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
  const shortest = retryWait(failure, { attempts, policy, holdsToken: true, random: () => 0 })
  // Each host waits as long as it would alone; the first whose time has come asks for all.
  const waitMs = Math.ceil(Math.max(shortest.minWaitMs, Math.min(SOFT_WAIT_MS, shortest.waitMs)))
  const record = { kind: 'transient', by, reason, detail, status, attempts, token } as const
  return { record, waitMs, ttlMs: waitMs + FAILURE_KEPT_MS, isForAll: isShared(reason) }
}
