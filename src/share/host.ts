// A host in its account's fleet: the order of answers, and its attempts. It adopts the answer of another host, waits
// for a host that asks, asks for all under a lease, or, while the store is of no use, asks alone.
import { randomUUID } from 'node:crypto'
import type { ShareConfig } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import type { Attempt, FetchOutcome, FetchToken, Postponed } from '../token/outcome.ts'
import { knownLife } from '../token/token.ts'
import type { Answer, Contents, Seal } from './seal.ts'
import { StoreError, type Store } from './store.ts'
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
/** For so long a refusal holds for hosts that come. */
const REFUSAL_MS = 3_600_000
/** No host asks within this time after a failure. The host that failed comes later: it may be its own. */
const FAILURE_MS = 5_000
const AFTER_OWN_MS = 500
/** The service says these failures to all hosts; the wait where it names none. */
const FOR_ALL: Readonly<Record<string, number>> = { 'rate-limited': 60_000, 'server-error': FAILURE_MS }
/** Alone, a host without a token asks within this time, and one with a token within this part of its life. */
const ALONE_MS = 10_000
const ALONE_PART = 0.8
/** A text that is further ahead of the store's clock is of no use. */
const AHEAD_MS = 5_000
/** The shortest time between two requests of the fleet that clients cause. */
const CLIENT_INTERVAL_MS = 30_000
/** A difference of the clocks that contradicts the former ones by more than this is a jump of the store's clock. */
const JUMP_MS = 200

/** An answer that this host got or had; it has no place in the order while the store's clock is not known. */
export interface Got {
  readonly answer: Answer
  readonly by: string
  /** When its request was written, and when it ends, on this host's boot clock. */
  readonly sentMs: number
  readonly endsMs: number
}
/** `at`: when its request was written, on the store's clock. */
type Placed = Got & Pick<Contents['record'], 'id' | 'at'>

/** The last answer that this host knows. The order of all answers is that of (`at`, id). No I/O. */
function createAnswers(bootMs: () => number, first: Got | null) {
  let latest: Placed | null = first && { ...first, id: randomUUID(), at: -Infinity }
  /** The answer that the keeper has. */
  let deliveredId = latest?.id
  /** Ids of answers that this host has left for later ones: it takes none of them again, whatever a clock says. */
  const left = new Set<string>()
  /** The store's clock minus the boot clock is between these. The lower one counts. */
  let [low, high] = [-Infinity, Infinity]

  function replace(next: Placed): void {
    if (latest !== null) left.add(latest.id)
    for (const id of left) if (left.size > 100) left.delete(id)
    latest = next
  }
  function placedOf({ lifeMs, ...record }: Contents['record']): Placed {
    return { ...record, sentMs: record.at - low, endsMs: record.at + lifeMs - low }
  }

  return {
    latest: (): Placed | null => latest,
    /** The keeper lacks the latest answer. */
    isNew: (): boolean => latest !== null && latest.id !== deliveredId,
    delivered(): void {
      deliveredId = latest?.id
    },
    /** This moment of the boot clock on the store's. */
    storeMs: (ms = bootMs()): number => ms + low,
    /** The store's clock showed `nowMs` between these moments: each look narrows the difference. */
    readClock(nowMs: number, beforeMs: number, afterMs: number): void {
      // The boot clock is in whole ms.
      const bounds = [nowMs - afterMs - 1, nowMs - beforeMs + 1] as const
      low = Math.max(low, bounds[0])
      high = Math.min(high, bounds[1])
      if (low > high) [low, high] = bounds
    },
    /** This host got an answer, and its keeper has it; `before` was the latest when the request began. */
    learn(got: Got, before: Placed | null): void {
      // Meanwhile a look has brought the answer to a later request.
      if (latest !== null && latest !== before && latest.sentMs > got.sentMs) return
      replace({ ...got, id: randomUUID(), at: Math.max(got.sentMs + low, (before?.at ?? -Infinity) + 1) })
      deliveredId = latest!.id
    },
    /** Brings the record (null: none is of use) and the latest answer to one. Reports whether to put the latter. */
    meet(record: Contents['record'] | null): boolean {
      if (latest === null) {
        latest = record && placedOf(record)
        return false
      }
      // A token from before this process, or from before the first look: it may be that of the record.
      if (latest.at === -Infinity && record !== null && tokenOf(record) === tokenOf(latest)) {
        latest = placedOf(record)
        deliveredId = latest.id
        return false
      }
      const at = latest.sentMs + low
      const hasJumped = Math.abs(at - latest.at) > JUMP_MS
      if (hasJumped) latest = { ...latest, at }
      if (record?.id === latest.id && !hasJumped) return false
      if (record !== null && record.id !== latest.id && isLater(record, latest)) {
        if (!left.has(record.id)) {
          replace(placedOf(record))
          return false
        }
        // A clock has jumped. Once for each answer, or two hosts that are both sure would go on for ever.
        left.delete(record.id)
        latest = { ...latest, at: record.at + 1, sentMs: record.at + 1 - low }
      }
      return latest.endsMs > bootMs()
    },
    /** The latest answer as a record, and for how long; null: there is none any more. */
    record(): { content: Contents['record']; keepMs: number } | null {
      if (latest === null || latest.endsMs <= bootMs()) return null
      const { sentMs: _, endsMs, ...stamped } = latest
      return { content: { ...stamped, lifeMs: endsMs + low - stamped.at }, keepMs: endsMs - bootMs() }
    },
    /** The latest answer, which another host got, as the keeper takes it. */
    outcome(): FetchOutcome {
      const { answer, by, sentMs, endsMs } = latest!
      const life = answer.kind === 'ok' ? { lifeMs: endsMs - sentMs, ageMs: bootMs() - sentMs } : {}
      return { ...answer, ...life, askedBy: by }
    },
  }
}

const tokenOf = ({ answer }: Pick<Got, 'answer'>): string | null =>
  answer.kind === 'ok' ? answer.accessToken : null
const isLater = (one: Contents['record'], other: Placed): boolean =>
  one.at === other.at ? one.id > other.id : one.at > other.at

/** One attempt of the keeper. `since`: an operator's is answered only by what was asked for from then on. */
interface Act extends Attempt {
  readonly account: Account
  readonly signal: AbortSignal
  since: number
}
/** Both texts; `kept`: the lease of another attempt, or a wait. */
interface Seen {
  readonly record: string
  readonly lease: string
  readonly kept: Contents['lease'] | null
}

export type Host = ReturnType<typeof createHost>

export function createHost(options: {
  seal: Seal
  store: Promise<Store>
  settings: ShareConfig
  clock: Clock
  random: () => number
  /** The name of this host to the others. */
  name: string
  /** The token that the keeper has for this account. */
  first: Got | null
  /** How long the token in use can be used, in ms; 0: there is none. */
  usableLeftMs: () => number
  telemetry: Telemetry
}) {
  const { seal, store, clock, random, name, usableLeftMs, telemetry } = options
  const { prefix, timeoutMs, asks, whenAlone } = options.settings
  const bootMs = (): number => clock.now().bootMs
  const answers = createAnswers(bootMs, options.first)
  const { storeMs } = answers
  const keys = { record: seal.keyOf(prefix, 'record'), lease: seal.keyOf(prefix, 'lease') }
  /** When this host asks by itself, on the boot clock; null: that is not planned. */
  let planMs: number | null = null
  /** The lease that this host tried to take last, which a late command may put unseen; and its last wait. */
  let [lastLease, ownWait] = ['', '']

  async function swap(key: keyof typeof keys, former: string, text: string, keepMs = 1): Promise<boolean> {
    return (await store).swap(keys[key], former, text, keepMs)
  }

  async function putRecord(former: string): Promise<boolean> {
    const record = answers.record()
    return record === null || swap('record', former, seal.seal('record', record.content), record.keepMs)
  }

  /** Reads both texts, and brings the record and the latest answer to one. Rejects with a StoreError. */
  async function readStore(tries = 3): Promise<Seen> {
    const opened = await store
    const beforeMs = bootMs()
    const { nowMs, record, lease } = await opened.read(keys)
    const afterMs = bootMs()
    // This process was stopped meanwhile: no timer has run.
    if (afterMs - beforeMs > timeoutMs) throw new StoreError('lost', 'The answer came late')
    answers.readClock(nowMs, beforeMs, afterMs)
    const found = seal.open('record', record)
    const isOfUse = found !== null && found.at <= nowMs + AHEAD_MS && found.at + found.lifeMs > nowMs
    const isToBePut = answers.meet(isOfUse ? found : null)
    // Another host may have been faster.
    if (isToBePut && !(await putRecord(record)) && tries > 1) return readStore(tries - 1)
    telemetry.connected()
    const kept = seal.open('lease', lease)
    const isLive = kept !== null && kept.at <= nowMs + AHEAD_MS && kept.until > nowMs && lease !== lastLease
    return { record, lease, kept: isLive ? kept : null }
  }

  /** The latest answer, which another host got, as the keeper takes it. */
  function adopt(): FetchOutcome {
    const { by, sentMs } = answers.latest()!
    planMs = null
    answers.delivered()
    telemetry.adopted(by, bootMs() - sentMs)
    return answers.outcome()
  }

  const isAnswered = ({ since }: Act): boolean => answers.isNew() && answers.latest()!.at >= since

  /** Makes the request. What it brings for all counts from then on, whatever becomes of the store. */
  async function ask({ account, signal, ...attempt }: Act, how: 'asked' | 'alone') {
    const before = answers.latest()
    let sentMs = bootMs()
    const onSent = (): void => void (sentMs = bootMs())
    const outcome = await account.fetchToken(signal, { ...attempt, onSent })
    telemetry.asked(how)
    planMs = null
    const got = answerOf(outcome, account, clock.now().wallMs)
    if (got) answers.learn({ answer: got.answer, by: name, sentMs, endsMs: sentMs + got.lifeMs }, before)
    return { outcome, sentMs, isForAll: got !== null }
  }

  /** Null: another attempt has the lease (again). */
  async function askForAll(act: Act, seen: Seen): Promise<FetchOutcome | null> {
    const leaseMs = leaseMsOf(act.account)
    const mine = seal.seal('lease', { by: name, at: storeMs(), until: storeMs() + leaseMs })
    lastLease = mine
    if (!(await swap('lease', seen.lease, mine, leaseMs))) return null
    if (act.cause === 'operator') await clock.sleep(GATHER_MS, act.signal)
    const { record, lease } = await readStore()
    if (isAnswered(act) || act.signal.aborted) {
      await swap('lease', mine, '').catch(telemetry.failed)
      return isAnswered(act) ? adopt() : postponed(0)
    }
    // This process was stopped for longer than its lease, or somebody else writes there.
    if (lease !== mine) return null
    const { outcome, sentMs, isForAll } = await ask(act, 'asked')
    const wait = isForAll || act.signal.aborted ? null : waitAfter(outcome, sentMs, seen)
    ownWait = wait ? seal.seal('lease', wait) : ''
    // From here on no failure of the store leads to a second request. The record comes before the lease goes.
    try {
      if (isForAll && !(await putRecord(record))) await readStore()
      await swap('lease', mine, ownWait, wait ? wait.until - storeMs() : 1)
    } catch (error) {
      telemetry.failed(error)
    }
    return outcome
  }

  /** The lease as a wait for all: as long as the service asks for, or short; at least a longer one that was passed. */
  function waitAfter(outcome: FetchOutcome, sentMs: number, { kept }: Seen): Contents['lease'] {
    const { reason, detail, retryAfterMs } = outcome.kind === 'transient' ? outcome : OF_OWN_PROOF
    const askedMs = reason in FOR_ALL ? (retryAfterMs ?? FOR_ALL[reason]!) : 0
    const until = Math.max(storeMs() + Math.max(askedMs, FAILURE_MS), kept?.until ?? 0)
    return { by: name, at: storeMs(sentMs), until, reason, detail }
  }

  /** Null: a host that asks takes too long. Rejects with a StoreError. */
  async function inFleet(act: Act): Promise<FetchOutcome | null> {
    const leftMs = usableLeftMs() || Infinity
    const patienceMs = planMs === null ? Math.min(2 * leaseMsOf(act.account), leftMs / 2) : 0
    const patientUntilMs = bootMs() + patienceMs
    do {
      const seen = await readStore()
      if (act.cause === 'operator' && act.since === -Infinity) act.since = storeMs()
      if (isAnswered(act)) return adopt()
      const isFree = seen.kept === null || seen.kept.reason !== undefined
      const outcome = reasonNotToAsk(act, seen) ?? (isFree ? await askForAll(act, seen) : null)
      if (outcome !== null) return outcome
      await clock.sleep(50 + 200 * random(), act.signal)
    } while (bootMs() < patientUntilMs && !act.signal.aborted)
    return null
  }

  function reasonNotToAsk({ cause, since }: Act, { kept, lease }: Seen): Postponed | null {
    if (kept?.reason !== undefined && kept.at >= since) {
      const { reason, detail = '', by, until } = kept
      const leftMs = until - storeMs() + (lease === ownWait ? AFTER_OWN_MS : 0)
      return postponed(leftMs, { reason, detail, askedBy: by })
    }
    if (!asks) return postponed(LOOK_EVERY_MS, { reason: 'not-asked' })
    const paceMs = cause === 'client' ? (answers.latest()?.at ?? 0) + CLIENT_INTERVAL_MS - storeMs() : 0
    return paceMs > 0 ? postponed(paceMs) : null
  }

  /** The store is of no use: the request is put off to the moment that is planned for it, and then made. */
  async function alone(act: Act): Promise<FetchOutcome> {
    const { cause, account, signal } = act
    if (signal.aborted) return postponed(0)
    if (cause !== 'operator') {
      if (!asks || whenAlone === 'wait')
        return postponed(LOOK_EVERY_MS, { reason: asks ? 'share-lost' : 'not-asked' })
      const leftMs = usableLeftMs()
      const isUrgent = cause === 'client' || leftMs === 0
      const spareMs = Math.max(0, leftMs - timeoutMs - account.requestTimeoutMs)
      const withinMs = isUrgent ? ALONE_MS : ALONE_PART * spareMs
      if (planMs === null || planMs > bootMs() + withinMs) {
        planMs = bootMs() + Math.round(random() * withinMs)
        telemetry.alone(planMs - bootMs())
      }
      if (planMs > bootMs()) return postponed(Math.min(LOOK_EVERY_MS, planMs - bootMs()))
    }
    return (await ask(act, 'alone')).outcome
  }

  return {
    answers,
    readStore,
    adopt,
    async attempt(account: Account, ...[signal, attempt]: Parameters<FetchToken>): Promise<FetchOutcome> {
      const act = { ...attempt, account, signal, since: -Infinity }
      const outcome = (await inFleet(act).catch(telemetry.failed)) ?? (await alone(act))
      // A later answer may have come meanwhile. An operator waits for what follows the act.
      return answers.isNew() && !signal.aborted && act.cause !== 'operator' ? adopt() : outcome
    },
  }
}

const leaseMsOf = ({ requestTimeoutMs }: Account): number => requestTimeoutMs + LEASE_MARGIN_MS
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
