// The program's one variable: facts. Their meaning (ready, expired, due) follows from them and the time. Plain data:
// the next start reads it. A name in `AtMs` is an instant of the boot clock.
import type { Instant } from '../lib/clock.ts'
import type { PermanentReason, PostponedReason, Reason, TokenUse } from '../protocol.ts'
import type { Cause } from './outcome.ts'
import type { Token } from './token.ts'

export interface Policy {
  readonly initialDelayMs: number
  readonly maxDelayMs: number
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

/** Why there is no newer token: an answer, or the lack of one. For people. */
export interface Trouble {
  readonly reason: Reason | PostponedReason
  readonly detail: string
  /** HTTP status of the answer; null: there was none. */
  readonly status: number | null
  /** The first one in a row. */
  readonly since: Instant
  /** The host of the fleet that asked, and notifies people; null: this one. */
  readonly askedBy: string | null
}

/** All that is known of a pair. Nothing: it gave a token when it was asked last, or was never asked. */
export interface PairRecord {
  /** Requests since its last token. One that is under way counts as failed, until it is answered. */
  readonly attempts: number
  /** The next attempt after these, without a usable token and with one. */
  readonly soonAtMs: number
  readonly lateAtMs: number
  /** Before this instant only an operator asks: `Retry-After`, the pace of `rejected`. */
  readonly floorAtMs: number
  /** No request was made, and none is made by itself before this instant; a client's report ends that. */
  readonly resumeAtMs: number
  /** The service refused it: it is not asked again by itself. Null: it is not refused. */
  readonly refusal: {
    readonly reason: PermanentReason
    /** Fingerprint of the ready-made assertion that was sent; '': none was. */
    readonly assertion: string
    /** It is asked once more: the daemon started after an orderly stop, or its assertion is another one. */
    readonly isLifted: boolean
  } | null
  /** The last one since the last token. While the pair is refused: the refusal. */
  readonly failure: Trouble | null
}

export const NO_RECORD: PairRecord = {
  attempts: 0,
  soonAtMs: 0,
  lateAtMs: 0,
  floorAtMs: 0,
  resumeAtMs: 0,
  refusal: null,
  failure: null,
}
/** A pair that was refused is remembered among the last so many. */
const MAX_RECORDS = 8

/** `newest`: the pair in the files. `running`: the pair in use. While they differ, the newest is the candidate. */
type Role = 'newest' | 'running'

/** The attempt that is under way. */
export interface InFlight {
  readonly pair: string
  readonly cause: Cause
  /** An operator waits for its answer. */
  readonly isOperators: boolean
  /** When its request went out; null: there is none yet. */
  readonly sentAtMs: number | null
  /** Fingerprint of the ready-made assertion that was sent; '': none was. */
  readonly assertion: string
}

/** The files hold the service, the settings and the newest pair. */
export interface Files {
  readonly service: Service
  readonly policy: Policy
  /** Keyed fingerprint of the pair. */
  readonly pair: string
}

export interface TokenState extends Omit<Files, 'pair'> {
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
  readonly inFlight: InFlight | null
  /** An operator asked: this pair is asked next; null: nobody did. */
  readonly wish: Role | null
  /** Before this instant no other assertion lifts a refusal. */
  readonly liftAtMs: number
  /** The wish of clients for another token than the one that is held, and its pace. */
  readonly clients: {
    /** Since the token was given last. `another`: they have reported that. */
    readonly want: 'nothing' | 'more life' | 'another'
    /** When they last caused a request; null: never. */
    readonly requestedAtMs: number | null
    /** Tokens in a row that they caused and then reported, at most 2. */
    readonly pace: number
    /** They wanted the token that is held. */
    readonly areCause: boolean
  }
  /** How far two clocks are ahead of the boot clock, in ms; null: the service has not shown its own. */
  readonly clocks: { readonly wallMs: number; readonly serviceMs: number | null }
  /** The time without a usable token, counted only while the host was awake and the daemon ran. */
  readonly tokenless: {
    /** The first start, or the loss of the last token; without meaning while a token is held. */
    readonly since: Instant
    /** How long there has been none, in ms; 0: there is one. */
    readonly forMs: number
  }
  /** Facts that `report/` wants to find again after a restart, by `remember` of the keeper. Without secrets. */
  readonly notes: Readonly<Record<string, unknown>>
  /** Requests of this process. */
  readonly requests: number
  readonly lastRequestAt: Instant | null
  /** When this service gave a token last, perhaps the same again; null: it has given none yet. */
  readonly lastSuccessAt: Instant | null
}

/** The circumstances of a step: the moment and chance. */
export interface Step {
  readonly now: Instant
  /** From [0, 1). */
  readonly drawn: number
}

export function initialState({ service, policy, pair }: Files, now: Instant): TokenState {
  return {
    service,
    policy,
    running: pair,
    newest: pair,
    newestSince: now,
    pairs: {},
    token: null,
    generation: 0,
    inFlight: null,
    wish: null,
    liftAtMs: 0,
    clients: { want: 'nothing', requestedAtMs: null, pace: 0, areCause: false },
    clocks: { wallMs: now.wallMs - now.bootMs, serviceMs: null },
    tokenless: { since: now, forMs: 0 },
    notes: {},
    requests: 0,
    lastRequestAt: null,
    lastSuccessAt: null,
  }
}

export function recordOf({ pairs }: Pick<TokenState, 'pairs'>, pair: string): PairRecord {
  return pairs[pair] ?? NO_RECORD
}

/** The state with this record. Above 8 the oldest goes that is of neither role. */
export function withRecord(state: TokenState, pair: string, record: PairRecord): TokenState {
  const { [pair]: _former, ...others } = state.pairs
  const records = Object.entries(record === NO_RECORD ? others : { ...others, [pair]: record })
  const isSpare = ([id]: [string, unknown]): boolean => id !== state.newest && id !== state.running
  while (records.length > MAX_RECORDS) records.splice(records.findIndex(isSpare), 1)
  return { ...state, pairs: Object.fromEntries(records) }
}
