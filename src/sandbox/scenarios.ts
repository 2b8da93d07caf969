// The scenarios of the stand-in as data: what it answers to the right credentials, by turns.
import type { ServiceConfig } from '../config/config.ts'
import type { PermanentReason } from '../protocol.ts'

/** `jwt` has its expiry, `opaque` expires without saying so, `expired` is a JWT that has expired. */
export type TokenKind = 'jwt' | 'opaque' | 'expired'

export type Step =
  | { readonly token: TokenKind }
  | { readonly refusal: PermanentReason }
  /** With the error body of the interface description, section 2.3; `page`: with this one instead. */
  | { readonly status: number; readonly detail: string; readonly retryAfterSeconds?: number }
  | { readonly status: number; readonly page: string }
  /** The connection is cut without an answer. */
  | 'cut'

export interface Scenario {
  /** Its answers, for people. */
  readonly summary: string
  readonly delayMs?: number
  readonly steps: readonly Step[]
}

const RETRY_AFTER_SECONDS = 10
const NOT_NAMED = '400, because `service.refusals` names no such refusal'
const PAGE = '<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n'
const JWT = { token: 'jwt' } as const

export const scenarios = {
  ok: { summary: 'a token that says when it expires', steps: [JWT] },
  'account-inactive': { summary: NOT_NAMED, steps: [{ refusal: 'account-inactive' }] },
  'account-not-found': { summary: NOT_NAMED, steps: [{ refusal: 'account-not-found' }] },
  outage: {
    summary: '503 to every request for a token',
    steps: [{ status: 503, detail: 'Down for maintenance' }],
  },
  'rate-limited': {
    summary: `429 with Retry-After: ${RETRY_AFTER_SECONDS}`,
    steps: [{ status: 429, detail: 'Too many requests', retryAfterSeconds: RETRY_AFTER_SECONDS }],
  },
  slow: { summary: 'a token after 5 s', delayMs: 5_000, steps: [JWT] },
  flaky: {
    summary: 'by turns 500, a cut connection, and a token',
    steps: [{ status: 500, detail: 'Something went wrong' }, 'cut', JWT],
  },
  'html-error': { summary: 'the 502 page of a gateway', steps: [{ status: 502, page: PAGE }] },
  'opaque-token': { summary: 'a token that does not say when it expires', steps: [{ token: 'opaque' }] },
  'expired-token': { summary: 'a token that has expired already', steps: [{ token: 'expired' }] },
} as const satisfies Record<string, Scenario>

export type ScenarioName = keyof typeof scenarios
export const scenarioNames = Object.keys(scenarios) as ScenarioName[]

/** The answers of the stand-in of this service, for people. */
export function summaryOf(name: ScenarioName, { refusals }: Pick<ServiceConfig, 'refusals'>): string {
  const refusal = refusals.find(({ reason }) => reason === name)
  return refusal === undefined
    ? scenarios[name].summary
    : `${refusal.status} "${refusal.says}": refused for good`
}
