// What a start needs of the former process, as a text. Two files hold it, and a start reads one of them: that of
// the runtime directory, for the same boot, with the token and instants of CLOCK_BOOTTIME; or, where that is not
// there, that of the state directory, without the token and by the wall clock. Other bytes are nothing. Pure.
import * as v from 'valibot'
import type { Instant } from '../lib/clock.ts'
import { parseJson } from '../lib/input.ts'
import { expirySources, permanentReasons, transientReasons } from '../protocol.ts'
import { LIFT_MS, MAX_RETRY_WAIT_MS } from '../token/schedule.ts'
import { usableToken } from '../token/selectors.ts'
import { NO_RECORD, type PairRecord, type TokenState } from '../token/state.ts'
import { fingerprintOf, MAX_TOKEN_LENGTH, TOKEN } from '../token/token.ts'

/** Raised when the shape changes. A file of another version is ignored, which costs one request. */
const VERSION = 5

/** Far beyond any uptime and any date, and still exact in milliseconds. */
const MAX_MS = 1e14
const ms = v.pipe(v.number(), v.minValue(-MAX_MS), v.maxValue(MAX_MS))
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
const instant = v.object({ bootMs: ms, wallMs: ms })
const text = v.nullable(v.string())
const trouble = {
  detail: v.string(),
  status: v.nullable(count),
  since: instant,
  askedBy: text,
}
const tries = { attempts: count, failedAtMs: ms, drawn: v.pipe(v.number(), v.minValue(0), v.maxValue(1)) }
const alertShape = v.object({
  reason: v.string(),
  since: instant,
  reminders: count,
  remindedAt: v.nullable(ms),
})
const recordShape = v.object({
  ...tries,
  floorMs: ms,
  refusedWith: text,
  unasked: v.nullable(v.object(tries)),
  failure: v.nullable(v.object({ reason: v.picklist(transientReasons), ...trouble })),
  refusal: v.nullable(v.object({ reason: v.picklist([...permanentReasons, 'rejected']), ...trouble })),
})
const tokenShape = v.pipe(
  v.object({
    // Whoever wrote it: what no answer could have given is not served. Empty: it has ended.
    accessToken: v.union([v.literal(''), v.pipe(v.string(), v.maxLength(MAX_TOKEN_LENGTH), v.regex(TOKEN))]),
    fingerprint: v.string(),
    generation: count,
    baseUrl: v.string(),
    pair: v.string(),
    received: instant,
    lifeMs: v.pipe(ms, v.gtValue(0)),
    expiresAtMs: ms,
    expirySource: v.picklist(expirySources),
    expMs: v.nullable(ms),
    refreshAtMs: ms,
    calmAtMs: ms,
    givenMs: ms,
    isOfClients: v.boolean(),
    isReported: v.boolean(),
    isUnchanged: v.boolean(),
  }),
  // The fingerprint vouches for the token: not one character of it was lost.
  v.check(({ accessToken, fingerprint }) => accessToken === '' || fingerprint === fingerprintOf(accessToken)),
)
const shape = v.object({
  version: v.literal(VERSION),
  /** The daemon was stopped, and did not crash. */
  isOrderly: v.boolean(),
  serviceId: v.string(),
  /** Life that was assumed for tokens. */
  maxAgeMs: ms,
  /** The pair of the request that is under way. */
  asking: text,
  /** Null: the file is that of the state directory, or there is none. */
  token: v.nullable(tokenShape),
  clocks: v.object({ wallMs: ms, serviceMs: v.nullable(ms) }),
  pairs: v.record(v.string(), recordShape),
  generation: count,
  reportedFingerprint: text,
  assertion: v.object({ content: v.string(), isGood: v.boolean(), liftAtMs: ms }),
  clients: v.object({ areWaiting: v.boolean(), requestedMs: v.nullable(ms), pace: count }),
  tokenless: v.object({ since: instant, forMs: ms }),
  notes: v.object({ loggedEnd: text, alert: v.nullable(alertShape) }),
  lastRequestAt: v.nullable(instant),
  lastSuccessAt: v.nullable(instant),
})
type Saved = v.InferOutput<typeof shape>
type SavedRecord = v.InferOutput<typeof recordShape>

/** The state of a former process: `afterStart` begins with it. */
export interface Former {
  readonly state: TokenState
  readonly isOrderly: boolean
}

/** All facts, for a start in the same boot. The secret of a token that has ended is left out. */
export function runtimeText(
  state: TokenState,
  { now, isOrderly }: { now: Instant; isOrderly: boolean },
): string {
  const { service, policy, inFlight, token, pairs } = state
  const { clocks, generation, reportedFingerprint, assertion, clients, tokenless, notes } = state
  const { lastRequestAt, lastSuccessAt } = state
  const hasEnded = usableToken(state, now) === null
  const saved: Saved = {
    version: VERSION,
    isOrderly,
    serviceId: service.id,
    maxAgeMs: policy.maxAgeMs,
    asking: inFlight?.isSent === true ? inFlight.pair : null,
    token: token !== null && hasEnded ? { ...token, accessToken: '' } : token,
    clocks,
    pairs,
    generation,
    reportedFingerprint,
    assertion,
    clients,
    tokenless,
    notes,
    lastRequestAt,
    lastSuccessAt,
  }
  return JSON.stringify(saved)
}

/** The facts that outlive a boot: no token, and the boot clock's instants on the wall clock. */
export function lastingText(state: TokenState, at: { now: Instant; isOrderly: boolean }): string {
  const saved = JSON.parse(runtimeText(state, at)) as Saved
  const { bootMs, wallMs } = at.now
  const clients = { ...saved.clients, areWaiting: false }
  const clock = { byMs: wallMs - bootMs, pastMs: Infinity, fromMs: bootMs }
  return JSON.stringify(shifted({ ...saved, token: null, clients }, clock))
}

/** The state that the text of the runtime directory's file holds. Undefined: none. */
export function readRuntime(content: string, initial: TokenState): Former | undefined {
  const { success, output } = v.safeParse(shape, parseJson(content))
  return success ? formerOf(output, initial) : undefined
}

/** The state that the text of the state directory's file holds, on the present clocks. Undefined: none. */
export function readLasting(content: string, initial: TokenState, now: Instant): Former | undefined {
  const { success, output } = v.safeParse(shape, parseJson(content))
  if (!success) return undefined
  const { clocks } = initial
  const clock = { byMs: now.bootMs - now.wallMs, pastMs: now.bootMs, fromMs: 0 }
  return formerOf(shifted({ ...output, token: null, clocks }, clock), initial)
}

function formerOf(
  { version: _version, isOrderly, serviceId, maxAgeMs, asking, ...facts }: Saved,
  initial: TokenState,
): Former {
  const { service, policy, newestSince: since } = initial
  const pairs = Object.entries(facts.pairs).map(([id, record]): [string, PairRecord] => [
    id,
    { ...NO_RECORD, ...record },
  ])
  const flight = { serviceId, cause: 'retry', since, isSent: true, isOperators: false, rest: [] } as const
  const state: TokenState = {
    ...initial,
    ...facts,
    pairs: Object.fromEntries(pairs),
    service: { ...service, id: serviceId },
    policy: { ...policy, maxAgeMs },
    inFlight: asking === null ? null : { ...flight, pair: asking },
  }
  return { state, isOrderly }
}

interface OtherClock {
  /** By how much it is ahead. */
  readonly byMs: number
  /** No past instant is after this one of it. */
  readonly pastMs: number
  /** Waits that end before this instant of the present clock are over. */
  readonly fromMs: number
}
/**
 * The same facts on another clock. The wall clock may have been set between two boots: so no wait is longer than one
 * that is drawn.
 */
function shifted(saved: Saved, { byMs, pastMs, fromMs }: OtherClock): Saved {
  const past = (atMs: number): number => Math.min(atMs + byMs, pastMs)
  const wait = (untilMs: number, mostMs: number): number =>
    untilMs <= fromMs ? 0 : Math.min(untilMs + byMs, pastMs + mostMs)
  const moment = <I extends Instant | null>(at: I): I => at && { ...at, bootMs: past(at.bootMs) }
  const moved = <T extends { since: Instant } | null>(one: T): T =>
    one && { ...one, since: moment(one.since) }
  const recordOf = (record: SavedRecord): SavedRecord => ({
    ...record,
    failedAtMs: past(record.failedAtMs),
    floorMs: wait(record.floorMs, MAX_RETRY_WAIT_MS),
    unasked: record.unasked && { ...record.unasked, failedAtMs: past(record.unasked.failedAtMs) },
    failure: moved(record.failure),
    refusal: moved(record.refusal),
  })
  const { assertion, clients } = saved
  return {
    ...saved,
    pairs: Object.fromEntries(Object.entries(saved.pairs).map(([id, record]) => [id, recordOf(record)])),
    assertion: { ...assertion, liftAtMs: wait(assertion.liftAtMs, LIFT_MS) },
    clients: { ...clients, requestedMs: clients.requestedMs === null ? null : past(clients.requestedMs) },
    tokenless: moved(saved.tokenless),
    notes: { ...saved.notes, alert: moved(saved.notes.alert) },
    lastRequestAt: moment(saved.lastRequestAt),
    lastSuccessAt: moment(saved.lastSuccessAt),
  }
}
