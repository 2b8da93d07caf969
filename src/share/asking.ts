// The three ways in which this host asks the service: under the lease for all, alone while the store is of no use,
// and by itself with another certificate.
import type { Clock } from '../lib/clock.ts'
import { randomHex } from '../lib/crypto.ts'
import type { Log } from '../lib/log.ts'
import type { Attempt, FetchOutcome, Postponed } from '../token/outcome.ts'
import type { AlonePlan } from './alone-plan.ts'
import { createConclude, type ConclusionOptions } from './conclusion.ts'
import { outcomeOf } from './known.ts'
import { askService, type Asked, type Service } from './request.ts'
import type { Unconfirmed } from './seal.ts'

export interface AskingOptions extends ConclusionOptions {
  readonly clock: Clock
  readonly log: Log
  readonly service: () => Service
  readonly plan: AlonePlan
}

/** A request under the lease that this id has. */
interface LeasedRequest {
  readonly id: string
  readonly attempt: Attempt
  readonly signal: AbortSignal
  readonly notBeforeMs: number
  readonly unconfirmed: Unconfirmed | null
}

const NO_EARLIER_ANSWER = { notBeforeMs: 0, unconfirmed: null }
const CANCELLED: Postponed = { kind: 'postponed', retryAfterMs: 0 }

export function createAsking(options: AskingOptions) {
  const { clock, log, host, service, keeper, link, telemetry, plan } = options
  const conclude = createConclude(options)

  /** The answer that is known, for the keeper. Null: there is none. */
  const knownOutcome = (): FetchOutcome | null => outcomeOf(link.known(), { host, now: clock.now() })

  const ask = (
    request: { id: string; attempt: Attempt; signal: AbortSignal },
    leasedAtMs: number,
  ): Promise<Asked | null> =>
    askService({ ...request, leasedAtMs }, { service: service(), link, clock, policy: keeper.policy(), host })

  /** The outcome of the request of this id, with the text that is saved beside it if it is what is known. */
  function ownOutcome(id: string, outcome: FetchOutcome): FetchOutcome {
    const { askedBy } = outcome
    const known = link.known().id === id ? knownOutcome() : null
    return known === null ? outcome : { ...known, ...(askedBy !== undefined && { askedBy }) }
  }

  return {
    knownOutcome,
    /** Asks under the lease, and writes what the service says. Null: the lease had become too old before. */
    async forAll(request: LeasedRequest): Promise<FetchOutcome | null> {
      const { id, signal } = request
      const asked = await ask(request, link.bootMs())
      if (asked === null) return null
      plan.drop()
      const outcome = signal.aborted
        ? asked.outcome
        : await conclude(asked, { ...request, countedAs: 'asked' })
      // If this fails, the lease ends by itself.
      await (link.known().id === id ? link.write() : link.release(id)).catch(telemetry.failed)
      if (asked.answer !== null)
        log('info', 'Asked the service for the fleet', { event: 'share-asked', hosts: link.hosts() })
      return ownOutcome(id, outcome)
    },
    /** The answer is written when the store is of use again. */
    async alone(attempt: Attempt, signal: AbortSignal): Promise<FetchOutcome> {
      const id = randomHex(8)
      const asked = await ask({ id, attempt, signal }, Infinity)
      plan.drop()
      if (asked === null || signal.aborted) return asked?.outcome ?? CANCELLED
      return ownOutcome(id, await conclude(asked, { ...NO_EARLIER_ANSWER, countedAs: 'alone' }))
    },
    /**
     * Another certificate for the account in use is tried: what the fleet knows would answer for the other one,
     * and no other host can ask instead. A token is one for all; anything else concerns this host alone.
     */
    async withOtherCertificate(attempt: Attempt, signal: AbortSignal): Promise<FetchOutcome> {
      // For the order of answers alone.
      await link.poll().catch(telemetry.failed)
      const id = randomHex(8)
      const asked = await ask({ id, attempt, signal }, Infinity)
      if (asked?.answer?.kind !== 'ok') return asked?.outcome ?? CANCELLED
      const outcome = await conclude(asked, { ...NO_EARLIER_ANSWER, countedAs: 'asked' })
      await link.write().catch(telemetry.failed)
      return ownOutcome(id, outcome)
    },
  }
}
