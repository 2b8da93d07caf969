// The contents of the two files of the state store, as text and as facts. Other bytes are nothing.
import * as v from 'valibot'
import { parseJson } from '../lib/input.ts'
import { expirySources, permanentReasons, transientReasons } from '../protocol.ts'
import { tokenlessFrom, type TokenState } from '../token/state.ts'
import { fingerprintOf, MAX_TOKEN_LENGTH, TOKEN, type Token } from '../token/token.ts'

/** Raised when the shape changes. A file of another version is ignored, which costs one request. */
const VERSION = 3

/** Far beyond any uptime and any date, and still exact in milliseconds. */
const MAX_MS = 1e14
const ms = v.pipe(v.number(), v.minValue(-MAX_MS), v.maxValue(MAX_MS))
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
const instant = v.object({ bootMs: ms, wallMs: ms })
const text = v.nullable(v.string())
const trouble = { detail: v.string(), since: instant }

/**
 * The moment of writing, and the boot; null: the boot's id could not be read. `bootMark`: see BootMark; files of
 * 2.0.0 do not have it, and 2.0.0 ignores it.
 */
const writtenShape = v.object({ at: instant, bootId: text, bootMark: v.optional(text, null) })

const objectionFacts = {
  status: v.nullable(count),
  // Older files do not have it.
  says: v.optional(text, null),
  askedBy: text,
  known: text,
  // As `tokenless`, not in files of 2.0.0.
  isAskedAgain: v.optional(v.boolean()),
  ...trouble,
}
const failureFacts = { status: v.nullable(count), attempts: count, retryAtMs: ms, ...trouble }

/** The facts about attempts, in the state directory, by the names of TokenState: no token, no credentials. */
const savedStateShape = v.object({
  isOrderly: v.boolean(),
  credentialsId: v.string(),
  generation: count,
  answers: count,
  /** The moment, past or to come, from which on there is no usable token. */
  tokenlessFrom: instant,
  /** How long there had been none. Files of 2.0.0 do not have it, and 2.0.0 ignores it. */
  tokenless: v.optional(v.nullable(v.object({ forMs: ms, readAtMs: ms })), null),
  failure: v.nullable(v.object({ reason: v.picklist(transientReasons), ...failureFacts })),
  objection: v.nullable(
    v.object({ reason: v.picklist([...permanentReasons, 'rejected']), ...objectionFacts }),
  ),
  /** Another pair that has given no token. 2.0.0 neither writes nor reads it, nor `baseUrl`. */
  candidate: v.optional(
    v.nullable(
      v.object({
        credentialsId: v.string(),
        failure: v.object({
          reason: v.picklist([...permanentReasons, ...transientReasons]),
          ...objectionFacts,
          ...failureFacts,
        }),
      }),
    ),
    null,
  ),
  /** That of the service which the facts are about. */
  baseUrl: v.optional(text, null),
  notBefore: v.record(v.string(), ms),
  pace: v.object({ requestedMs: v.nullable(ms), reported: count }),
  lastRequestAt: v.nullable(instant),
  lastSuccessAt: v.nullable(instant),
  /** As `tokenless`, not in files of 2.0.0. */
  loggedEnd: v.optional(text, null),
})
/** The token, in the runtime directory. Its instants hold for one boot only. */
const savedTokenShape = v.pipe(
  v.object({
    // Whoever wrote it: what no answer could have given is not served.
    accessToken: v.pipe(v.string(), v.maxLength(MAX_TOKEN_LENGTH), v.regex(TOKEN)),
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
export interface Saved<F> {
  readonly written: Written
  readonly facts: F
}
const fileOf = <F>(facts: v.GenericSchema<unknown, F>) =>
  v.object({ version: v.literal(VERSION), written: writtenShape, facts })
const [stateFile, tokenFile] = [fileOf(savedStateShape), fileOf(savedTokenShape)]

/** The facts about attempts that the next start needs. */
export function savedStateOf(state: TokenState, { isOrderly }: { isOrderly: boolean }): SavedState {
  const { credentialsId, generation, answers, failure, objection, baseUrl, notBefore } = state
  const { pace, lastRequestAt, lastSuccessAt, loggedEnd } = state
  const { since: _since, ...tokenless } = state.tokenless
  const ofPairs = { credentialsId, failure, objection, candidate: triedOf(state), baseUrl, notBefore }
  const counts = { generation, answers, tokenlessFrom: tokenlessFrom(state), tokenless, pace }
  return { isOrderly, ...ofPairs, ...counts, lastRequestAt, lastSuccessAt, loggedEnd }
}

/** Null: no other pair was asked with. */
function triedOf({ candidate }: TokenState): SavedState['candidate'] {
  if (candidate === null || candidate.failure === null) return null
  const { credentialsId, failure } = candidate
  return { credentialsId, failure }
}

export function formatSaved(facts: SavedState | Token, written: Written): string {
  return `${JSON.stringify({ version: VERSION, written, facts })}\n`
}
/** Undefined if it is no saved state. */
export function parseSavedState(content: string): Saved<SavedState> | undefined {
  return parsed(stateFile, content)
}
/** Undefined if it is no saved token. */
export function parseSavedToken(content: string): Saved<Token> | undefined {
  return parsed(tokenFile, content)
}
function parsed<T>(shape: v.GenericSchema<unknown, T>, content: string): T | undefined {
  const { success, output } = v.safeParse(shape, parseJson(content))
  return success ? output : undefined
}
