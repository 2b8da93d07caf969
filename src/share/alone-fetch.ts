// An attempt while the store cannot be used: put off to this host's own time, then made by itself.
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { Attempt, FetchOutcome, FetchToken, ServiceOutcome } from '../token/outcome.ts'
import { aloneAtMs, spreadMs } from './alone.ts'
import type { ShareCounts } from './share-counts.ts'
import type { Shareable } from './shared-record.ts'

export interface AloneFetch {
  fetchToken(signal: AbortSignal, attempt: Attempt): Promise<FetchOutcome>
  /** The store can be used: the time that was planned counts no more. */
  forgetPlan(): void
}

/** The store is tried again so often, whatever the plan. */
const TRY_STORE_MS = 15_000

export function createAloneFetch(options: {
  readonly fetchToken: FetchToken
  readonly counts: ShareCounts
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  readonly asks: boolean
  readonly whenAlone: 'fetch' | 'wait'
  readonly shareable: (outcome: ServiceOutcome) => Shareable
  readonly usableUntilMs: () => number | null
  readonly hosts: () => number | null
  readonly onUnshared: (shareable: Shareable) => void
}): AloneFetch {
  const { clock, random, log, counts } = options
  /** When this host asks, on the boot clock; drawn once per loss, and again after an attempt. */
  let plannedMs: number | null = null
  let isLogged = false

  function plan(nowMs: number): number {
    const loneliness = { usableUntilMs: options.usableUntilMs(), hosts: options.hosts() }
    const atMs = aloneAtMs(loneliness, nowMs, random())
    if (isLogged) return atMs
    isLogged = true
    log('warning', 'This host asks the service by itself when its time comes', {
      event: 'share-alone',
      spreadMs: Math.round(spreadMs(loneliness, nowMs)),
      inMs: Math.round(atMs - nowMs),
    })
    return atMs
  }

  return {
    async fetchToken(signal, attempt) {
      const isOperator = attempt.cause === 'operator'
      if (!options.asks || (options.whenAlone === 'wait' && !isOperator)) {
        const detail = 'The shared store cannot be used, and this host is not to ask by itself'
        const reason = options.asks ? 'share-lost' : 'not-asked'
        return { kind: 'postponed', retryAfterMs: TRY_STORE_MS, reason, detail }
      }
      const nowMs = clock.now().bootMs
      if (!isOperator) {
        plannedMs ??= plan(nowMs)
        if (nowMs < plannedMs) {
          return { kind: 'postponed', retryAfterMs: Math.min(TRY_STORE_MS, plannedMs - nowMs) }
        }
      }
      plannedMs = null
      await attempt.beforeRequest()
      const outcome = await options.fetchToken(signal, attempt)
      if (!signal.aborted && (outcome.kind === 'ok' || outcome.kind === 'permanent')) {
        counts.adopted('alone')
        const shareable = options.shareable(outcome)
        if (shareable.isForAll) options.onUnshared(shareable)
      }
      return outcome
    },
    forgetPlan() {
      plannedMs = null
      isLogged = false
    },
  }
}
