// What the state files hold, and the strict reading of them: any bytes give what was written, or nothing.
import type { Instant } from '../lib/clock.ts'
import type { Alert, Failure, Refusal } from './state.ts'
import { fingerprintOf, type Token } from './token.ts'

/** Raised when the shape changes; files of another version are ignored. */
const VERSION = 1

/** When it was written, and in which boot; null: the boot's id could not be read. */
export interface Written {
  readonly at: Instant
  readonly bootId: string | null
}
/** What is kept of the attempts, in the state directory: neither token nor credentials. */
export interface Remembered {
  /** Keyed fingerprint of the service and the credentials that all this is about. */
  readonly subject: string
  readonly generation: number
  readonly isOrderly: boolean
  readonly failure: Failure | null
  readonly refusal: Refusal | null
  readonly alert: Alert | null
}
/** What is kept of the token, in the runtime directory. Its instants hold for one boot only. */
export interface Kept {
  readonly subject: string
  readonly token: Token
}

export function formatRemembered(remembered: Remembered, written: Written): string {
  return `${JSON.stringify({ version: VERSION, written, remembered })}\n`
}
export function formatKept(kept: Kept, written: Written): string {
  return `${JSON.stringify({ version: VERSION, written, kept })}\n`
}

/** Undefined where it is anything else than what formatRemembered writes. */
export function parseRemembered(text: string): { remembered: Remembered; written: Written } | undefined {
  const file = parse(text)
  const remembered = file?.['remembered']
  const written = file?.['written']
  return isRemembered(remembered) && isWritten(written) ? { remembered, written } : undefined
}

/** Undefined where it is anything else than what formatKept writes. */
export function parseKept(text: string): { kept: Kept; written: Written } | undefined {
  const file = parse(text)
  const kept = file?.['kept']
  const written = file?.['written']
  return isKept(kept) && isWritten(written) ? { kept, written } : undefined
}

function parse(text: string): Record<string, unknown> | undefined {
  try {
    const file: unknown = JSON.parse(text)
    return isRecord(file) && file['version'] === VERSION ? file : undefined
  } catch {
    // Torn or foreign; the caller tells it.
    return undefined
  }
}

type Check<T> = (value: unknown) => value is T
type Checks<T> = { readonly [K in keyof T]-?: Check<T[K]> }

function shape<T>(checks: Checks<T>): Check<T> {
  const entries = Object.entries<Check<unknown>>(checks as Record<string, Check<unknown>>)
  return (value): value is T => isRecord(value) && entries.every(([key, isValid]) => isValid(value[key]))
}
function orNull<T>(isValid: Check<T>): Check<T | null> {
  return (value): value is T | null => value === null || isValid(value)
}
function oneOf<T extends string>(...words: readonly T[]): Check<T> {
  return (value): value is T => words.includes(value as T)
}
function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}
function isText(value: unknown): value is string {
  return typeof value === 'string'
}
function isFlag(value: unknown): value is boolean {
  return typeof value === 'boolean'
}
/** Far beyond any uptime and any date, and still exact in milliseconds. */
const MAX_MS = 1e14
function isMs(value: unknown): value is number {
  return typeof value === 'number' && Math.abs(value) <= MAX_MS
}
function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

const isInstant = shape<Instant>({ bootMs: isMs, wallMs: isMs })
const isWritten = shape<Written>({ at: isInstant, bootId: orNull(isText) })
const isPermanentReason = oneOf('account-inactive', 'account-not-found')
const isRemembered = shape<Remembered>({
  subject: isText,
  generation: isCount,
  isOrderly: isFlag,
  failure: orNull(
    shape<Failure>({
      reason: oneOf(
        'rate-limited',
        'server-error',
        'malformed-answer',
        'network',
        'timeout',
        'tls',
        'rejected',
      ),
      detail: isText,
      status: orNull(isCount),
      since: isInstant,
      attempts: isCount,
      retryAtMs: isMs,
      notBeforeMs: isMs,
    }),
  ),
  refusal: orNull(
    shape<Refusal>({ reason: isPermanentReason, detail: isText, status: isCount, since: isInstant }),
  ),
  alert: orNull(
    shape<Alert>({
      reason: oneOf('account-inactive', 'account-not-found', 'rejected'),
      detail: isText,
      since: isInstant,
    }),
  ),
})

const isTokenShape = shape<Token>({
  accessToken: isText,
  fingerprint: isText,
  generation: isCount,
  baseUrl: isText,
  received: isInstant,
  lifeMs: isMs,
  expiresAtMs: isMs,
  expirySource: oneOf('jwt', 'assumed'),
  refreshAtMs: isMs,
})
/** The fingerprint vouches for the token: not one character of it was lost. */
function isToken(value: unknown): value is Token {
  return isTokenShape(value) && value.lifeMs > 0 && value.fingerprint === fingerprintOf(value.accessToken)
}
const isKept = shape<Kept>({ subject: isText, token: isToken })
