// One request of this host to the service. Its answer is one for all hosts; a failure is a wait for all.
import type { Clock } from '../lib/clock.ts'
import { ENDLESS, MAX_RETRY_WAIT_MS, retryPlan } from '../token/backoff.ts'
import type { Attempt, FetchOutcome, FetchToken, TransientFailure } from '../token/outcome.ts'
import type { Policy } from '../token/state.ts'
import { answerOf, type Answer, type Known } from './known.ts'
import type { Link, Wait } from './link.ts'

/** The least time for which no host asks after a failure. */
const FAILURE_MS = 5_000

/** The way to the service. A reload may change it while the store stays the same. */
export interface Service {
  readonly fetchToken: FetchToken
  readonly requestTimeoutMs: number
}

/** A request that went out; `fence` is the least that its answer may get. */
export type Sent = Pick<Known, 'fence' | 'id' | 'by' | 'sentAtMs'>

const TOO_LATE: TransientFailure = {
  kind: 'transient',
  reason: 'timeout',
  detail: 'The answer of the service came after its time (request.timeout)',
}
const EXPIRED: TransientFailure = {
  kind: 'transient',
  reason: 'malformed-answer',
  detail: 'The service gave a token that has already expired',
  status: 200,
}

/**
 * Makes one request. `takenAtMs`: when the lease was taken, on the boot clock; Infinity: there is none. Null:
 * more than half of the request's time had passed since then before it could go out.
 */
export async function askService(
  asking: { attempt: Attempt; signal: AbortSignal; id: string; takenAtMs: number },
  around: { service: Service; link: Link; clock: Pick<Clock, 'now'>; policy: Policy; host: string },
): Promise<{ outcome: FetchOutcome; answer: Answer | null; sent: Sent } | null> {
  const { attempt, signal, id, takenAtMs } = asking
  const { service, link, clock, policy, host } = around
  const { fetchToken, requestTimeoutMs } = service
  const late = new AbortController()
  let sent: Sent = { fence: 0, id, by: host, sentAtMs: link.bootMs() }
  async function beforeRequest(): Promise<void> {
    await attempt.beforeRequest()
    sent = { ...sent, fence: link.known().fence + 1, sentAtMs: link.bootMs() }
    // The host was suspended, or its disk stood still: the request might outlive the lease.
    if (sent.sentAtMs - takenAtMs > requestTimeoutMs / 2) late.abort()
  }
  const outcome = await fetchToken(AbortSignal.any([signal, late.signal]), { ...attempt, beforeRequest })
  if (late.signal.aborted) return null
  if (signal.aborted || outcome.kind === 'transient' || outcome.kind === 'postponed')
    return { outcome, answer: null, sent }
  if (link.bootMs() - sent.sentAtMs > requestTimeoutMs) return { outcome: TOO_LATE, answer: null, sent }
  const answer = answerOf(outcome, { wallMs: clock.now().wallMs, maxAgeMs: policy.maxAgeMs })
  return answer === null ? { outcome: EXPIRED, answer, sent } : { outcome, answer, sent }
}

/** The failure as a wait for all hosts; no failure ends one before `heldUntilMs`. */
export function waitOf(
  failure: TransientFailure,
  { fence, id, by, sentAtMs }: Sent,
  { link, policy, heldUntilMs }: { link: Link; policy: Policy; heldUntilMs: number },
): Wait {
  const nowMs = link.bootMs()
  const atFirst = { nowMs: 0, attempts: 1, drawn: 0, left: ENDLESS, notBeforeMs: 0 }
  const { notBeforeMs } = retryPlan(failure, { ...atFirst, policy })
  const waitMs = Math.min(MAX_RETRY_WAIT_MS, Math.max(FAILURE_MS, notBeforeMs, heldUntilMs - nowMs))
  const { reason, detail } = failure
  const sentAtStoreMs = Math.floor(link.storeMs(sentAtMs))
  // Counted from the answer: the request itself may have taken long.
  const endsAtMs = nowMs + waitMs
  return { fence: Math.max(sentAtStoreMs, fence), id, by, sentAtMs, endsAtMs, reason, detail }
}
