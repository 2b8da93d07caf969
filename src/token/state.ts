// The program's one variable: facts. Their meaning (ready, expired, due) follows from them and the time.
import type { Instant } from '../lib/clock.ts'
import type { PermanentReason, PostponedReason, TokenUse, TransientReason } from '../protocol.ts'
import type { Cause } from './outcome.ts'
import type { Clocks, Token } from './token.ts'

export interface RetryPolicy {
  readonly initialDelayMs: number
  readonly maxDelayMs: number
}
export interface Policy extends RetryPolicy {
  /** Life assumed for a token that does not say its own, in ms. */
  readonly maxAgeMs: number
}

/** The service that is asked. Another `id` is another service, for which nothing of the former one holds. */
export interface Service {
  readonly id: string
  readonly baseUrl: string
  /** How the API wants the token: for clients, who ask it. */
  readonly use: TokenUse
  /** Statuses by which the API says that a token is refused: likewise. */
  readonly refusedBy: readonly number[]
}

/** An answer, or the lack of one, for people. */
interface Trouble<R> {
  readonly reason: R
  readonly detail: string
  readonly status: number | null
  readonly since: Instant
  /** The host of the fleet that asked, and notifies people; null: this one. */
  readonly askedBy: string | null
}
/** `since`: the first failure in a row. */
export type Failure = Trouble<TransientReason>
/** The last answer of which an operator must know. A token ends it, and no failure does. */
export type Refusal = Trouble<PermanentReason | 'rejected'>

/** No request was made, and none is made by itself until then. For as long as the process lives. */
export interface Postponement extends Omit<Trouble<PostponedReason | null>, 'status'> {
  /** On the boot clock. */
  readonly untilMs: number
}

/** How often a pair was asked in vain since its last token, and when last: its next wait follows from that. */
interface Tries {
  /** A request that is under way counts, until it is answered. */
  readonly attempts: number
  /** On the boot clock. */
  readonly failedAtMs: number
  /** From [0, 1): where in its range the wait is. Drawn once. */
  readonly drawn: number
}

/** All that is known of a pair. Nothing: it gave a token when it was asked last, or was never asked. */
export interface PairRecord extends Tries {
  /** Before this instant of the boot clock only an operator asks: `Retry-After`, the pace of `rejected`. */
  readonly floorMs: number
  /**
   * The service refused it, with this content of the ready-made assertion ('': there is none): it is not asked
   * again by itself. Null: it is not refused.
   */
  readonly refusedWith: string | null
  /** The tries that made a request, if the last one did not because its assertion was not good; else null. */
  readonly unasked: Tries | null
  readonly postponed: Postponement | null
  readonly failure: Failure | null
  readonly refusal: Refusal | null
}

export const NO_RECORD: PairRecord = {
  attempts: 0,
  failedAtMs: 0,
  drawn: 0,
  floorMs: 0,
  refusedWith: null,
  unasked: null,
  postponed: null,
  failure: null,
  refusal: null,
}
/** A pair that was refused is remembered among the last so many. */
const MAX_RECORDS = 8

/** `newest`: the pair in the files. `running`: the pair in use. While they differ, the newest is the candidate. */
export type Role = 'newest' | 'running'

/** The attempt that is under way. */
export interface InFlight {
  readonly pair: string
  /** Its answer is thrown away if the service is another one then. */
  readonly serviceId: string
  readonly cause: Cause
  readonly since: Instant
  /** Its request went out. */
  readonly isSent: boolean
  /** An operator waits for its answer. */
  readonly isOperators: boolean
  /** The roles that the operator wants asked, too, if it gives no token. */
  readonly rest: readonly Role[]
}

export interface TokenState {
  readonly service: Service
  readonly policy: Policy
  /** Keyed fingerprint of the pair in use: it gave a token, or was in the files at the start. */
  readonly running: string
  /** That of the pair in the files. */
  readonly newest: string
  /** When that pair came. */
  readonly newestSince: Instant
  /** By fingerprint; the pair that changed last is last. */
  readonly pairs: Readonly<Record<string, PairRecord>>
  /** The last token that was obtained, usable or not. */
  readonly token: Token | null
  /** Number of the last token; 0: none yet. */
  readonly generation: number
  /** Fingerprint of the last token that was replaced after clients had reported it; null: none was. */
  readonly reportedFingerprint: string | null
  readonly inFlight: InFlight | null
  /** An operator asked: the roles that are still to be asked, in this order. */
  readonly wish: readonly Role[]
  /** The refused pair that may be asked once, because the daemon started after an orderly stop; null: none. */
  readonly startMayAsk: string | null
  readonly assertion: {
    /** Fingerprint of the ready-made assertion that was good last; '': there is none. */
    readonly content: string
    readonly isGood: boolean
    /** Before this instant of the boot clock no changed content lifts a refusal. */
    readonly liftAtMs: number
  }
  readonly clients: {
    /** They want another token than the one that is held. */
    readonly areWaiting: boolean
    /** When they last caused a request, on the boot clock; null: never. */
    readonly requestedMs: number | null
    /** Tokens in a row that they caused and then reported, at most 3. */
    readonly pace: number
  }
  readonly clocks: Clocks
  readonly tokenless: Tokenless
  readonly notes: Notes
  /** Requests of this process. */
  readonly requests: number
  readonly lastRequestAt: Instant | null
  /** Null: this service has given no token yet. */
  readonly lastSuccessAt: Instant | null
}

/** The time without a usable token, counted only while the host was awake and the daemon ran. */
export interface Tokenless {
  /** The first start, or the loss of the last token; without meaning while a token is held. */
  readonly since: Instant
  /** How long there has been none, in ms; 0: there is one. */
  readonly forMs: number
}

/** Facts that `report/` wants to find again after a restart. Plain data, without secrets. */
export interface Notes {
  /** The end of the credentials that was logged last; null: none was. */
  readonly loggedEnd: string | null
  /** The alert that is raised, as the operator was notified of it; null: none is. */
  readonly alert: NotedAlert | null
}
export interface NotedAlert {
  readonly reason: string
  readonly since: Instant
  /** How many reminders there were. */
  readonly reminders: number
  /** When the last one was, on the wall clock, in ms; null: there was none. */
  readonly remindedAt: number | null
}

/** The circumstances of a step: the moment and chance. */
export interface Step {
  readonly now: Instant
  /** From [0, 1). */
  readonly drawn: number
}

export function initialState(
  { service, policy, pair }: { service: Service; policy: Policy; pair: string },
  now: Instant,
): TokenState {
  return {
    service,
    policy,
    running: pair,
    newest: pair,
    newestSince: now,
    pairs: {},
    token: null,
    generation: 0,
    reportedFingerprint: null,
    inFlight: null,
    wish: [],
    startMayAsk: null,
    assertion: { content: '', isGood: true, liftAtMs: 0 },
    clients: { areWaiting: false, requestedMs: null, pace: 0 },
    clocks: { wallMs: now.wallMs - now.bootMs, serviceMs: null },
    tokenless: { since: now, forMs: 0 },
    notes: { loggedEnd: null, alert: null },
    requests: 0,
    lastRequestAt: null,
    lastSuccessAt: null,
  }
}

export function recordOf(state: Pick<TokenState, 'pairs'>, pair: string): PairRecord {
  return state.pairs[pair] ?? NO_RECORD
}

/** The state with this record. Above 8 the oldest goes that is of neither role. */
export function withRecord(state: TokenState, pair: string, record: PairRecord): TokenState {
  const { [pair]: _former, ...others } = state.pairs
  const isNothing = Object.entries(NO_RECORD).every(
    ([name, fact]) => record[name as keyof PairRecord] === fact,
  )
  const records = Object.entries(isNothing ? others : { ...others, [pair]: record })
  while (records.length > MAX_RECORDS)
    records.splice(
      records.findIndex(([id]) => id !== state.newest && id !== state.running),
      1,
    )
  return { ...state, pairs: Object.fromEntries(records) }
}
