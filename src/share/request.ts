// One request of this host to the service. Its answer is one for all hosts; a failure becomes a wait for all
// of them.
import type { Clock } from '../lib/clock.ts'
import { ENDLESS, retryPlan, type RetryPolicy } from '../token/backoff.ts'
import type { Attempt, FetchOutcome, FetchToken, TransientFailure } from '../token/outcome.ts'
import type { Policy } from '../token/state.ts'
import { answerOf, type Known } from './known.ts'
import type { Link } from './link.ts'
import type { Seal } from './seal.ts'
import type { Expiring } from './store.ts'

/** The least time for which no host asks after a failure. */
const FAILURE_MS = 5_000
/** The longest: `Retry-After` of an hour and a fifth of it. */
const MAX_WAIT_MS = 72 * 60_000

/** The way to the service. A reload may change it while the store stays the same. */
export interface Service {
  readonly fetchToken: FetchToken
  readonly requestTimeoutMs: number
  readonly retry: RetryPolicy
}

interface Requesting {
  /** Of the attempt. */
  readonly id: string
  /** When the lease was taken, on the boot clock; Infinity: there is none. */
  readonly takenAtMs: number
  /** No failure ends the wait of the fleet before this moment of the boot clock. */
  readonly heldUntilMs: number
  readonly attempt: Attempt
  readonly signal: AbortSignal
}
interface Requested {
  readonly outcome: FetchOutcome
  /** The answer, which is not written yet; null: a failure, or an answer that comes too late to be one. */
  readonly own: Known | null
  /** The failure as a text that is kept in place of the lease; null: there is none. */
  readonly kept: Expiring | null
}

const TOO_LATE: TransientFailure = {
  kind: 'transient',
  reason: 'timeout',
  detail: 'The answer of the service came after its time (request.timeout)',
}
const EXPIRED = { reason: 'malformed-answer', detail: 'The token has already expired' } as const

/**
 * Makes the request. Null: more than half of its time had passed since the lease was taken before it could go
 * out.
 */
export async function request(
  { id, takenAtMs, heldUntilMs, attempt, signal }: Requesting,
  around: {
    readonly service: Service
    readonly link: Link
    readonly seal: Seal
    readonly clock: Pick<Clock, 'now'>
    readonly policy: Policy
    readonly host: string
  },
): Promise<Requested | null> {
  const { service, link, clock, policy, host: by } = around
  const { fetchToken, requestTimeoutMs } = service
  const late = new AbortController()
  let sentAtMs = link.bootMs()
  let fence = 0
  async function beforeRequest(): Promise<void> {
    await attempt.beforeRequest()
    sentAtMs = link.bootMs()
    fence = link.known().fence + 1
    // The host was suspended, or its disk stood still: the request might outlive the lease.
    if (sentAtMs - takenAtMs > requestTimeoutMs / 2) late.abort()
  }
  const answered = await fetchToken(AbortSignal.any([signal, late.signal]), { ...attempt, beforeRequest })
  if (late.signal.aborted) return null
  if (signal.aborted || answered.kind === 'postponed') return { outcome: answered, own: null, kept: null }
  const isLate = link.bootMs() - sentAtMs > requestTimeoutMs
  const outcome = isLate && answered.kind !== 'transient' ? TOO_LATE : answered
  const answer = answerOf(outcome, { wallMs: clock.now().wallMs, maxAgeMs: policy.maxAgeMs })
  if (answer !== null)
    return { outcome, own: { fence, id, answer, by, sentAtMs, at: null, isWritten: false }, kept: null }
  const failure = outcome.kind === 'transient' ? outcome : EXPIRED
  return { outcome, own: null, kept: keptOf(failure, { ...around, id, heldUntilMs, fence, sentAtMs }) }
}

function keptOf(
  failure: Omit<TransientFailure, 'kind'>,
  given: Pick<Requesting, 'id' | 'heldUntilMs'> &
    Pick<Parameters<typeof request>[1], 'link' | 'seal' | 'service' | 'host'> & {
      fence: number
      sentAtMs: number
    },
): Expiring {
  const { link, seal, service, host, id, heldUntilMs, fence, sentAtMs } = given
  const atFirst = { nowMs: 0, attempts: 1, drawn: 0, left: ENDLESS, notBeforeMs: 0 }
  const { notBeforeMs } = retryPlan(failure, { ...atFirst, policy: service.retry })
  const heldMs = heldUntilMs - link.bootMs()
  const keepMs = Math.ceil(Math.min(MAX_WAIT_MS, Math.max(FAILURE_MS, notBeforeMs, heldMs)))
  const at = Math.floor(link.storeMs(sentAtMs))
  // Counted from the answer: the request itself may have taken long.
  const end = Math.floor(link.storeMs()) + keepMs
  const { reason, detail } = failure
  const pair = { fence: Math.max(at, fence), id }
  return { text: seal.seal('lease', pair, { kind: 'postponed', by: host, at, end, reason, detail }), keepMs }
}
