// What a request of this host means for the fleet: an answer that counts for all, one that a second host has to
// confirm first, or a wait.
import type { FetchOutcome } from '../token/outcome.ts'
import type { Policy } from '../token/state.ts'
import type { OperatorRequest } from './operator-request.ts'
import type { Link } from './link.ts'
import type { Asked } from './request.ts'
import type { Unconfirmed } from './seal.ts'
import type { Telemetry } from './telemetry.ts'
import { askedForMs, confirmerOf, isHostSpecific, unconfirmedOf, waitOf } from './wait.ts'

export interface ConclusionOptions {
  /** The name of this host to the others. */
  readonly host: string
  /** Random, made once for each host: two hosts may have one name. */
  readonly hostId: string
  /** This host proves itself with something of its own: a client certificate, a ready-made assertion. */
  readonly hasOwnProof: () => boolean
  readonly share: { readonly cluster: boolean }
  readonly link: Link
  readonly telemetry: Pick<Telemetry, 'counted' | 'failed'>
  readonly keeper: { readonly policy: () => Policy }
  readonly operatorRequest: Pick<OperatorRequest, 'resolve'>
}

/** How the request was made, and what was known before it. */
interface Circumstances {
  /** As it is counted. */
  readonly countedAs: 'asked' | 'alone'
  /** The end of the wait that an operator's request bypassed, on the boot clock; 0: there was none. */
  readonly notBeforeMs: number
  /** The answer of another host that this one may confirm; null: there is none. */
  readonly unconfirmed: Unconfirmed | null
}

export function createConclude(options: ConclusionOptions) {
  const { host, hostId, hasOwnProof, share, link, telemetry, keeper, operatorRequest } = options

  /** The host that has got the same answer; this host, if it is alone; null: no host, as far as is known. */
  async function confirmerNow(
    ours: Unconfirmed,
    { countedAs, unconfirmed }: Circumstances,
  ): Promise<string | null> {
    const confirmer = confirmerOf(ours, unconfirmed, link.known())
    if (confirmer !== null || countedAs === 'alone') return confirmer
    // Hosts that start together are counted again. A node of a cluster counts its own listeners alone.
    await link.poll().catch(telemetry.failed)
    return link.hosts() === 1 && !share.cluster ? host : null
  }

  /** Makes it the answer that is known, or the wait of this host. Resolves with the outcome for the keeper. */
  return async ({ outcome, answer, sent }: Asked, circumstances: Circumstances): Promise<FetchOutcome> => {
    const { countedAs, notBeforeMs, unconfirmed } = circumstances
    const isSpecific = isHostSpecific(outcome, hasOwnProof())
    const ours = isSpecific ? unconfirmedOf(outcome, { hostId, host }) : null
    const confirmer = ours && (await confirmerNow(ours, circumstances))
    const isForAll = ours === null || confirmer !== null
    if (answer !== null) telemetry.counted(countedAs)
    if (answer !== null && isForAll) {
      operatorRequest.resolve()
      link.setOwn({ ...sent, answer, isWritten: false })
    } else if (outcome.kind === 'transient' || isSpecific)
      link.setOwnWait(
        waitOf(outcome, sent, {
          link,
          askedForMs: isForAll ? askedForMs(outcome, keeper.policy()) : 0,
          notBeforeMs,
          unconfirmed: ours ?? unconfirmed,
        }),
      )
    return confirmer === null || confirmer === host ? outcome : { ...outcome, askedBy: confirmer }
  }
}
