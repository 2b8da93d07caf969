// This host takes part in the fleet of one account: it orders all answers, and makes its attempts. An attempt takes the
// answer of another host, waits for a host that asks, asks for all under a lease, or, without the store, asks alone.
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

/** Hosts share this pair, and ask the service with it so. */
export interface SharedPair {
  readonly share: ShareConfig
  /** This is the keyed fingerprint of the pair. */
  readonly pairId: string
  /** It holds all that identifies the account, with its secrets, without the client certificate. */
  readonly text: string
  readonly fetchToken: FetchToken
  readonly requestTimeoutMs: number
  /** A token that does not say its own life is assumed to live so long. */
  readonly maxAgeMs: number
  /** The host identifies itself with something of its own: a client certificate, a ready-made assertion. */
  readonly hasOwnProof: boolean
}
export type HeldToken = Pick<Token, 'accessToken' | 'expirySource' | 'expiresAtMs' | 'pair' | 'receivedAtMs'>

/** A host reads the store so often, and an attempt without the store is put off by no more at a time. */
export const READ_EVERY_MS = 15_000
/** A lease is longer than the request by so much. */
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
/** Clients cause no two requests of the fleet within this time. */
const CLIENT_INTERVAL_MS = 30_000
/** A text that is further ahead of the store's clock is of no use. */
const AHEAD_MS = 5_000
/** A host remembers so many answers that it had before the latest one. */
const MAX_FORMER = 100

const HOST = hostname()

/** An answer has its times on this host's boot clock. */
type KnownAnswer = Contents['record']
/** One reading gives the texts of both keys, and the lease, on the boot clock; null: its text is of no use. */
interface Reading {
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
  /** The keeper gives its usable token; null: there is none. */
  readonly held: () => HeldToken | null
  readonly telemetry: Telemetry
}

/** Holds the latest answer that this host knows. (`at`, id) orders all answers. */
function createAnswers({ seal, store, settings, clock, pairId, held, telemetry }: FleetOptions) {
  const bootMs = (): number => clock.now().bootMs
  let latest = firstAnswer(held(), pairId)
  /** The keeper has this answer. */
  let deliveredId = latest?.id
  /** This host had these answers before the latest: it takes none of them again, whatever a clock says. */
  const formerIds = new Set<string>()
  /** The store's clock minus the boot clock is between these: each reading narrows it. The lower one counts. */
  let [minOffsetMs, maxOffsetMs] = [-Infinity, Infinity]

  /** Reads both texts, and brings the record and the latest answer to one. Rejects with a StoreError. */
  async function read(tries = 3): Promise<Reading> {
    const opened = await store
    const sentAtMs = bootMs()
    const { nowMs, record: recordText, lease: leaseText } = await opened.read(seal.keys)
    const readAtMs = bootMs()
    // This process was stopped meanwhile: no timer has run.
    if (readAtMs - sentAtMs > settings.timeoutMs) throw new StoreError('The answer came late')
    // The boot clock is in whole ms.
    const bounds = [nowMs - readAtMs - 1, nowMs - sentAtMs + 1] as const
    minOffsetMs = Math.max(minOffsetMs, bounds[0])
    maxOffsetMs = Math.min(maxOffsetMs, bounds[1])
    // The store's clock has jumped, and all times on it move along.
    if (minOffsetMs > maxOffsetMs) [minOffsetMs, maxOffsetMs] = bounds
    const record = open('record', recordText)
    const isSettled = (record !== null && reconcile(record)) || (await putLatest(recordText))
    // Another host may have been faster.
    if (!isSettled && tries > 1) return read(tries - 1)
    telemetry.connected()
    return { recordText, leaseText, lease: open('lease', leaseText) }
  }

  /** Gives the content of a text, unless it is of no use. */
  function open<N extends Name>(name: N, text: string): Contents[N] | null {
    const content = seal.open(name, text)
    if (content === null) return null
    const [at, until] = [content.at - minOffsetMs, content.until - minOffsetMs]
    return at <= bootMs() + AHEAD_MS && until > bootMs() ? { ...content, at, until } : null
  }

  /** Brings the record and the latest answer to one. Reports whether the record is as it is to be. */
  function reconcile(record: KnownAnswer): boolean {
    if (record.id === latest?.id) return true
    // The token from before this process may be that of the record.
    const isFirst = record.kind === 'ok' && latest?.id === fingerprintOf(record.accessToken)
    const isLater = latest === null || (record.at - latest.at || Number(record.id > latest.id)) > 0
    if (isFirst || (isLater && !formerIds.delete(record.id))) {
      replaceLatest(record)
      if (isFirst) markDelivered()
      return true
    }
    // It was left before: a clock has jumped. Once for each, or two hosts that are both sure would go on for ever.
    if (isLater) latest = { ...latest!, at: record.at + 1 }
    return false
  }

  function replaceLatest(next: KnownAnswer): void {
    if (latest !== null) formerIds.add(latest.id)
    for (const id of formerIds) if (formerIds.size > MAX_FORMER) formerIds.delete(id)
    latest = next
  }

  function markDelivered(): void {
    deliveredId = latest?.id
  }

  /** False: another record is there by now. */
  async function putLatest(formerText: string): Promise<boolean> {
    if (latest === null || latest.until <= bootMs()) return true
    return (await put('record', formerText, latest)) !== null
  }

  /** Puts the content in the place of the former text. Returns its text; null: another one is there by now. */
  async function put<N extends Name>(name: N, formerText: string, content: Contents[N]) {
    const [at, until] = [content.at + minOffsetMs, content.until + minOffsetMs]
    const text = seal.seal(name, { ...content, at, until })
    const isPut = await (await store).swap(seal.keys[name], formerText, text, content.until - bootMs())
    return isPut ? text : null
  }

  return {
    read,
    put,
    putLatest,
    /** Removes the lease with this text, unless another one is there by now. */
    giveBack: async (leaseText: string) => (await store).swap(seal.keys.lease, leaseText, '', 1),
    latest: (): KnownAnswer | null => latest,
    /** The keeper lacks the latest answer. */
    hasNews: (): boolean => latest !== null && latest.id !== deliveredId,
    /** The keeper has the latest answer from now on. */
    markDelivered,
    /** This host got an answer, and its keeper has it; `before` was the latest when the request began. */
    learn(answer: KnownAnswer, before: KnownAnswer | null): void {
      // Meanwhile a reading has brought the answer to a later request.
      if (latest !== null && latest !== before && latest.at > answer.at) return
      replaceLatest({ ...answer, at: Math.max(answer.at, (before?.at ?? -Infinity) + 1) })
      markDelivered()
    },
    /** Gives the latest answer, which another host got, as the keeper takes it. */
    outcome(): FetchOutcome {
      const { id: _, by, at, until, ...answer } = latest!
      const life = answer.kind === 'ok' ? { lifeMs: until - at, ageMs: bootMs() - at } : {}
      return { ...answer, ...life, askedBy: by }
    },
  }
}

/** The keeper makes one attempt. */
interface Act extends Attempt {
  readonly shared: SharedPair
  readonly signal: AbortSignal
}
export type Fleet = ReturnType<typeof createFleet>

export function createFleet(options: FleetOptions) {
  const { clock, random, held, telemetry } = options
  const { timeoutMs, asks, whenAlone } = options.settings
  const bootMs = (): number => clock.now().bootMs
  const answers = createAnswers(options)
  /** The token in use lives so long from now on; 0: there is none. */
  const restMs = (): number => Math.max(0, (held()?.expiresAtMs ?? 0) - bootMs())
  const isAnswered = (sinceAtMs: number): boolean => answers.hasNews() && answers.latest()!.at >= sinceAtMs
  /** By this it knows its own leases, which a late command may put unseen. */
  const ownId = randomUUID()
  /** This host asks by itself then, on the boot clock; null: that is not planned. */
  let planAtMs: number | null = null

  /** Null: a host that asks takes too long. Rejects with a StoreError. */
  async function attemptInFleet(act: Act): Promise<FetchOutcome | null> {
    const patienceMs = planAtMs === null ? Math.min(2 * leaseMsOf(act.shared), (restMs() || Infinity) / 2) : 0
    const patientUntilMs = bootMs() + patienceMs
    /** An operator is answered only by what was asked for after the first reading, and passes older waits. */
    let sinceAtMs = act.cause === 'operator' ? null : -Infinity
    do {
      const reading = await answers.read()
      sinceAtMs ??= bootMs()
      if (isAnswered(sinceAtMs)) return adopt()
      const outcome = reasonNotToAsk(act, reading, sinceAtMs) ?? (await askForAll(act, reading, sinceAtMs))
      if (outcome !== null) return outcome
      await clock.sleep(50 + 200 * random(), act.signal)
    } while (bootMs() < patientUntilMs && !act.signal.aborted)
    return null
  }

  function reasonNotToAsk({ cause }: Act, { lease }: Reading, sinceAtMs: number): Postponed | null {
    if (lease?.reason !== undefined && lease.at >= sinceAtMs) {
      const { reason, detail = '', by, until, id } = lease
      const waitMs = until - bootMs() + (id === ownId ? AFTER_OWN_MS : 0)
      return postponed(waitMs, { reason, detail, askedBy: by })
    }
    if (!asks) return NOT_ASKED
    if (cause !== 'client') return null
    const waitMs = (answers.latest()?.at ?? -Infinity) + CLIENT_INTERVAL_MS - bootMs()
    return waitMs > 0 ? postponed(waitMs) : null
  }

  /** Null: another attempt has the lease (again). */
  async function askForAll(act: Act, reading: Reading, sinceAtMs: number): Promise<FetchOutcome | null> {
    const { lease } = reading
    if (lease !== null && lease.reason === undefined && lease.id !== ownId) return null
    const own = { id: ownId, by: HOST }
    const until = bootMs() + leaseMsOf(act.shared)
    const ownText = await answers.put('lease', reading.leaseText, { ...own, at: bootMs(), until })
    if (ownText === null) return null
    if (act.cause === 'operator') await clock.sleep(GATHER_MS, act.signal)
    const { recordText, leaseText } = await answers.read()
    if (isAnswered(sinceAtMs) || act.signal.aborted) {
      await answers.giveBack(ownText).catch(telemetry.failed)
      return isAnswered(sinceAtMs) ? adopt() : postponed(0)
    }
    // This process was stopped for longer than its lease, or somebody else writes there.
    if (leaseText !== ownText) return null
    const { outcome, sentAtMs, isForAll } = await ask(act, 'asked')
    // From here on no failure of the store leads to a second request. The record comes before the lease goes.
    try {
      if (isForAll && !(await answers.putLatest(recordText))) await answers.read()
      if (isForAll || act.signal.aborted) await answers.giveBack(ownText)
      else await answers.put('lease', ownText, { ...own, at: sentAtMs, ...waitAfter(outcome, lease) })
    } catch (error) {
      telemetry.failed(error)
    }
    return outcome
  }

  /** The wait for all is as long as the service asks for, or short; at least a longer one that was passed. */
  function waitAfter(outcome: FetchOutcome, passed: Reading['lease']) {
    // Else it is a refusal of what the host identifies itself with.
    const failure = outcome.kind === 'transient' ? outcome : ({ reason: 'rejected', detail: '' } as const)
    const { reason, detail, retryAfterMs = 0 }: Omit<TransientFailure, 'kind'> = failure
    const until = Math.max(bootMs() + Math.max(retryAfterMs, FAILURE_MS), passed?.until ?? 0)
    return { until, reason, detail }
  }

  /** The store is of no use: the request is put off to the moment that is planned for it, and then made. */
  async function attemptAlone(act: Act): Promise<FetchOutcome> {
    const { cause, shared, signal } = act
    if (signal.aborted) return postponed(0)
    if (!asks) return NOT_ASKED
    if (cause !== 'operator') {
      if (whenAlone === 'wait') return postponed(READ_EVERY_MS, { reason: 'share-lost' })
      const isUrgent = cause === 'client' || restMs() === 0
      const spareMs = Math.max(0, restMs() - timeoutMs - shared.requestTimeoutMs)
      const latestAtMs = bootMs() + (isUrgent ? ALONE_MS : ALONE_PART * spareMs)
      if (planAtMs === null || planAtMs > latestAtMs) planAtMs = bootMs() + random() * (latestAtMs - bootMs())
      if (planAtMs > bootMs()) return postponed(Math.min(READ_EVERY_MS, planAtMs - bootMs()))
    }
    return (await ask(act, 'alone')).outcome
  }

  /** Makes the request. Its answer counts from then on, whatever becomes of the store. */
  async function ask({ shared, signal, ...attempt }: Act, how: 'asked' | 'alone') {
    const before = answers.latest()
    let sentAtMs = bootMs()
    const onSent = (): void => void (sentAtMs = bootMs())
    const outcome = await shared.fetchToken(signal, { ...attempt, onSent })
    telemetry.outcomeCame(how)
    planAtMs = null
    const answer = answerOf(outcome, shared, { sentAtMs, wallMs: clock.now().wallMs })
    if (answer !== null) answers.learn(answer, before)
    return { outcome, sentAtMs, isForAll: answer !== null }
  }

  /** Takes the latest answer, which another host got. */
  function adopt(): FetchOutcome {
    const { by, at } = answers.latest()!
    planAtMs = null
    answers.markDelivered()
    telemetry.outcomeCame('adopted', { by, ageMs: Math.round(bootMs() - at) })
    return answers.outcome()
  }

  return {
    answers,
    adopt,
    async attempt(shared: SharedPair, ...[signal, attempt]: Parameters<FetchToken>): Promise<FetchOutcome> {
      const act: Act = { ...attempt, shared, signal }
      const outcome = (await attemptInFleet(act).catch(telemetry.failed)) ?? (await attemptAlone(act))
      // A later answer may have come meanwhile. An operator waits for what follows the act.
      return answers.hasNews() && !signal.aborted && act.cause !== 'operator' ? adopt() : outcome
    },
  }
}

const leaseMsOf = ({ requestTimeoutMs }: SharedPair): number => requestTimeoutMs + LEASE_MARGIN_MS
const NOT_ASKED = postponed(READ_EVERY_MS, { reason: 'not-asked' })

/** The keeper has this token for the pair: after a start the fleet may not know of it. */
function firstAnswer(held: HeldToken | null, pairId: string): KnownAnswer | null {
  if (held?.pair !== pairId) return null
  const { accessToken, expirySource, receivedAtMs: at, expiresAtMs: until } = held
  const id = fingerprintOf(accessToken)
  return { kind: 'ok', accessToken, expirySource, id, by: HOST, at, until }
}

/** Null: it holds for this host alone, or is no answer. */
function answerOf(
  outcome: FetchOutcome,
  { hasOwnProof, maxAgeMs }: SharedPair,
  { sentAtMs: at, wallMs }: { sentAtMs: number; wallMs: number },
): KnownAnswer | null {
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
