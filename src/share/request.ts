// One request of this host to the service: what it answers, and the place of that in the order of answers.
import type { Clock } from '../lib/clock.ts'
import type { Attempt, FetchOutcome, FetchToken, TransientFailure } from '../token/outcome.ts'
import type { Policy } from '../token/state.ts'
import { answerOf, type Answer, type Sent } from './known.ts'
import type { Link } from './link.ts'

/** The way to the service. A reload may change it while the store stays the same. */
export interface Service {
  readonly fetchToken: FetchToken
  readonly requestTimeoutMs: number
}

export interface Asked {
  readonly outcome: FetchOutcome
  /** Null: it is no token or refusal that counts. */
  readonly answer: Answer | null
  readonly sent: Sent
}

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
 * Makes one request. `leasedAtMs`: when the lease was acquired, on the boot clock; Infinity: there is none. Null:
 * more than half of the request's time had passed since then before it could go out.
 */
export async function askService(
  asking: { attempt: Attempt; signal: AbortSignal; id: string; leasedAtMs: number },
  around: { service: Service; link: Link; clock: Pick<Clock, 'now'>; policy: Policy; host: string },
): Promise<Asked | null> {
  const { attempt, signal, id, leasedAtMs } = asking
  const { service, link, clock, policy, host } = around
  const { fetchToken, requestTimeoutMs } = service
  const late = new AbortController()
  let sent: Sent = { fence: 0, id, by: host, sentAtMs: link.bootMs() }
  let startedAtMs = Infinity
  async function beforeRequest(): Promise<void> {
    await attempt.beforeRequest()
    sent = { ...sent, fence: link.known().fence + 1, sentAtMs: link.bootMs() }
    // A second request, with the service's time, is within the time of the first.
    if (startedAtMs !== Infinity) return
    startedAtMs = sent.sentAtMs
    // The host was suspended, or its disk stood still: the request might outlive the lease.
    if (startedAtMs - leasedAtMs > requestTimeoutMs / 2) late.abort()
  }
  const outcome = await fetchToken(AbortSignal.any([signal, late.signal]), { ...attempt, beforeRequest })
  if (late.signal.aborted) return null
  if (signal.aborted || outcome.kind === 'transient' || outcome.kind === 'postponed')
    return { outcome, answer: null, sent }
  if (link.bootMs() - startedAtMs > requestTimeoutMs) return { outcome: TOO_LATE, answer: null, sent }
  const answer = answerOf(outcome, { wallMs: clock.now().wallMs, maxAgeMs: policy.maxAgeMs })
  return answer === null ? { outcome: EXPIRED, answer, sent } : { outcome, answer, sent }
}
