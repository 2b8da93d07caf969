// The states and transitions of src/README.md, found by trying orders of events with the program's functions.
import type { Instant } from '../../src/lib/clock.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { nextExpiryMs, phaseOf } from '../../src/token/selectors.ts'
import { initialState, type Step, type TokenState } from '../../src/token/state.ts'
import { afterAnswer, afterBegin, afterFiles, afterTick } from '../../src/token/transitions.ts'

/** The events of an order: more of them find no other transition. */
const DEPTH = 4
const ORDER = ['starting', 'ready', 'degraded', 'expired', 'refused']

const policy = { maxAgeMs: 900_000, initialDelayMs: 1_000, maxDelayMs: 300_000 }
const use = { header: 'Authorization', prefix: 'Bearer ' }
const service = { id: 'first', baseUrl: 'https://api.example.com', use, refusedBy: [401] }
const START: Instant = { bootMs: 0, wallMs: 1_800_000_000_000 }

/** One situation: the facts, and the moment at which they are looked at. */
interface Situation {
  readonly state: TokenState
  readonly now: Instant
}
type Event = (situation: Situation, step: Step) => Situation

const answered =
  (outcomeIn: (situation: Situation) => FetchOutcome): Event =>
  (situation, step) => {
    const { state } = situation
    const asking = afterBegin(state, { pair: state.newest, by: 'plan' })
    return { ...situation, state: afterAnswer(asking, outcomeIn(situation), step).state }
  }

/** A token that says its life; another one each time. */
function jwtIn({ state, now }: Situation): string {
  const iat = now.wallMs / 1_000
  const claims = JSON.stringify({ iat, exp: iat + 3_600, jti: state.generation })
  return `e30.${Buffer.from(claims).toString('base64url')}.c2ln`
}

/** To the next moment at which the token's life ends or it goes out of use. */
const later: Event = ({ state, now }) => {
  const bootMs = nextExpiryMs(state, now)
  if (bootMs === Infinity) return { state, now }
  const then = { bootMs, wallMs: now.wallMs + bootMs - now.bootMs }
  return { state: afterTick(state, then, 0), now: then }
}

/** A reload with another pair, or of another service. */
const reloaded =
  (change: 'pair' | 'service'): Event =>
  ({ state, now }, step) => {
    const id = change === 'service' ? `${state.service.id}2` : state.service.id
    const files = { service: { ...state.service, id }, policy, pair: `${state.newest}2` }
    return { state: afterFiles(state, files, step), now }
  }

/** The events, in the words of the picture. */
const EVENTS: readonly (readonly [name: string, event: Event])[] = [
  ['token', answered((situation) => ({ kind: 'ok', accessToken: jwtIn(situation) }))],
  ['token', answered(({ state }) => ({ kind: 'ok', accessToken: `opaque-${state.generation}` }))],
  ['failure', answered(() => ({ kind: 'transient', reason: 'server-error', detail: '', status: 502 }))],
  ['refusal', answered(() => ({ kind: 'permanent', reason: 'account-inactive', detail: '', status: 500 }))],
  ['life over', later],
  ['another pair', reloaded('pair')],
  ['another service', reloaded('service')],
]

/** The picture: a diagram for Mermaid, which is readable as text too. */
export function stateDiagram(): string {
  const state = initialState({ service, policy, pair: 'first' }, START)
  let situations: readonly Situation[] = [{ state, now: START }]
  /** The events of each transition, by both states. */
  const found = new Map<string, Set<string>>()
  for (let depth = 0; depth < DEPTH; depth += 1)
    situations = situations.flatMap((situation) =>
      EVENTS.map(([name, event]) => {
        const next = event(situation, { now: situation.now, drawn: 0 })
        const edge = `${phaseOf(situation.state, situation.now)} --> ${phaseOf(next.state, next.now)}`
        found.set(edge, (found.get(edge) ?? new Set()).add(name))
        return next
      }),
    )
  const lines = ORDER.flatMap((from) =>
    ORDER.filter((to) => to !== from).flatMap((to) => {
      const events = found.get(`${from} --> ${to}`)
      const names = EVENTS.map(([name]) => name).filter((name) => events?.has(name))
      return events === undefined ? [] : `  ${from} --> ${to}: ${[...new Set(names)].join(', ')}`
    }),
  )
  return ['```mermaid', 'stateDiagram-v2', '  [*] --> starting', ...lines, '```', ''].join('\n')
}
