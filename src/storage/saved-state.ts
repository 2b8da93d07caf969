// The contents of the two files of the state store, and the state out of them: pure. Other bytes are nothing.
import * as v from 'valibot'
import type { Instant } from '../lib/clock.ts'
import { isRecord, parseJson } from '../lib/input.ts'
import { expirySources, permanentReasons, transientReasons } from '../token/outcome.ts'
import {
  initialState,
  tokenlessFrom,
  usableUntilMs,
  type Failure,
  type ServiceSettings,
  type TokenState,
} from '../token/state.ts'
import { fingerprintOf, isSameService, type Token } from '../token/token.ts'

/** The longest wait, `Retry-After` of an hour and a fifth more: a jump of a clock makes none longer. */
const MAX_RETRY_WAIT_MS = 72 * 60_000
/** Boot clocks of two processes may differ by this: without /proc/uptime Node reads whole seconds. */
const CLOCK_GRAIN_MS = 1_000

/** Raised when the shape changes. A file of another version is ignored, which costs one request. */
const VERSION = 3

// ---- the files' content

/** Far beyond any uptime and any date, and still exact in milliseconds. */
const MAX_MS = 1e14
const ms = v.pipe(v.number(), v.minValue(-MAX_MS), v.maxValue(MAX_MS))
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
const instant = v.object({ bootMs: ms, wallMs: ms })
const text = v.nullable(v.string())
const trouble = { detail: v.string(), since: instant }

/** The moment of writing, and the boot; null: the boot's id could not be read. */
const writtenShape = v.object({ at: instant, bootId: text })

/** The facts about attempts, in the state directory, by the names of TokenState: no token, no credentials. */
const savedStateShape = v.object({
  isOrderly: v.boolean(),
  credentialsId: v.string(),
  generation: count,
  answers: count,
  /** The moment, past or to come, from which on there is no usable token. */
  tokenlessFrom: instant,
  failure: v.nullable(
    v.object({
      reason: v.picklist(transientReasons),
      status: v.nullable(count),
      attempts: count,
      retryAtMs: ms,
      ...trouble,
    }),
  ),
  objection: v.nullable(
    v.object({
      reason: v.picklist([...permanentReasons, 'rejected']),
      status: v.nullable(count),
      askedBy: text,
      known: text,
      ...trouble,
    }),
  ),
  notBefore: v.record(v.string(), ms),
  pace: v.object({ requestedMs: v.nullable(ms), reported: count }),
  lastRequestAt: v.nullable(instant),
  lastSuccessAt: v.nullable(instant),
})
/** The token, in the runtime directory. Its instants hold for one boot only. */
const savedTokenShape = v.pipe(
  v.object({
    accessToken: v.string(),
    fingerprint: v.string(),
    generation: count,
    baseUrl: v.string(),
    credentialsId: v.string(),
    received: instant,
    lifeMs: v.pipe(ms, v.gtValue(0)),
    expiresAtMs: ms,
    expirySource: v.picklist(expirySources),
    refreshAtMs: ms,
    answer: count,
    isOfClients: v.boolean(),
    isSameUntilEnd: v.boolean(),
    known: text,
  }),
  // The fingerprint vouches for the token: not one character of it was lost.
  v.check(({ accessToken, fingerprint }) => fingerprint === fingerprintOf(accessToken)),
)

export type Written = Readonly<v.InferOutput<typeof writtenShape>>
export type SavedState = Readonly<v.InferOutput<typeof savedStateShape>>

/** What both files hold: facts, and when they were written. */
interface Saved<F> {
  readonly written: Written
  readonly facts: F
}
const fileOf = <F>(facts: v.GenericSchema<unknown, F>) =>
  v.object({ version: v.literal(VERSION), written: writtenShape, facts })
const [stateFile, tokenFile] = [fileOf(savedStateShape), fileOf(savedTokenShape)]

export function formatSaved(facts: SavedState | Token, written: Written): string {
  return `${JSON.stringify({ version: VERSION, written, facts })}\n`
}
/** Undefined if it is no saved state, nor memory.json of 1.2.0. */
export function parseSavedState(content: string): Saved<SavedState> | undefined {
  return parsed(stateFile, fromVersion2(parseJson(content), 'remembered', stateOfVersion2))
}
/** Undefined if it is no saved token, nor kept.json of 1.2.0. */
export function parseSavedToken(content: string): Saved<Token> | undefined {
  return parsed(tokenFile, fromVersion2(parseJson(content), 'kept', tokenOfVersion2))
}
function parsed<T>(shape: v.GenericSchema<unknown, T>, file: unknown): T | undefined {
  const { success, output } = v.safeParse(shape, file)
  return success ? output : undefined
}

// ---- 1.2.0 (version 2): the number of the token stood for that of the answer

type Facts = Record<string, unknown>

function fromVersion2(file: unknown, name: string, factsOf: (former: Facts) => Facts): unknown {
  if (!isRecord(file) || file['version'] !== 2) return file
  const former = file[name]
  return isRecord(former) && { ...file, version: VERSION, facts: factsOf(former) }
}

function stateOfVersion2({ subject, notBeforeMs: ownMs, otherBounds, ...former }: Facts): Facts {
  const objection = former['refusal'] ?? former['alert']
  const bounds = {
    ...(isRecord(otherBounds) && otherBounds),
    ...(ownMs !== null && { [String(subject)]: ownMs }),
  }
  return {
    ...former,
    credentialsId: subject,
    answers: former['generation'],
    objection: isRecord(objection) ? { status: null, known: null, ...objection } : objection,
    notBefore: bounds,
    pace: { requestedMs: former['lastClientRequestAtMs'], reported: 0 },
  }
}

function tokenOfVersion2({ subject, token }: Facts): Facts {
  const former = isRecord(token) ? token : {}
  return {
    ...former,
    credentialsId: subject,
    answer: former['generation'],
    isOfClients: false,
    isSameUntilEnd: false,
    known: null,
  }
}

// ---- the facts that are saved, and the state out of them

export function savedStateOf(state: TokenState, { isOrderly }: { isOrderly: boolean }): SavedState {
  const { credentialsId, generation, answers, failure, objection, notBefore, pace } = state
  const { lastRequestAt, lastSuccessAt } = state
  return {
    isOrderly,
    credentialsId,
    generation,
    answers,
    tokenlessFrom: tokenlessFrom(state),
    failure,
    objection,
    notBefore,
    pace,
    lastRequestAt,
    lastSuccessAt,
  }
}

/** The state to begin with. `token` is of this boot; `saved` perhaps of another one. */
export function restoredState(
  settings: ServiceSettings,
  {
    now,
    token: kept,
    saved,
  }: {
    now: Instant
    token: Token | null
    saved: (Saved<SavedState> & { readonly isThisBoot: boolean }) | null
  },
): TokenState {
  const known = saved && onClock(saved.facts, { shiftMs: clockShiftMs(saved, now), now })
  const generation = Math.max(kept?.generation ?? 0, known?.generation ?? 0)
  // One that was replaced is not served again, whatever the disk kept of it.
  const isNewest = kept?.generation === generation
  return {
    ...initialState(settings, now),
    ...(known && factsInForce(known, { settings, kept, now })),
    token: isNewest && isSameService(kept, settings) && isGood(kept, now) ? kept : null,
    generation,
    answers: Math.max(kept?.answer ?? 0, known?.answers ?? 0),
  }
}

/** The token may still be handed out, and its instants are possible: the boot clock has not begun anew. */
function isGood(token: Token, now: Instant): boolean {
  const latestMs = now.bootMs + CLOCK_GRAIN_MS
  const isPossible = token.received.bootMs <= latestMs && token.expiresAtMs <= latestMs + token.lifeMs
  return isPossible && now.bootMs < usableUntilMs(token)
}

/** The facts that count with these credentials. */
function factsInForce(
  known: SavedState,
  { settings, kept, now }: { settings: ServiceSettings; kept: Token | null; now: Instant },
): Partial<TokenState> {
  const { credentialsId, notBefore, pace, lastRequestAt, objection, isOrderly } = known
  const always = {
    notBefore,
    pace,
    lastRequestAt,
    lastSuccessAt: kept !== null && !isSameService(kept, settings) ? null : known.lastSuccessAt,
    tokenlessSince: known.tokenlessFrom.bootMs < now.bootMs ? known.tokenlessFrom : now,
  }
  // Killed between the two files: what the token's answer had ended is older than the token.
  if (kept !== null && kept.credentialsId === credentialsId && kept.answer > known.answers) {
    const { [credentialsId]: _ended, ...others } = notBefore
    return { ...always, notBefore: others }
  }
  if (credentialsId !== settings.credentialsId) return always
  if (!isOrderly) return { ...always, objection, failure: known.failure }
  const failure = failureInForce(known.failure, notBefore[credentialsId] ?? 0, now)
  // As long as an alert stands, an orderly start asks once.
  return { ...always, objection, failure, next: objection && { cause: 'start', atMs: now.bootMs } }
}

/** The part of a failure that outlives an orderly stop: only a wait that the service itself asked for. */
function failureInForce(failure: Failure | null, notBeforeMs: number, now: Instant): Failure | null {
  if (failure === null || notBeforeMs <= now.bootMs) return null
  return { ...failure, attempts: 1, retryAtMs: notBeforeMs }
}

/** To be added to an instant of the former boot clock: 0 in the same boot, else what the wall clocks say. */
function clockShiftMs(
  { written: { at }, isThisBoot }: { written: Written; isThisBoot: boolean },
  now: Instant,
): number {
  if (isThisBoot && at.bootMs <= now.bootMs) return 0
  return now.bootMs - now.wallMs + (at.wallMs - at.bootMs)
}

/** The same facts on the present boot clock; no past instant is in the future, and no wait is too long. */
function onClock(saved: SavedState, { shiftMs, now }: { shiftMs: number; now: Instant }): SavedState {
  const pastMs = (bootMs: number): number => Math.min(bootMs + shiftMs, now.bootMs)
  const aheadMs = (bootMs: number): number => Math.min(bootMs + shiftMs, now.bootMs + MAX_RETRY_WAIT_MS)
  const past = (at: Instant): Instant => ({ ...at, bootMs: pastMs(at.bootMs) })
  const { failure, objection, pace, lastRequestAt, lastSuccessAt, tokenlessFrom: tokenless } = saved
  const notBefore = Object.entries(saved.notBefore).map(([id, untilMs]) => [id, aheadMs(untilMs)] as const)
  return {
    ...saved,
    failure: failure && { ...failure, since: past(failure.since), retryAtMs: aheadMs(failure.retryAtMs) },
    objection: objection && { ...objection, since: past(objection.since) },
    notBefore: Object.fromEntries(notBefore),
    pace: { ...pace, requestedMs: pace.requestedMs === null ? null : pastMs(pace.requestedMs) },
    lastRequestAt: lastRequestAt && past(lastRequestAt),
    lastSuccessAt: lastSuccessAt && past(lastSuccessAt),
    tokenlessFrom: { ...tokenless, bootMs: tokenless.bootMs + shiftMs },
  }
}
