// The attempts of a host in its account's fleet: it adopts the answer of another host, waits for a host that
// asks, asks for all under a lease, or, while the store is of no use, asks alone.
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { ShareConfig } from '../config/config.ts'
import type { Attempt, FetchOutcome, FetchToken, Postponed } from '../token/outcome.ts'
import { knownLife } from '../token/token.ts'
import { createAnswers } from './answers.ts'
import type { Answer, Contents, Seal } from './seal.ts'
import { StoreError, type Store } from './store.ts'
import type { Telemetry } from './telemetry.ts'

/** A pair, with the settings of `share`. */
export interface Account {
  readonly share: ShareConfig
  /** As `Held` names the pair. */
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

export interface HostOptions {
  readonly seal: Seal
  readonly store: Promise<Store>
  readonly settings: ShareConfig
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  /** The name of this host to the others. */
  readonly name: string
  /** How long the token in use can be used, in ms; 0: there is none. */
  readonly usableLeftMs: () => number
  readonly telemetry: Telemetry
}

/** The time between two looks, and the longest wait of an attempt without the store. */
export const LOOK_EVERY_MS = 15_000
/** The part of a lease beyond the request itself. */
const LEASE_MARGIN_MS = 2_000
/** Operators on other hosts who begin within this time share the request. */
const GATHER_MS = 300
/** For so long a refusal holds for hosts that come. */
const REFUSAL_MS = 3_600_000
const LONGEST_WAIT_MS = 72 * 60_000
/** No host asks within this time after a failure. The host that failed comes later: it may be its own. */
const FAILURE_MS = 5_000
const AFTER_OWN_MS = 500
/** Alone, a host without a token asks within this time, and one with a token within this part of its life. */
const ALONE_MS = 10_000
const ALONE_PART = 0.8
/** A text that is further ahead of the store's clock is of no use. */
const AHEAD_MS = 5_000
/** The shortest time between two requests of the fleet that clients cause. */
const CLIENT_INTERVAL_MS = 30_000

/** One attempt of the keeper. */
interface Act extends Attempt {
  readonly account: Account
  readonly signal: AbortSignal
  /** An operator's is answered only by what was asked for after its first look; on the store's clock. */
  since: number
}
interface Seen {
  readonly record: string
  readonly lease: string
  /** The lease of another attempt, or a wait. */
  readonly kept: Contents['lease'] | null
}

export type Host = ReturnType<typeof createHost>

export function createHost(options: HostOptions) {
  const { seal, store, clock, random, log, name, usableLeftMs, telemetry } = options
  const { prefix, timeoutMs, asks, whenAlone } = options.settings
  const bootMs = (): number => clock.now().bootMs
  const answers = createAnswers(bootMs)
  const { storeMs } = answers
  const keys = { record: seal.keyOf(prefix, 'record'), lease: seal.keyOf(prefix, 'lease') }
  /** When this host asks by itself, on the boot clock; null: that is not planned. */
  let planMs: number | null = null
  /** The lease that this host tried to take last, which a late command may put unseen; and its last wait. */
  let [lastLease, ownWait] = ['', '']
  /** The last write failed: the next look puts the record again. */
  let isUnwritten = false

  async function swap(key: keyof typeof keys, former: string, text: string, keepMs = 1): Promise<boolean> {
    isUnwritten = true
    const isDone = await (await store).swap(keys[key], former, text, keepMs)
    isUnwritten = false
    return isDone
  }

  async function putRecord(former: string): Promise<boolean> {
    const record = answers.record()
    return record === null || swap('record', former, seal.seal('record', record.content), record.keepMs)
  }

  /** Rejects with a StoreError if the store is of no use. */
  async function look(tries = 3): Promise<Seen> {
    const { read } = await store
    const beforeMs = bootMs()
    const { nowMs, record, lease } = await read(keys)
    const afterMs = bootMs()
    // This process was stopped meanwhile: no timer has run.
    if (afterMs - beforeMs > timeoutMs) throw new StoreError('lost', 'The answer came late')
    answers.readClock(nowMs, beforeMs, afterMs)
    const found = seal.open('record', record)
    const isOfUse = found !== null && found.at <= nowMs + AHEAD_MS && found.at + found.lifeMs > nowMs
    const isToBePut = answers.meet(isOfUse ? found : null) || isUnwritten
    // Another host may have been faster.
    if (isToBePut && !(await putRecord(record)) && tries > 1) return look(tries - 1)
    if (!isUnwritten) telemetry.connected()
    const kept = seal.open('lease', lease)
    const isLive = kept !== null && kept.at <= nowMs + AHEAD_MS && kept.until > nowMs && lease !== lastLease
    return { record, lease, kept: isLive ? kept : null }
  }

  /** The latest answer, which another host got, as an outcome for the keeper. */
  function adopt(): FetchOutcome {
    const { by, sentMs } = answers.latest()!
    planMs = null
    answers.delivered()
    telemetry.counted('adopted')
    const fields = { event: 'share-adopted', by, ageMs: Math.round(bootMs() - sentMs) }
    log('debug', 'Took over what another host was answered', fields)
    return answers.outcome()
  }

  const isAnswered = ({ since }: Act): boolean => answers.isNew() && answers.latest()!.at >= since

  /** Makes the request. What it brings for all counts from then on, whatever becomes of the store. */
  async function ask({ account, cause, signal, ...act }: Act, how: 'asked' | 'alone') {
    const before = answers.latest()
    let sentMs = NaN
    const onSent = (): void => void (sentMs = bootMs())
    const beforeRequest = (): Promise<void> => act.beforeRequest().then(onSent)
    const outcome = await account.fetchToken(signal, { ...act, cause, beforeRequest, onSent })
    if (Number.isNaN(sentMs)) return { outcome, sentMs, isForAll: false }
    telemetry.counted(how)
    planMs = null
    const got = answerOf(outcome, account, clock.now().wallMs)
    if (got !== null) {
      const { answer, lifeMs } = got
      answers.learn({ answer, by: name, sentMs, endsMs: sentMs + lifeMs }, before, how === 'asked')
      if (answers.latest()?.answer === answer && !signal.aborted) answers.delivered()
    }
    return { outcome, sentMs, isForAll: got !== null }
  }

  /** Null: another attempt has the lease (again). */
  async function askForAll(act: Act, seen: Seen): Promise<FetchOutcome | null> {
    const leaseMs = leaseMsOf(act.account)
    const endsAtMs = bootMs() + leaseMs
    const mine = seal.seal('lease', { at: storeMs(), until: storeMs() + leaseMs, by: name })
    lastLease = mine
    if (!(await swap('lease', seen.lease, mine, leaseMs))) return null
    if (act.cause === 'operator') await clock.sleep(GATHER_MS, act.signal)
    const again = await look()
    if (isAnswered(act) || act.signal.aborted) {
      await swap('lease', mine, '').catch(telemetry.failed)
      return isAnswered(act) ? adopt() : postponed(0)
    }
    // This process was stopped for longer than its lease.
    if (bootMs() > endsAtMs) return null
    if (again.lease !== mine) throw new StoreError('lost', 'The lease was taken away')
    const { outcome, sentMs, isForAll } = await ask(act, 'asked')
    const isAsked = !Number.isNaN(sentMs) && !act.signal.aborted
    if (isAsked) log('info', 'Asked the service for the fleet', { event: 'share-asked' })
    const isWait = isAsked && !isForAll
    ownWait = isWait ? seal.seal('lease', waitAfter(outcome, sentMs, seen)) : ''
    const keepMs = isWait ? seal.open('lease', ownWait)!.until - storeMs() : 0
    // From here on no failure of the store leads to a second request. The record comes before the lease goes.
    const written = isForAll ? putRecord(again.record) : Promise.resolve(true)
    const given = swap('lease', mine, ownWait, keepMs)
    const looked = written.then((isWritten) => (isWritten ? null : look()))
    await Promise.all([given, looked]).catch(telemetry.failed)
    return outcome
  }

  /** The lease as a wait for all: as long as the service asks for, or short. A longer one that was passed goes on. */
  function waitAfter(outcome: FetchOutcome, sentMs: number, { kept }: Seen): Contents['lease'] {
    const { reason, detail, retryAfterMs } = outcome.kind === 'transient' ? outcome : OF_OWN_PROOF
    const askedMs = reason in FOR_ALL ? (retryAfterMs ?? FOR_ALL[reason]!) : 0
    const until = storeMs() + Math.min(Math.max(askedMs, FAILURE_MS), LONGEST_WAIT_MS)
    const isLonger = kept?.reason !== undefined && kept.until > until
    return { reason, detail, until, ...(isLonger && kept), at: sentMs - bootMs() + storeMs(), by: name }
  }

  /** Null: a host that asks takes too long. Rejects with a StoreError. */
  async function inFleet(act: Act): Promise<FetchOutcome | null> {
    const leftMs = usableLeftMs() || Infinity
    const patienceMs = planMs === null ? Math.min(2 * leaseMsOf(act.account), leftMs / 2) : 0
    const patientUntilMs = bootMs() + patienceMs
    do {
      const seen = await look()
      if (act.cause === 'operator' && act.since === -Infinity) act.since = storeMs()
      if (act.signal.aborted) return postponed(0)
      if (isAnswered(act)) return adopt()
      const { kept } = seen
      const isFree = kept === null || kept.reason !== undefined
      const reason = reasonNotToAsk(act, seen)
      const outcome = reason ?? (isFree ? await askForAll(act, seen) : null)
      if (outcome !== null) return outcome
      await clock.sleep(50 + 200 * random(), act.signal)
    } while (bootMs() < patientUntilMs)
    return null
  }

  function reasonNotToAsk({ cause, since }: Act, { kept, lease }: Seen): Postponed | null {
    if (kept?.reason !== undefined && kept.at >= since) {
      const { reason, detail = '', by, until } = kept
      const isOwn = lease === ownWait
      const leftMs = until - storeMs() + (isOwn ? AFTER_OWN_MS : 0)
      return postponed(leftMs, { reason, detail, ...(!isOwn && { askedBy: by }) })
    }
    if (!asks) return postponed(LOOK_EVERY_MS, { reason: 'not-asked' })
    const paceMs = cause === 'client' ? (answers.latest()?.at ?? 0) + CLIENT_INTERVAL_MS - storeMs() : 0
    return paceMs > 0 ? postponed(paceMs) : null
  }

  /** The store is of no use: the request is put off to the moment that is planned for it, and then made. */
  async function alone(act: Act): Promise<FetchOutcome> {
    if (act.cause !== 'operator') {
      if (!asks || whenAlone === 'wait')
        return postponed(LOOK_EVERY_MS, { reason: asks ? 'share-lost' : 'not-asked', detail: NOT_ALONE })
      const usableMs = usableLeftMs()
      const isUrgent = act.cause === 'client' || usableMs === 0
      if (planMs === null || (isUrgent && planMs > bootMs() + ALONE_MS)) {
        const leftMs = Math.max(0, usableMs - timeoutMs - act.account.requestTimeoutMs)
        const inMs = Math.round(random() * (isUrgent ? ALONE_MS : ALONE_PART * leftMs))
        planMs = bootMs() + inMs
        telemetry.alone(inMs)
      }
      if (planMs > bootMs()) return postponed(Math.min(LOOK_EVERY_MS, planMs - bootMs()))
    }
    return act.signal.aborted ? postponed(0) : (await ask(act, 'alone')).outcome
  }

  return {
    answers,
    look,
    adopt,
    async attempt(account: Account, ...[signal, attempt]: Parameters<FetchToken>): Promise<FetchOutcome> {
      const act = { ...attempt, account, signal, since: -Infinity }
      const outcome = (await inFleet(act).catch(telemetry.failed)) ?? (await alone(act))
      // A later answer may have come meanwhile. An operator waits for what follows the act.
      return answers.isNew() && !signal.aborted && attempt.cause !== 'operator' ? adopt() : outcome
    },
  }
}

const leaseMsOf = ({ requestTimeoutMs }: Account): number => requestTimeoutMs + LEASE_MARGIN_MS
const NOT_ALONE = 'The shared store cannot be used, and this host is not to ask by itself'
/** The service says these to all hosts; the wait where it names none. */
const FOR_ALL: Readonly<Record<string, number>> = { 'rate-limited': 60_000, 'server-error': FAILURE_MS }
/** A refusal of what the host identifies itself with. */
const OF_OWN_PROOF = { reason: 'rejected', detail: '', retryAfterMs: undefined } as const

/** Null: it holds for this host alone, or is no answer. */
function answerOf(outcome: FetchOutcome, { hasOwnProof, maxAgeMs }: Account, wallMs: number) {
  if (outcome.kind === 'permanent' && !hasOwnProof) {
    const { kind, reason, detail, status } = outcome
    return { answer: { kind, reason, detail, status } satisfies Answer, lifeMs: REFUSAL_MS }
  }
  if (outcome.kind !== 'ok') return null
  const { kind, accessToken } = outcome
  const assumed = { lifeMs: maxAgeMs, expirySource: 'assumed' } as const
  const { lifeMs, expirySource } = knownLife(outcome, wallMs) ?? assumed
  return lifeMs > 0 ? { answer: { kind, accessToken, expirySource } satisfies Answer, lifeMs } : null
}

function postponed(retryAfterMs: number, more: Partial<Postponed> = {}): Postponed {
  return { kind: 'postponed', retryAfterMs, ...more }
}
