// The answers of the stand-in to the right credentials: one function for each scenario.
import type { ServiceConfig } from '../config/config.ts'
import type { PermanentReason } from '../protocol.ts'

/** `jwt` has its expiry, `opaque` expires without saying so, `expired` is a JWT that has expired. */
export type TokenKind = 'jwt' | 'opaque' | 'expired'

/** An answer to be sent. */
export interface SandboxAnswer {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  /** An object is sent as JSON, a string as it is. */
  readonly body: string | Readonly<Record<string, unknown>>
}
/** An answer with the error body of the interface description, section 2.3. */
export type Problem = (status: number, detail: string) => SandboxAnswer
/** The arguments of a scenario. */
interface ScenarioInput {
  /** Counts the token requests since the scenario began, from 1. */
  readonly number: number
  /** The answer with a new token. */
  readonly grant: (kind: TokenKind) => SandboxAnswer
  readonly refuse: (reason: PermanentReason) => SandboxAnswer
  readonly problem: Problem
}
export interface Scenario {
  /** Its answers, for people; those of a refusal are the service's: `summaryOf`. */
  readonly summary: string
  /** Delay of the answer. */
  readonly delayMs?: number
  /** Null: the connection is cut without an answer. */
  readonly answer: (input: ScenarioInput) => SandboxAnswer | null
}

const SLOW_MS = 5_000
const RETRY_AFTER_SECONDS = 10
/** Of a refusal that the service describes otherwise. */
const NOT_NAMED = '400, because `service.refusals` names no such refusal'

const ok = ({ grant }: ScenarioInput): SandboxAnswer => grant('jwt')

export const scenarios = {
  ok: { summary: 'a token that says when it expires', answer: ok },
  'account-inactive': { summary: NOT_NAMED, answer: ({ refuse }) => refuse('account-inactive') },
  'account-not-found': { summary: NOT_NAMED, answer: ({ refuse }) => refuse('account-not-found') },
  outage: {
    summary: '503 to every request for a token',
    answer: ({ problem }) => problem(503, 'Down for maintenance'),
  },
  'rate-limited': {
    summary: `429 with Retry-After: ${RETRY_AFTER_SECONDS}`,
    answer: ({ problem }) => ({
      ...problem(429, 'Too many requests'),
      headers: { 'retry-after': String(RETRY_AFTER_SECONDS) },
    }),
  },
  slow: { summary: `a token after ${SLOW_MS / 1000} s`, delayMs: SLOW_MS, answer: ok },
  flaky: {
    summary: 'by turns 500, a cut connection, and a token',
    answer: (input) => {
      const turn = input.number % 3
      if (turn === 1) return input.problem(500, 'Something went wrong')
      return turn === 2 ? null : ok(input)
    },
  },
  'html-error': {
    summary: 'the 502 page of a gateway',
    answer: () => ({
      status: 502,
      headers: { 'content-type': 'text/html' },
      body: '<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n',
    }),
  },
  'opaque-token': {
    summary: 'a token that does not say when it expires',
    answer: ({ grant }) => grant('opaque'),
  },
  'expired-token': {
    summary: 'a token that has expired already',
    answer: ({ grant }) => grant('expired'),
  },
} as const satisfies Record<string, Scenario>

export type ScenarioName = keyof typeof scenarios
export const scenarioNames = Object.keys(scenarios) as ScenarioName[]

export function isScenarioName(name: string): name is ScenarioName {
  return Object.hasOwn(scenarios, name)
}

/** The answer of the stand-in of this service, for people. */
export function summaryOf(name: ScenarioName, { refusals }: Pick<ServiceConfig, 'refusals'>): string {
  const refusal = refusals.find(({ reason }) => reason === name)
  return refusal === undefined
    ? scenarios[name].summary
    : `${refusal.status} "${refusal.says}": refused for good`
}
