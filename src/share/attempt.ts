// One attempt of the keeper in a fleet: it adopts the answer that another host got, waits for a host that asks,
// asks for all hosts, or, while the store is of no use, asks alone.
import { randomHex } from '../lib/crypto.ts'
import { CLIENT_INTERVAL_MS } from '../token/client-requests.ts'
import type { Keeper } from '../token/keeper.ts'
import type { Attempt, FetchOutcome, Postponed } from '../token/outcome.ts'
import { refusalOf } from '../token/state.ts'
import { createOperatorRequest } from './operator-request.ts'
import { createAlonePlan, usableLeftMs } from './alone-plan.ts'
import { createAsking, type AskingOptions } from './asking.ts'
import { isLarger, isOfUse } from './known.ts'
import type { Seal, Unconfirmed } from './seal.ts'
import { StoreError } from './store.ts'
import type { Telemetry } from './telemetry.ts'
import { confirmableIn } from './wait.ts'

/** The time between two polls of the store, and the longest wait of an attempt without it. */
export const POLL_EVERY_MS = 15_000
/** The part of a lease beyond the request itself, for writing the answer to the store. */
const LEASE_MARGIN_MS = 2_000
/** The longest lease of any host: that of `request.timeout` 10m. */
const MAX_LEASE_MS = 602_000
/** The longest time for which leases of others delay a host, as a number of its own leases. */
const PATIENCE_IN_LEASES = 2
/** After so many steps that led to nothing, in one attempt, the store is of no use. */
const MAX_FRUITLESS = 5
/** Hosts that waited for a lease come within this time after its end, each at a moment drawn at random. */
const AFTER_LEASE_MS = 500

const LIVE_LEASE = /^[\da-f]{16}$/

export interface AttemptOptions extends Omit<AskingOptions, 'operatorRequest' | 'plan'> {
  readonly seal: Seal
  readonly random: () => number
  readonly credentialsId: string
  readonly share: AskingOptions['share'] & { readonly asks: boolean; readonly whenAlone: 'fetch' | 'wait' }
  readonly keeper: Pick<Keeper, 'state'> & AskingOptions['keeper']
  readonly telemetry: Telemetry
  /** The account is that in use, but for its certificate, and is only tried. */
  readonly isCertificateTrial: () => boolean
  /** Sleeps, or is woken after a poll. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>
}

/** How far one attempt has come. */
interface Progress {
  readonly id: string
  readonly attempt: Attempt
  readonly signal: AbortSignal
  /** Steps that led to nothing. */
  fruitless: number
  /** Leases of other hosts may delay the attempt until then, on the boot clock; null: none has yet. */
  patientUntilMs: number | null
  /** The end of the wait that the operator's request bypasses, on the boot clock: no failure shortens it. */
  notBeforeMs: number
  /** The wait that is over, of no use or bypassed, in whose place the lease is put; null: there is none. */
  displaced: string | null
  /** The answer of another host that this one may confirm; null: there is none. */
  unconfirmed: Unconfirmed | null
}

export function createAttempts(options: AttemptOptions) {
  const { seal, clock, random, log, host, share, service, keeper, link, telemetry } = options
  const operatorRequest = createOperatorRequest()
  const leaseMs = (): number => service().requestTimeoutMs + LEASE_MARGIN_MS
  /** When this host asks by itself. */
  const plan = createAlonePlan({ clock, random, keeper, telemetry, leaseMs, hosts: link.hosts })
  const asking = createAsking({ ...options, operatorRequest, plan })
  const { knownOutcome } = asking

  /** The keeper has been given the known answer, which another host got. */
  function noteAdopted(): void {
    const { by, sentAtMs } = link.known()
    plan.drop()
    link.delivered()
    telemetry.counted('adopted')
    const ageMs = Math.round(link.bootMs() - sentAtMs)
    log('debug', 'Took over what another host was answered', { event: 'share-adopted', by, ageMs })
  }

  /**
   * The known answer, if it counts now. The keeper gets an answer once; `isRepeatAllowed`: it may get this one
   * again.
   */
  function adoptKnown({ isRepeatAllowed = false } = {}): FetchOutcome | null {
    if (!(isRepeatAllowed || link.isNew()) || !operatorRequest.isAnsweredBy(link.known())) return null
    const outcome = knownOutcome()
    if (outcome === null) return null
    operatorRequest.resolve()
    noteAdopted()
    return outcome
  }

  async function make(attempt: Attempt, signal: AbortSignal): Promise<FetchOutcome> {
    operatorRequest.begin(attempt.cause, link.known())
    if (options.isCertificateTrial()) return asking.withOtherCertificate(attempt, signal)
    const outcome = await inFleet(attempt, signal).catch((error: unknown) => {
      telemetry.failed(error)
      return 'alone' as const
    })
    const made = outcome === 'alone' ? await alone(attempt, signal) : outcome
    // A record that came meanwhile is larger than this host's answer. An operator's request needs a later one.
    const last = signal.aborted ? made : (adoptKnown() ?? made)
    if (last.kind === 'postponed') operatorRequest.postpone()
    // A refusal that may concern this host alone resolves the request of its operator.
    if (last.kind === 'permanent') operatorRequest.resolve()
    return last
  }

  /** Rejects with a StoreError if the store cannot be used. */
  async function inFleet(attempt: Attempt, signal: AbortSignal): Promise<FetchOutcome | 'alone'> {
    const progress = begun(attempt, signal)
    const state = keeper.state()
    const isRefused = refusalOf(state) !== null && state.credentialsId === options.credentialsId
    const isKnownRefusal = isRefused && link.known().answer?.kind === 'permanent'
    /** The keeper may get the same answer again: a refusal, or the answer to other credentials. */
    const isRepeatAllowed = operatorRequest.isPending() ? operatorRequest.isReload() : isKnownRefusal
    while (progress.fruitless < MAX_FRUITLESS && !signal.aborted) {
      await link.poll()
      operatorRequest.storeReached(link.bootMs())
      const known = adoptKnown({ isRepeatAllowed: isRepeatAllowed && link.knownRecord() !== null })
      const found = known ?? recentRefusal() ?? (await reasonNotToAsk(attempt))
      if (found !== null) return found
      const step = await tryLease(progress)
      if (step !== 'again') return step
    }
    if (signal.aborted) return postponed(0)
    throw new StoreError('lost', 'What is in the shared store is of no use')
  }

  /** Asks under the lease, or waits for the host that has it. */
  async function tryLease(progress: Progress): Promise<FetchOutcome | 'again' | 'alone'> {
    const { lease, leaseLeftMs } = await link.acquire(progress.id, leaseMs(), progress.displaced)
    progress.displaced = null
    const isOwn = lease === progress.id
    if (lease !== null && !isOwn && LIVE_LEASE.test(lease) && leaseLeftMs <= MAX_LEASE_MS) {
      // The host has a plan for being alone: it waits for no other host.
      if (plan.isMade() && !operatorRequest.isPending()) return 'alone'
      await waitForOther(lease, { leaseLeftMs, progress })
      return 'again'
    }
    let outcome: FetchOutcome | null = null
    if (isOwn) outcome = await asking.forAll(progress)
    else if (lease !== null) outcome = readWait(lease, progress)
    if (outcome !== null) return outcome
    // There is a larger record, the lease had become too old, or the wait is of no use or bypassed.
    progress.fruitless += 1
    return 'again'
  }

  /** The pair was refused less than a minute ago: the fleet asks once for all pending requests of operators. */
  function recentRefusal(): Postponed | null {
    const delayMs = operatorRequest.delayMs(link.known(), link.bootMs())
    const detail = 'The service refused these credentials a moment ago: it is asked again within a minute'
    return delayMs > 0 ? postponed(delayMs, { detail }) : null
  }

  /** Why this host does not ask for the others. */
  async function reasonNotToAsk({ cause }: Attempt): Promise<FetchOutcome | null> {
    if (!share.asks) return postponed(POLL_EVERY_MS, { reason: 'not-asked' })
    const paceMs = link.known().sentAtMs + CLIENT_INTERVAL_MS - link.bootMs()
    if (cause === 'client' && paceMs > 0) return postponed(paceMs)
    return (await service().fetchToken.notReady?.()) ?? null
  }

  /** Waits for the answer of the host that asks, or for the end of its lease. */
  async function waitForOther(
    lease: string,
    { leaseLeftMs, progress }: { leaseLeftMs: number; progress: Progress },
  ): Promise<void> {
    const nowMs = link.bootMs()
    const usableMs = usableLeftMs(keeper.state(), clock.now())
    progress.patientUntilMs ??=
      nowMs + Math.min(PATIENCE_IN_LEASES * leaseMs(), usableMs > 0 ? usableMs / 2 : Infinity)
    if (nowMs >= progress.patientUntilMs) {
      link.discard(lease)
      throw new StoreError('lost', 'Another host has held the lease for too long')
    }
    const waitMs = Math.min(leaseLeftMs + AFTER_LEASE_MS * random(), progress.patientUntilMs - nowMs)
    await options.sleep(waitMs, progress.signal)
  }

  /** Why no host asks, and until when; null: the text is of no use, or the request bypasses it. */
  function readWait(text: string, progress: Progress): Postponed | null {
    const wait = seal.open('lease', text)
    if (wait === null) telemetry.unreadable()
    if (wait !== null && isLarger(wait, link.known()))
      progress.unconfirmed = confirmableIn(wait, link.storeMs())
    if (wait !== null && isOfUse(wait, link.storeMs()) && isLarger(wait, link.known())) {
      const { at, end, by, reason, detail, unconfirmed } = wait
      const leftMs = end - link.storeMs()
      const held = { sentAtMs: at - link.storeMs(0), reason, unconfirmed, leftMs }
      const waitMs = operatorRequest.waitMs(held, link.bootMs())
      if (waitMs > 0) {
        // The host that failed comes last: the failure may be its own.
        const laterMs = AFTER_LEASE_MS * (by === host ? 1 : random())
        return postponed(waitMs + laterMs, { reason, detail, ...(by !== host && { askedBy: by }) })
      }
      progress.notBeforeMs = link.bootMs() + leftMs
    }
    progress.displaced = text
    return null
  }

  /** The store is of no use: the request is put off to the time that is planned for it, and then made. */
  async function alone(attempt: Attempt, signal: AbortSignal): Promise<FetchOutcome> {
    const { asks, whenAlone } = share
    if (!asks || (whenAlone === 'wait' && !operatorRequest.isPending())) {
      const detail = 'The shared store cannot be used, and this host is not to ask by itself'
      return postponed(POLL_EVERY_MS, { reason: asks ? 'share-lost' : 'not-asked', detail })
    }
    const inMs = operatorRequest.isPending() ? 0 : plan.requestAtMs(attempt) - link.bootMs()
    return inMs > 0 ? postponed(Math.min(POLL_EVERY_MS, inMs)) : asking.alone(attempt, signal)
  }

  return { make, knownOutcome, noteAdopted }
}

function begun(attempt: Attempt, signal: AbortSignal): Progress {
  const none = { fruitless: 0, patientUntilMs: null, notBeforeMs: 0, displaced: null, unconfirmed: null }
  return { id: randomHex(8), attempt, signal, ...none }
}

function postponed(retryAfterMs: number, more: Partial<Postponed> = {}): Postponed {
  return { kind: 'postponed', retryAfterMs, ...more }
}
