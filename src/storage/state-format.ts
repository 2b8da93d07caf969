// The content of the state files, and the strict reading of them: any bytes give what was written, or nothing.
import * as v from 'valibot'
import { parseJson } from '../lib/own-file.ts'
import { expirySources, permanentReasons, transientReasons } from '../token/outcome.ts'
import { fingerprintOf } from '../token/token.ts'

/** Raised when the shape changes. A file of another version is ignored, which costs one request. */
const VERSION = 2

/** Far beyond any uptime and any date, and still exact in milliseconds. */
const MAX_MS = 1e14
const ms = v.pipe(v.number(), v.minValue(-MAX_MS), v.maxValue(MAX_MS))
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
const instant = v.object({ bootMs: ms, wallMs: ms })

/** The moment of writing, and the boot; null: the boot's id could not be read. */
const written = v.object({ at: instant, bootId: v.nullable(v.string()) })

// The names in these shapes are those of the files, and do not follow the names in the code.

/** `askedBy`: the host of the fleet that made the request; null: this one. */
const trouble = { detail: v.string(), since: instant, askedBy: v.nullable(v.string()) }

/** The facts about the attempts, in the state directory: neither token nor credentials. */
const savedState = v.object({
  /** Keyed fingerprint of the service and the credentials that all this is about. */
  subject: v.string(),
  generation: count,
  isOrderly: v.boolean(),
  failure: v.nullable(
    v.object({
      reason: v.picklist(transientReasons),
      status: v.nullable(count),
      attempts: count,
      retryAtMs: ms,
      ...trouble,
    }),
  ),
  refusal: v.nullable(v.object({ reason: v.picklist(permanentReasons), status: count, ...trouble })),
  alert: v.nullable(v.object({ reason: v.picklist([...permanentReasons, 'rejected']), ...trouble })),
  notBeforeMs: v.nullable(ms),
  /** `notBeforeMs` of other credentials, by their keyed fingerprint. */
  otherBounds: v.record(v.string(), ms),
  /** The moment, past or to come, from which on there is no usable token; null: not known. */
  tokenlessFrom: v.nullable(instant),
  lastClientRequestAtMs: v.nullable(ms),
  learned: v.nullable(v.object({ maxAgeMs: ms, atMs: ms })),
  lastRequestAt: v.nullable(instant),
  lastSuccessAt: v.nullable(instant),
  /** The newest fence of the shared store that this host knows; 0: none. */
  fence: count,
  /** The size of the fleet when it was last counted; 0: never. */
  hosts: count,
})
/** The token, in the runtime directory. Its instants hold for one boot only. */
const savedToken = v.object({
  subject: v.string(),
  fence: count,
  token: v.pipe(
    v.object({
      accessToken: v.string(),
      fingerprint: v.string(),
      generation: count,
      baseUrl: v.string(),
      received: instant,
      lifeMs: v.pipe(ms, v.gtValue(0)),
      expiresAtMs: ms,
      expirySource: v.picklist(expirySources),
      refreshAtMs: ms,
    }),
    // The fingerprint vouches for the token: not one character of it was lost.
    v.check(({ accessToken, fingerprint }) => fingerprint === fingerprintOf(accessToken)),
  ),
})

export type Written = Readonly<v.InferOutput<typeof written>>
export type SavedState = Readonly<v.InferOutput<typeof savedState>>
export type SavedToken = Readonly<v.InferOutput<typeof savedToken>>

const stateFile = v.object({ version: v.literal(VERSION), written, remembered: savedState })
const tokenFile = v.object({ version: v.literal(VERSION), written, kept: savedToken })

export function formatSavedState(remembered: SavedState, at: Written): string {
  return `${JSON.stringify({ version: VERSION, written: at, remembered })}\n`
}
export function formatSavedToken(kept: SavedToken, at: Written): string {
  return `${JSON.stringify({ version: VERSION, written: at, kept })}\n`
}

/** Undefined where it is not the output of formatSavedState. */
export function parseSavedState(text: string): { remembered: SavedState; written: Written } | undefined {
  const { success, output } = v.safeParse(stateFile, parseJson(text))
  return success ? output : undefined
}

/** Undefined where it is not the output of formatSavedToken. */
export function parseSavedToken(text: string): { kept: SavedToken; written: Written } | undefined {
  const { success, output } = v.safeParse(tokenFile, parseJson(text))
  return success ? output : undefined
}
