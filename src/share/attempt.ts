// One attempt of the keeper in a fleet: it takes the answer that another host got, waits for a host that
// asks, asks for all hosts, or, while the store is of no use, asks by itself.
import { randomHex } from '../lib/crypto.ts'
import { CLIENT_INTERVAL_MS } from '../token/client-requests.ts'
import type { Keeper } from '../token/keeper.ts'
import type { Attempt, FetchOutcome, Postponed } from '../token/outcome.ts'
import { refusalOf } from '../token/state.ts'
import { createAct } from './act.ts'
import { createAlonePlan, usableLeftMs } from './alone-plan.ts'
import { createAsking, type AskingOptions } from './asking.ts'
import { isLarger, isOfUse } from './known.ts'
import type { Seal, Unconfirmed } from './seal.ts'
import { StoreError } from './store.ts'
import type { Telemetry } from './telemetry.ts'
import { confirmableIn } from './wait.ts'

/** The time between two looks at the store, and the longest wait of an attempt without it. */
export const LOOK_EVERY_MS = 15_000
/** The part of a lease beyond the request itself, for writing the answer to the store. */
const LEASE_MARGIN_MS = 2_000
/** The longest lease of any host: that of `request.timeout` 10m. */
const MAX_LEASE_MS = 602_000
/** The longest time for which leases of others delay a host, as a number of its own leases. */
const PATIENCE_IN_LEASES = 2
/** After this number of vain steps in one attempt the store is of no use. */
const MAX_VAIN = 5
/** Hosts that waited for a lease come within this time after its end, each at a moment drawn at random. */
const AFTER_LEASE_MS = 500

const LIVE_LEASE = /^[\da-f]{16}$/

export interface AttemptOptions extends Omit<AskingOptions, 'act' | 'plan'> {
  readonly seal: Seal
  readonly random: () => number
  readonly credentialsId: string
  readonly share: AskingOptions['share'] & { readonly asks: boolean; readonly whenAlone: 'fetch' | 'wait' }
  readonly keeper: Pick<Keeper, 'state'> & AskingOptions['keeper']
  readonly telemetry: Telemetry
  /** The account is that in use, but for its certificate, and is only tried. */
  readonly isRival: () => boolean
  /** Sleeps, or is woken after a look. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>
}

/** How far one attempt has come. */
interface Progress {
  readonly id: string
  readonly attempt: Attempt
  readonly signal: AbortSignal
  /** Steps in vain. */
  vain: number
  /** Until then leases of others may delay it; null: none has. */
  patientUntilMs: number | null
  /** The end of the wait that the act goes through, on the boot clock: a failure does not shorten it. */
  heldUntilMs: number
  /** What another host was answered, and a second one can confirm. */
  unconfirmed: Unconfirmed | null
}

export function createAttempts(options: AttemptOptions) {
  const { seal, clock, random, log, host, share, service, keeper, link, telemetry } = options
  const act = createAct()
  const leaseMs = (): number => service().requestTimeoutMs + LEASE_MARGIN_MS
  /** When this host asks by itself. */
  const plan = createAlonePlan({ clock, random, keeper, telemetry, leaseMs, hosts: link.hosts })
  const asking = createAsking({ ...options, act, plan })
  const { knownOutcome } = asking

  /** The keeper has the answer that is known, of another host. */
  function adopted(): void {
    const { by, sentAtMs } = link.known()
    plan.drop()
    link.delivered()
    telemetry.counted('adopted')
    const ageMs = Math.round(link.bootMs() - sentAtMs)
    log('debug', 'Took over what another host was answered', { event: 'share-adopted', by, ageMs })
  }

  /** The answer that is known, if it counts now and the keeper does not have it, or may have it `isAnew`. */
  function takeKnown({ isAnew = false } = {}): FetchOutcome | null {
    if (!(isAnew || link.isNew()) || !act.isAnsweredBy(link.known())) return null
    const outcome = knownOutcome()
    if (outcome === null) return null
    act.end()
    adopted()
    return outcome
  }

  async function make(attempt: Attempt, signal: AbortSignal): Promise<FetchOutcome> {
    act.begin(attempt.cause, link.known())
    if (options.isRival()) return asking.byItself(attempt, signal)
    const outcome = await shared(attempt, signal).catch((error: unknown) => {
      telemetry.failed(error)
      return 'alone' as const
    })
    const made = outcome === 'alone' ? await alone(attempt, signal) : outcome
    // A record that came meanwhile is larger than all that this host has; one from before the act is no answer.
    const last = signal.aborted ? made : (takeKnown() ?? made)
    if (last.kind === 'postponed') act.putOff()
    // A refusal that may concern this host alone answers its act, too.
    if (last.kind === 'permanent') act.end()
    return last
  }

  /** Rejects with a StoreError if the store cannot be used. */
  async function shared(attempt: Attempt, signal: AbortSignal): Promise<FetchOutcome | 'alone'> {
    const progress: Progress = {
      id: randomHex(8),
      attempt,
      signal,
      vain: 0,
      patientUntilMs: null,
      heldUntilMs: 0,
      unconfirmed: null,
    }
    const state = keeper.state()
    const isRefused = refusalOf(state) !== null && state.credentialsId === options.credentialsId
    const isKnownRefusal = isRefused && link.known().answer?.kind === 'permanent'
    /** What the keeper has been given counts, too: a refusal that stands, or that may answer an act. */
    const isAnew = act.isOpen() ? act.isReload() : isKnownRefusal
    while (progress.vain < MAX_VAIN && !signal.aborted) {
      await link.look()
      act.reached(link.bootMs())
      const known = takeKnown({ isAnew: isAnew && link.knownRecord() !== null })
      const found = known ?? youngRefusal() ?? (await notToAsk(attempt))
      if (found !== null) return found
      const step = await tryLease(progress)
      if (step !== 'again') return step
    }
    if (signal.aborted) return postponed(0)
    throw new StoreError('lost', 'What is in the shared store is of no use')
  }

  /** Asks under the lease, or heeds that of others. */
  async function tryLease(progress: Progress): Promise<FetchOutcome | 'again' | 'alone'> {
    const { lease, leaseLeftMs } = await link.acquire(progress.id, leaseMs())
    const isOwn = lease === progress.id
    if (lease !== null && !isOwn && LIVE_LEASE.test(lease) && leaseLeftMs <= MAX_LEASE_MS) {
      // The time has been planned for being alone: nobody is waited for.
      if (plan.isMade() && !act.isOpen()) return 'alone'
      await waitForOther(lease, { leaseLeftMs, progress })
      return 'again'
    }
    let outcome: FetchOutcome | null = null
    if (isOwn) outcome = await asking.forAll(progress)
    else if (lease !== null) outcome = readWait(lease, progress)
    if (outcome !== null) return outcome
    // A larger record has come, the lease had become too old, or a wait is of no use or gone through.
    progress.vain += 1
    return 'again'
  }

  /** The pair was refused less than a minute ago: the fleet asks once for all acts that wait. */
  function youngRefusal(): Postponed | null {
    const delayMs = act.delayMs(link.known(), link.bootMs())
    const detail = 'The service refused these credentials a moment ago: it is asked again within a minute'
    return delayMs > 0 ? postponed(delayMs, { detail }) : null
  }

  /** Why this host does not ask for the others. */
  async function notToAsk({ cause }: Attempt): Promise<FetchOutcome | null> {
    if (!share.asks) return postponed(LOOK_EVERY_MS, { reason: 'not-asked' })
    const paceMs = link.known().sentAtMs + CLIENT_INTERVAL_MS - link.bootMs()
    if (cause === 'client' && paceMs > 0) return postponed(paceMs)
    return (await service().fetchToken.notReady?.()) ?? null
  }

  /** Another host asks: waits for its answer, or the end of its lease. */
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

  /** Why no host is to ask, and until when; null: the text is of no use, or an act goes through it. */
  function readWait(text: string, progress: Progress): Postponed | null {
    const wait = seal.open('lease', text)
    if (wait === null) telemetry.unreadable()
    if (wait !== null && isLarger(wait, link.known()))
      progress.unconfirmed = confirmableIn(wait, link.storeMs())
    if (wait !== null && isOfUse(wait, link.storeMs()) && isLarger(wait, link.known())) {
      const { at, end, by, reason, detail, unconfirmed } = wait
      const leftMs = end - link.storeMs()
      const held = { sentAtMs: at - link.storeMs(0), reason, unconfirmed, leftMs }
      const heedMs = act.heedMs(held, link.bootMs())
      if (heedMs > 0) {
        // The host that failed comes last: the failure may be its own.
        const laterMs = AFTER_LEASE_MS * (by === host ? 1 : random())
        return postponed(heedMs + laterMs, { reason, detail, ...(by !== host && { askedBy: by }) })
      }
      progress.heldUntilMs = link.bootMs() + leftMs
    }
    link.discard(text)
    return null
  }

  /** The store is of no use: the request is put off to the time that is planned for it, and then made. */
  async function alone(attempt: Attempt, signal: AbortSignal): Promise<FetchOutcome> {
    const { asks, whenAlone } = share
    if (!asks || (whenAlone === 'wait' && !act.isOpen())) {
      const detail = 'The shared store cannot be used, and this host is not to ask by itself'
      return postponed(LOOK_EVERY_MS, { reason: asks ? 'share-lost' : 'not-asked', detail })
    }
    const inMs = act.isOpen() ? 0 : plan.requestAtMs(attempt) - link.bootMs()
    return inMs > 0 ? postponed(Math.min(LOOK_EVERY_MS, inMs)) : asking.alone(attempt, signal)
  }

  return { make, knownOutcome, adopted }
}

function postponed(retryAfterMs: number, more: Partial<Postponed> = {}): Postponed {
  return { kind: 'postponed', retryAfterMs, ...more }
}
