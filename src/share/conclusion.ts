// What a request of this host means for the fleet: an answer that counts for all, one that a second host has to
// confirm first, or a wait.
import type { FetchOutcome } from '../token/outcome.ts'
import type { Policy } from '../token/state.ts'
import type { Act } from './act.ts'
import type { Link } from './link.ts'
import type { Asked } from './request.ts'
import type { Unconfirmed } from './seal.ts'
import type { Telemetry } from './telemetry.ts'
import { askedForMs, confirmerOf, isDoubtful, unconfirmedOf, waitOf } from './wait.ts'

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
  readonly act: Pick<Act, 'end'>
}

/** How the request was made, and what was known before it. */
interface Circumstances {
  readonly how: 'asked' | 'alone'
  /** The end of the wait that the act passed, on the boot clock; 0: none. */
  readonly heldUntilMs: number
  /** What another host was answered; null: nothing that has to be confirmed. */
  readonly unconfirmed: Unconfirmed | null
}

export function createConclude(options: ConclusionOptions) {
  const { host, hostId, hasOwnProof, share, link, telemetry, keeper, act } = options

  /** Who has got the same answer; this host, if it is alone; null: nobody, as far as it is known. */
  async function confirmerNow(own: Unconfirmed, { how, unconfirmed }: Circumstances): Promise<string | null> {
    const confirmer = confirmerOf(own, unconfirmed, link.known())
    if (confirmer !== null || how === 'alone') return confirmer
    // Hosts that start together may have been counted too early. A node of a cluster counts its own alone.
    await link.look().catch(telemetry.failed)
    return link.hosts() === 1 && !share.cluster ? host : null
  }

  /** Makes it the answer that is known, or the wait of this host. Resolves with the outcome for the keeper. */
  return async ({ outcome, answer, sent }: Asked, circumstances: Circumstances): Promise<FetchOutcome> => {
    const { how, heldUntilMs, unconfirmed } = circumstances
    const isDoubt = isDoubtful(outcome, hasOwnProof())
    const own = isDoubt ? unconfirmedOf(outcome, { hostId, host }) : null
    const confirmer = own && (await confirmerNow(own, circumstances))
    const isForAll = own === null || confirmer !== null
    if (answer !== null) telemetry.counted(how)
    if (answer !== null && isForAll) {
      act.end()
      link.setOwn({ ...sent, answer, isWritten: false })
    } else if (outcome.kind === 'transient' || isDoubt)
      link.setOwnWait(
        waitOf(outcome, sent, {
          link,
          askedForMs: isForAll ? askedForMs(outcome, keeper.policy()) : 0,
          heldUntilMs,
          unconfirmed: own ?? unconfirmed,
        }),
      )
    return confirmer === null || confirmer === host ? outcome : { ...outcome, askedBy: confirmer }
  }
}
