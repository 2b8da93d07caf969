// The states and transitions of src/README.md, found by trying every event in every state with the program's own functions.
import type { Instant } from '../../src/lib/clock.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { initialState, nextExpiryMs, phaseOf, usableUntilMs, refusalOf } from '../../src/token/state.ts'
import type { Step, TokenState } from '../../src/token/state.ts'
import { afterAttemptBegan, afterReload, afterTick, nextState } from '../../src/token/transitions.ts'

const SETTINGS = { baseUrl: 'https://api.example.com', credentialsId: 'first' }
const policy = { maxAgeMs: 900_000, initialDelayMs: 1_000, maxDelayMs: 300_000 }
const START: Instant = { bootMs: 0, wallMs: 1_800_000_000_000 }

/** One situation: the facts, and the moment at which they are looked at. */
interface Situation {
  readonly state: TokenState
  readonly now: Instant
}
type Event = (situation: Situation, step: Step) => Situation

const answered =
  (outcome: FetchOutcome): Event =>
  ({ state, now }, step) => ({
    state: nextState(afterAttemptBegan(state, 'retry', now), outcome, step).state,
    now,
  })

/** To the next moment at which the token's life ends or it goes out of use. */
const later: Event = ({ state, now }) => {
  const bootMs = nextExpiryMs(state, now)
  if (bootMs === Infinity) return { state, now }
  const then = { bootMs, wallMs: now.wallMs + bootMs - now.bootMs }
  return { state: afterTick(state, { now: then, policy, drawn: 0 }), now: then }
}

/** A reload with other settings. */
const reloaded =
  (change: (settings: typeof SETTINGS) => typeof SETTINGS): Event =>
  ({ state, now }, step) => ({ state: afterReload(state, change(state), step), now })
const toggled = (text: string): string => (text.endsWith('2') ? text.slice(0, -1) : `${text}2`)

/** A token that says its life, and one that does not; another one each time. */
function tokens({ state, now }: Situation): Readonly<Record<'jwt' | 'opaque', string>> {
  const claims = { iat: now.wallMs / 1_000, exp: now.wallMs / 1_000 + 3_600, jti: state.generation }
  const payload = Buffer.from(JSON.stringify(claims)).toString('base64url')
  return { jwt: `e30.${payload}.c2ln`, opaque: `opaque-${state.generation}` }
}

/** The events, in the words of the picture. */
const EVENTS: readonly (readonly [name: string, event: Event])[] = [
  ...(['jwt', 'opaque'] as const).map((kind): [string, Event] => [
    'token',
    (situation, step) => answered({ kind: 'ok', accessToken: tokens(situation)[kind] })(situation, step),
  ]),
  ['failure', answered({ kind: 'transient', reason: 'server-error', detail: 'Bad gateway', status: 502 })],
  [
    'refusal',
    answered({
      kind: 'permanent',
      reason: 'account-inactive',
      detail: 'Your account is not active',
      status: 500,
    }),
  ],
  ['life over', later],
  [
    'other credentials',
    reloaded(({ baseUrl, credentialsId }) => ({ baseUrl, credentialsId: toggled(credentialsId) })),
  ],
  [
    'other service',
    reloaded(({ baseUrl, credentialsId }) => ({
      baseUrl: toggled(baseUrl),
      credentialsId: toggled(credentialsId),
    })),
  ],
]

/** The facts by which two situations differ for these transitions. */
function keyOf({ state, now }: Situation): string {
  const { token, failure } = state
  const life = token === null ? 'none' : [token.expiresAtMs > now.bootMs, usableUntilMs(token) > now.bootMs]
  return JSON.stringify([
    life,
    token?.expirySource,
    failure !== null,
    refusalOf(state) !== null,
    state.baseUrl,
    state.credentialsId,
  ])
}

/** Every transition between different states, as `from`, `to` and the events that cause it. */
export function transitions(): { from: string; to: string; events: readonly string[] }[] {
  const found = new Map<string, Set<string>>()
  const seen = new Set<string>()
  const waiting: Situation[] = [{ state: initialState(SETTINGS, START), now: START }]
  for (let situation = waiting.pop(); situation !== undefined; situation = waiting.pop()) {
    if (seen.has(keyOf(situation))) continue
    seen.add(keyOf(situation))
    const { state, now } = situation
    for (const [name, event] of EVENTS) {
      const next = event(situation, { now, policy, drawn: 0 })
      const edge = `${phaseOf(state, now)} ${phaseOf(next.state, next.now)}`
      found.set(edge, (found.get(edge) ?? new Set()).add(name))
      waiting.push(next)
    }
  }
  return [...found]
    .map(([edge, events]) => {
      const [from = '', to = ''] = edge.split(' ')
      return {
        from,
        to,
        events: [...new Set(EVENTS.map(([name]) => name))].filter((name) => events.has(name)),
      }
    })
    .filter(({ from, to }) => from !== to)
}

const ORDER = ['starting', 'ready', 'degraded', 'expired', 'refused']

/** The picture: a diagram for Mermaid, which is readable as text too. */
export function stateDiagram(): string {
  const byState = transitions().toSorted(
    (a, b) => ORDER.indexOf(a.from) - ORDER.indexOf(b.from) || ORDER.indexOf(a.to) - ORDER.indexOf(b.to),
  )
  const lines = byState.map(({ from, to, events }) => `  ${from} --> ${to}: ${events.join(', ')}`)
  return ['```mermaid', 'stateDiagram-v2', '  [*] --> starting', ...lines, '```', ''].join('\n')
}
