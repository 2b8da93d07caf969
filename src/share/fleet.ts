// This host in the fleet of one account: the order of all answers, and its attempts. An attempt takes the answer of
// another host, waits for a host that asks, asks for all under a lease, or, while the store is of no use, asks alone.
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import type { ShareConfig } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import { fingerprintOf } from '../protocol.ts'
import type { Attempt, FetchOutcome, FetchToken, Postponed, TransientFailure } from '../token/outcome.ts'
import { lifeOf, type Token } from '../token/token.ts'
import type { Contents, Name, Seal } from './seal.ts'
import { StoreError, type Store } from './store.ts'
import type { Telemetry } from './telemetry.ts'

/** A pair that is shared, and how the service is asked with it. */
export interface SharedPair {
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
export type Held = Pick<Token, 'accessToken' | 'expirySource' | 'expiresAtMs' | 'pair' | 'receivedAtMs'>

/** The time between two readings, and the longest wait of an attempt without the store. */
export const READ_EVERY_MS = 15_000
/** The part of a lease beyond the request itself. */
const LEASE_MARGIN_MS = 2_000
/** Operators on other hosts who begin within this time share the request. */
const GATHER_MS = 300
/** For so long a refusal holds for hosts that come. */
const REFUSAL_MS = 3_600_000
/** No host asks within this time after a failure. The host that failed comes later: it may be its own. */
const FAILURE_MS = 5_000
const AFTER_OWN_MS = 500
/** Alone, a host without a token asks within this time, and one with a token within this part of its life. */
const ALONE_MS = 10_000
const ALONE_PART = 0.8
/** The shortest time between two requests of the fleet that clients cause. */
const CLIENT_INTERVAL_MS = 30_000
/** A text that is further ahead of the store's clock is of no use. */
const AHEAD_MS = 5_000
/** So many answers that it has left a host remembers. */
const MAX_LEFT = 100

const HOST = hostname()

/** An answer, with its times on this host's boot clock. */
type Known = Contents['record']
/** The texts of both keys, and the lease, with its times on the boot clock; null: the text is of no use. */
interface Seen {
  readonly recordText: string
  readonly leaseText: string
  readonly lease: Contents['lease'] | null
}

interface FleetOptions {
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

/** The last answer that this host knows, and the texts of the store. The order of all answers is that of (`at`, id). */
function createAnswers({ seal, store, settings, clock, pairId, held, telemetry }: FleetOptions) {
  const bootMs = (): number => clock.now().bootMs
  let latest = firstOf(held(), pairId)
  /** The answer that the keeper has. */
  let deliveredId = latest?.id
  /** Ids of answers that this host has left for later ones: it takes none of them again, whatever a clock says. */
  const left = new Set<string>()
  /** The store's clock minus the boot clock is between these: each reading narrows it. The lower one counts. */
  let [low, high] = [-Infinity, Infinity]

  /** The content of a text, unless it is of no use. */
  function open<N extends Name>(name: N, text: string): Contents[N] | null {
    const content = seal.open(name, text)
    if (content === null) return null
    const [at, until] = [content.at - low, content.until - low]
    return at <= bootMs() + AHEAD_MS && until > bootMs() ? { ...content, at, until } : null
  }

  /** Puts the content in the place of the former text. Returns its text; null: another one is there by now. */
  async function put<N extends Name>(name: N, former: string, content: Contents[N]): Promise<string | null> {
    const [at, until] = [content.at + low, content.until + low]
    const text = seal.seal(name, { ...content, at, until })
    const isPut = await (await store).swap(seal.keys[name], former, text, content.until - bootMs())
    return isPut ? text : null
  }

  /** False: another record is there by now. */
  async function putLatest(former: string): Promise<boolean> {
    if (latest === null || latest.until <= bootMs()) return true
    return (await put('record', former, latest)) !== null
  }

  function replace(next: Known): void {
    if (latest !== null) left.add(latest.id)
    for (const id of left) if (left.size > MAX_LEFT) left.delete(id)
    latest = next
  }

  function delivered(): void {
    deliveredId = latest?.id
  }

  /** Brings the record and the latest answer to one. Reports whether the record is as it is to be. */
  function meet(record: Known): boolean {
    if (record.id === latest?.id) return true
    // The token from before this process may be that of the record.
    const isFirst = record.kind === 'ok' && latest?.id === fingerprintOf(record.accessToken)
    const isLater = latest === null || (record.at - latest.at || Number(record.id > latest.id)) > 0
    if (isFirst || (isLater && !left.delete(record.id))) {
      replace(record)
      if (isFirst) delivered()
      return true
    }
    // It was left already: a clock has jumped. Once for each, or two hosts that are both sure would go on for ever.
    if (isLater) latest = { ...latest!, at: record.at + 1 }
    return false
  }

  /** Reads both texts, and brings the record and the latest answer to one. Rejects with a StoreError. */
  async function read(tries = 3): Promise<Seen> {
    const opened = await store
    const beforeMs = bootMs()
    const { nowMs, record: recordText, lease: leaseText } = await opened.read(seal.keys)
    const afterMs = bootMs()
    // This process was stopped meanwhile: no timer has run.
    if (afterMs - beforeMs > settings.timeoutMs) throw new StoreError('The answer came late')
    // The boot clock is in whole ms.
    const bounds = [nowMs - afterMs - 1, nowMs - beforeMs + 1] as const
    low = Math.max(low, bounds[0])
    high = Math.min(high, bounds[1])
    // The store's clock has jumped, and all times on it move along.
    if (low > high) [low, high] = bounds
    const found = open('record', recordText)
    const isSettled = (found !== null && meet(found)) || (await putLatest(recordText))
    // Another host may have been faster.
    if (!isSettled && tries > 1) return read(tries - 1)
    telemetry.connected()
    return { recordText, leaseText, lease: open('lease', leaseText) }
  }

  return {
    read,
    put,
    putLatest,
    /** Removes this lease, unless another one is there by now. */
    giveBack: async (lease: string): Promise<unknown> => (await store).swap(seal.keys.lease, lease, '', 1),
    latest: (): Known | null => latest,
    /** The keeper lacks the latest answer. */
    isNew: (): boolean => latest !== null && latest.id !== deliveredId,
    /** The keeper has the latest answer from now on. */
    delivered,
    /** This host got an answer, and its keeper has it; `before` was the latest when the request began. */
    learn(got: Known, before: Known | null): void {
      // Meanwhile a reading has brought the answer to a later request.
      if (latest !== null && latest !== before && latest.at > got.at) return
      replace({ ...got, at: Math.max(got.at, (before?.at ?? -Infinity) + 1) })
      delivered()
    },
    /** The latest answer, which another host got, as the keeper takes it. */
    outcome(): FetchOutcome {
      const { id: _, by, at, until, ...answer } = latest!
      const life = answer.kind === 'ok' ? { lifeMs: until - at, ageMs: bootMs() - at } : {}
      return { ...answer, ...life, askedBy: by }
    },
  }
}

/** One attempt of the keeper. */
interface Act extends Attempt {
  readonly shared: SharedPair
  readonly signal: AbortSignal
  /** From the first reading on: an operator is answered only by what was asked for then, and passes older waits. */
  sinceMs?: number
}
export type Fleet = ReturnType<typeof createFleet>

export function createFleet(options: FleetOptions) {
  const { clock, random, held, telemetry } = options
  const { timeoutMs, asks, whenAlone } = options.settings
  const bootMs = (): number => clock.now().bootMs
  const answers = createAnswers(options)
  /** The rest of the life of the token in use; 0: there is none. */
  const leftMs = (): number => Math.max(0, (held()?.expiresAtMs ?? 0) - bootMs())
  /** By this it knows its own leases, which a late command may put unseen. */
  const ownId = randomUUID()
  /** When this host asks by itself, on the boot clock; null: that is not planned. */
  let planMs: number | null = null

  /** The latest answer, which another host got, as the keeper takes it. */
  function adopt(): FetchOutcome {
    const { by, at } = answers.latest()!
    planMs = null
    answers.delivered()
    telemetry.came('adopted', { by, ageMs: Math.round(bootMs() - at) })
    return answers.outcome()
  }

  const isAnswered = ({ sinceMs }: Act): boolean => answers.isNew() && answers.latest()!.at >= sinceMs!

  /** Makes the request. Its answer counts from then on, whatever becomes of the store. */
  async function ask({ shared, signal, ...attempt }: Act, how: 'asked' | 'alone') {
    const before = answers.latest()
    let sentMs = bootMs()
    const onSent = (): void => void (sentMs = bootMs())
    const outcome = await shared.fetchToken(signal, { ...attempt, onSent })
    telemetry.came(how)
    planMs = null
    const answer = answerOf(outcome, shared, { sentMs, wallMs: clock.now().wallMs })
    if (answer !== null) answers.learn(answer, before)
    return { outcome, sentMs, isForAll: answer !== null }
  }

  /** Null: another attempt has the lease (again). */
  async function askForAll(act: Act, { leaseText: former, lease }: Seen): Promise<FetchOutcome | null> {
    if (lease !== null && lease.reason === undefined && lease.id !== ownId) return null
    const own = { id: ownId, by: HOST }
    const leaseMs = leaseMsOf(act.shared)
    const mine = await answers.put('lease', former, { ...own, at: bootMs(), until: bootMs() + leaseMs })
    if (mine === null) return null
    if (act.cause === 'operator') await clock.sleep(GATHER_MS, act.signal)
    const { recordText, leaseText } = await answers.read()
    if (isAnswered(act) || act.signal.aborted) {
      await answers.giveBack(mine).catch(telemetry.failed)
      return isAnswered(act) ? adopt() : postponed(0)
    }
    // This process was stopped for longer than its lease, or somebody else writes there.
    if (leaseText !== mine) return null
    const { outcome, sentMs, isForAll } = await ask(act, 'asked')
    // From here on no failure of the store leads to a second request. The record comes before the lease goes.
    try {
      if (isForAll && !(await answers.putLatest(recordText))) await answers.read()
      if (isForAll || act.signal.aborted) await answers.giveBack(mine)
      else await answers.put('lease', mine, { ...own, at: sentMs, ...waitAfter(outcome, lease) })
    } catch (error) {
      telemetry.failed(error)
    }
    return outcome
  }

  /** The wait for all: as long as the service asks for, or short; at least a longer one that was passed. */
  function waitAfter(outcome: FetchOutcome, passed: Seen['lease']) {
    // Else it is a refusal of what the host identifies itself with.
    const failure = outcome.kind === 'transient' ? outcome : ({ reason: 'rejected', detail: '' } as const)
    const { reason, detail, retryAfterMs = 0 }: Omit<TransientFailure, 'kind'> = failure
    const until = Math.max(bootMs() + Math.max(retryAfterMs, FAILURE_MS), passed?.until ?? 0)
    return { until, reason, detail }
  }

  /** Null: a host that asks takes too long. Rejects with a StoreError. */
  async function inFleet(act: Act): Promise<FetchOutcome | null> {
    const patienceMs = planMs === null ? Math.min(2 * leaseMsOf(act.shared), (leftMs() || Infinity) / 2) : 0
    const patientUntilMs = bootMs() + patienceMs
    do {
      const seen = await answers.read()
      act.sinceMs ??= act.cause === 'operator' ? bootMs() : -Infinity
      if (isAnswered(act)) return adopt()
      const outcome = reasonNotToAsk(act, seen) ?? (await askForAll(act, seen))
      if (outcome !== null) return outcome
      await clock.sleep(50 + 200 * random(), act.signal)
    } while (bootMs() < patientUntilMs && !act.signal.aborted)
    return null
  }

  function reasonNotToAsk({ cause, sinceMs }: Act, { lease }: Seen): Postponed | null {
    if (lease?.reason !== undefined && lease.at >= sinceMs!) {
      const { reason, detail = '', by, until, id } = lease
      const waitMs = until - bootMs() + (id === ownId ? AFTER_OWN_MS : 0)
      return postponed(waitMs, { reason, detail, askedBy: by })
    }
    if (!asks) return NOT_ASKED
    const paceMs =
      cause === 'client' ? (answers.latest()?.at ?? -Infinity) + CLIENT_INTERVAL_MS - bootMs() : 0
    return paceMs > 0 ? postponed(paceMs) : null
  }

  /** The store is of no use: the request is put off to the moment that is planned for it, and then made. */
  async function alone(act: Act): Promise<FetchOutcome> {
    const { cause, shared, signal } = act
    if (signal.aborted) return postponed(0)
    if (!asks) return NOT_ASKED
    if (cause !== 'operator') {
      if (whenAlone === 'wait') return postponed(READ_EVERY_MS, { reason: 'share-lost' })
      const isUrgent = cause === 'client' || leftMs() === 0
      const spareMs = Math.max(0, leftMs() - timeoutMs - shared.requestTimeoutMs)
      const latestMs = bootMs() + (isUrgent ? ALONE_MS : ALONE_PART * spareMs)
      if (planMs === null || planMs > latestMs) planMs = bootMs() + random() * (latestMs - bootMs())
      if (planMs > bootMs()) return postponed(Math.min(READ_EVERY_MS, planMs - bootMs()))
    }
    return (await ask(act, 'alone')).outcome
  }

  return {
    answers,
    adopt,
    async attempt(shared: SharedPair, ...[signal, attempt]: Parameters<FetchToken>): Promise<FetchOutcome> {
      const act: Act = { ...attempt, shared, signal }
      const outcome = (await inFleet(act).catch(telemetry.failed)) ?? (await alone(act))
      // A later answer may have come meanwhile. An operator waits for what follows the act.
      return answers.isNew() && !signal.aborted && act.cause !== 'operator' ? adopt() : outcome
    },
  }
}

const leaseMsOf = ({ requestTimeoutMs }: SharedPair): number => requestTimeoutMs + LEASE_MARGIN_MS
const NOT_ASKED = postponed(READ_EVERY_MS, { reason: 'not-asked' })

/** The token that the keeper has for this pair: after a start the fleet may not know of it. */
function firstOf(held: Held | null, pairId: string): Known | null {
  if (held?.pair !== pairId) return null
  const { accessToken, expirySource, receivedAtMs: at, expiresAtMs: until } = held
  const id = fingerprintOf(accessToken)
  return { kind: 'ok', accessToken, expirySource, id, by: HOST, at, until }
}

/** Null: it holds for this host alone, or is no answer. */
function answerOf(
  outcome: FetchOutcome,
  { hasOwnProof, maxAgeMs }: SharedPair,
  { sentMs: at, wallMs }: { sentMs: number; wallMs: number },
): Known | null {
  const stamped = { id: randomUUID(), by: HOST, at }
  if (outcome.kind === 'permanent' && !hasOwnProof) {
    const { kind, reason, detail, status } = outcome
    return { kind, reason, detail, status, ...stamped, until: at + REFUSAL_MS }
  }
  if (outcome.kind !== 'ok') return null
  const { kind, accessToken } = outcome
  const { lifeMs, expirySource } = lifeOf(outcome, wallMs, maxAgeMs)
  return lifeMs > 0 ? { kind, accessToken, expirySource, ...stamped, until: at + lifeMs } : null
}

function postponed(retryAfterMs: number, more: Partial<Postponed> = {}): Postponed {
  return { kind: 'postponed', retryAfterMs, ...more }
}
