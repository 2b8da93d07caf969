// This host in the fleet of one account. `attempt` is the way of one attempt from its beginning to its end: it looks
// at the store, decides, and takes the answer of another host, waits, asks for all under the lease, or asks alone.
import { randomUUID } from 'node:crypto'
import type { ShareConfig } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import type {
  Attempt,
  Cause,
  FetchOutcome,
  FetchToken,
  Postponed,
  TransientFailure,
} from '../token/outcome.ts'
import { answerOf, createAnswers, HOSTNAME, type Held, type Look } from './answers.ts'
import type { Seal } from './seal.ts'
import type { Store } from './store.ts'
import type { Telemetry } from './telemetry.ts'

/** A pair, with the settings of `share`. */
export interface Account {
  readonly share: ShareConfig
  /** Keyed fingerprint of the pair. */
  readonly pairId: string
  /** All that identifies the account, with its secrets, without the client certificate. */
  readonly text: string
  readonly fetchToken: FetchToken
  readonly requestTimeoutMs: number
  /** Life assumed for a token that does not say its own. */
  readonly maxAgeMs: number
  /** The host identifies itself with something of its own: a client certificate, a ready-made assertion. */
  readonly hasOwnProof: boolean
}

/** The time between two looks, and the longest wait of an attempt without the store. */
export const LOOK_EVERY_MS = 15_000
/** The part of a lease beyond the request itself. */
const LEASE_MARGIN_MS = 2_000
/** Operators on other hosts who begin within this time share the request. */
const GATHER_MS = 300
/** No host asks within this time after a failure. The host that failed comes later: it may be its own. */
const FAILURE_MS = 5_000
const AFTER_OWN_MS = 500
/** Alone, a host without a token asks within this time, and one with a token within this part of its life. */
const ALONE_MS = 10_000
const ALONE_PART = 0.8
/** The shortest time between two requests of the fleet that clients cause. */
const CLIENT_INTERVAL_MS = 30_000

export interface HostOptions {
  readonly seal: Seal
  readonly store: Promise<Store>
  readonly settings: ShareConfig
  readonly clock: Clock
  readonly random: () => number
  readonly pairId: string
  /** The usable token of the keeper; null: there is none. */
  readonly held: () => Held | null
  readonly telemetry: Telemetry
}
/** One attempt of the keeper. */
interface Act extends Attempt {
  readonly account: Account
  readonly signal: AbortSignal
}
export type Host = ReturnType<typeof createHost>

export function createHost(options: HostOptions) {
  const { clock, random, held, telemetry } = options
  const { timeoutMs, asks, whenAlone } = options.settings
  const nowMs = (): number => clock.now().bootMs
  const answers = createAnswers(options)
  /** What is left of the life of the token in use; 0: there is none. */
  const leftMs = (): number => Math.max(0, (held()?.expiresAtMs ?? 0) - nowMs())
  /** A host knows its own leases by it: a late command may put one unseen. */
  const hostId = randomUUID()
  /** When this host asks alone, on the boot clock; null: that is not planned. */
  let aloneAtMs: number | null = null

  /** The keeper takes over the latest answer, which another host got. */
  function adopt(): FetchOutcome {
    aloneAtMs = null
    const { by, at } = answers.latest()!
    telemetry.came('adopted', { by, ageMs: Math.round(nowMs() - at) })
    return answers.deliver()
  }

  async function attempt(
    account: Account,
    ...[signal, given]: Parameters<FetchToken>
  ): Promise<FetchOutcome> {
    const act: Act = { ...given, account, signal }
    const outcome = (await inFleet(act).catch(telemetry.failed)) ?? (await alone(act))
    // A later answer may have come meanwhile. An operator waits for what follows the act.
    return answers.isNew() && !signal.aborted && act.cause !== 'operator' ? adopt() : outcome
  }

  /** Looks and decides until there is an outcome. Null: another host takes too long. Rejects with a StoreError. */
  async function inFleet(act: Act): Promise<FetchOutcome | null> {
    const { cause, signal, account } = act
    const patienceMs = aloneAtMs === null ? Math.min(2 * leaseMsOf(account), (leftMs() || Infinity) / 2) : 0
    const patientUntilMs = nowMs() + patienceMs
    /** An operator is answered only by what was asked for from the first look on, and passes older waits. */
    let sinceMs: number | null = null
    do {
      const look = await answers.look()
      sinceMs ??= cause === 'operator' ? nowMs() : -Infinity
      const step = decide(look.lease, cause, sinceMs)
      if (step === 'adopt') return adopt()
      if (typeof step === 'object') return step
      const outcome = step === 'ask' ? await askForAll(act, look, sinceMs) : null
      if (outcome !== null) return outcome
      await clock.sleep(50 + 200 * random(), signal)
    } while (nowMs() < patientUntilMs && !signal.aborted)
    return null
  }

  /** The next step of an attempt. It follows from what this host knows and has seen, and changes nothing. */
  function decide(
    lease: Look['lease'],
    cause: Cause,
    sinceMs: number,
  ): Postponed | 'adopt' | 'ask' | 'look again' {
    if (answers.isNew(sinceMs)) return 'adopt'
    if (lease?.reason !== undefined && lease.at >= sinceMs) {
      const { reason, detail = '', by: askedBy, until, id } = lease
      const waitMs = until - nowMs() + (id === hostId ? AFTER_OWN_MS : 0)
      return postponed(waitMs, { reason, detail, askedBy })
    }
    if (!asks) return NOT_ASKED
    const againAtMs = (answers.latest()?.at ?? -Infinity) + CLIENT_INTERVAL_MS
    if (cause === 'client' && againAtMs > nowMs()) return postponed(againAtMs - nowMs())
    const isAnotherAsking = lease !== null && lease.reason === undefined && lease.id !== hostId
    return isAnotherAsking ? 'look again' : 'ask'
  }

  /** Takes the lease and asks. Null: another host has the lease (again). */
  async function askForAll(act: Act, before: Look, sinceMs: number): Promise<FetchOutcome | null> {
    const { account, cause, signal } = act
    const own = { id: hostId, by: HOSTNAME }
    const right = { ...own, at: nowMs(), until: nowMs() + leaseMsOf(account) }
    const leaseText = await answers.put('lease', before.leaseText, right)
    if (leaseText === null) return null
    if (cause === 'operator') await clock.sleep(GATHER_MS, signal)
    const look = await answers.look()
    if (answers.isNew(sinceMs) || signal.aborted) {
      await answers.remove('lease', leaseText).catch(telemetry.failed)
      return answers.isNew(sinceMs) ? adopt() : postponed(0)
    }
    // This process was stopped for longer than its lease, or somebody else writes there.
    if (look.leaseText !== leaseText) return null
    const { outcome, sentAtMs, isForAll } = await ask(act, 'asked')
    // From here on no failure of the store leads to a second request. The record comes before the lease goes.
    try {
      if (isForAll && !(await answers.putLatest(look.recordText))) await answers.look()
      if (isForAll || signal.aborted) await answers.remove('lease', leaseText)
      else {
        const wait = { ...own, at: sentAtMs, ...waitAfter(outcome, before.lease, nowMs()) }
        await answers.put('lease', leaseText, wait)
      }
    } catch (error) {
      telemetry.failed(error)
    }
    return outcome
  }

  /** Makes the request. An answer for all counts from then on, whatever becomes of the store. */
  async function ask({ account, signal, ...given }: Act, how: 'asked' | 'alone') {
    const before = answers.latest()
    let sentAtMs = nowMs()
    const onSent = (): void => void (sentAtMs = nowMs())
    const outcome = await account.fetchToken(signal, { ...given, onSent })
    telemetry.came(how)
    aloneAtMs = null
    const answer = answerOf(outcome, account, { sentAtMs, wallMs: clock.now().wallMs })
    if (answer !== null) answers.learn(answer, before)
    return { outcome, sentAtMs, isForAll: answer !== null }
  }

  /** The store is of no use: the request is put off to the moment that is planned for it, and then made. */
  async function alone(act: Act): Promise<FetchOutcome> {
    const { cause, account, signal } = act
    if (signal.aborted) return postponed(0)
    if (!asks) return NOT_ASKED
    if (cause !== 'operator') {
      if (whenAlone === 'wait') return postponed(LOOK_EVERY_MS, { reason: 'share-lost' })
      const isUrgent = cause === 'client' || leftMs() === 0
      const spareMs = Math.max(0, leftMs() - timeoutMs - account.requestTimeoutMs)
      const latestMs = isUrgent ? ALONE_MS : ALONE_PART * spareMs
      if (aloneAtMs === null || aloneAtMs > nowMs() + latestMs) aloneAtMs = nowMs() + random() * latestMs
      if (aloneAtMs > nowMs()) return postponed(Math.min(LOOK_EVERY_MS, aloneAtMs - nowMs()))
    }
    return (await ask(act, 'alone')).outcome
  }

  return { answers, adopt, attempt }
}

/** The wait for all: as long as the service asks for, or short; at least as long as the one that was passed. */
function waitAfter(outcome: FetchOutcome, passed: Look['lease'], nowMs: number) {
  // Any other outcome is a refusal of what the host identifies itself with.
  const failure = outcome.kind === 'transient' ? outcome : ({ reason: 'rejected', detail: '' } as const)
  const { reason, detail, retryAfterMs = 0 }: Omit<TransientFailure, 'kind'> = failure
  const until = Math.max(nowMs + Math.max(retryAfterMs, FAILURE_MS), passed?.until ?? 0)
  return { until, reason, detail }
}

const leaseMsOf = ({ requestTimeoutMs }: Account): number => requestTimeoutMs + LEASE_MARGIN_MS
const NOT_ASKED = postponed(LOOK_EVERY_MS, { reason: 'not-asked' })

function postponed(retryAfterMs: number, more: Partial<Postponed> = {}): Postponed {
  return { kind: 'postponed', retryAfterMs, ...more }
}
