// What a start needs of the former process, as a text: the state as it is. Two files hold it, and a start reads one of
// them: that of the runtime directory, for the same boot, with the token; or, where that is not there, that of the state
// directory, without the token, whose instants are moved to the present boot by the wall clock. Pure.
import type { Instant } from '../lib/clock.ts'
import { parseRecord } from '../lib/input.ts'
import { lostAt, usableToken } from '../token/selectors.ts'
import type { TokenState } from '../token/state.ts'

/** Raised when the state has other facts. A file of another version is ignored, which costs one request. */
const VERSION = 8

/** The state of a former process: `afterStart` begins with it. */
export interface Former {
  readonly state: TokenState
  /** The daemon was stopped, and did not crash. */
  readonly isOrderly: boolean
}
interface Saved extends Former {
  readonly version: number
  /** When it was saved. */
  readonly at: Instant
}
interface Saving {
  readonly now: Instant
  readonly isOrderly: boolean
}

/** All facts, for a start in the same boot. The secret of a token that has ended is left out. */
export function runtimeText(state: TokenState, { now: at, isOrderly }: Saving): string {
  const { token } = state
  const hasEnded = token !== null && usableToken(state, at) === null
  const facts = hasEnded ? { ...state, token: { ...token, accessToken: '' } } : state
  return JSON.stringify({ version: VERSION, isOrderly, at, state: facts } satisfies Saved)
}

/** The facts that outlive a boot: without the token, which is lost by the boot. */
export function lastingText(state: TokenState, saving: Saving): string {
  const since = usableToken(state, saving.now) === null ? lostAt(state, saving.now) : saving.now
  const lost = { token: null, tokenless: { ...state.tokenless, since } }
  return runtimeText({ ...state, ...lost, clients: { ...state.clients, want: 'nothing' } }, saving)
}

/** The state that the text of the runtime directory's file holds. Undefined: none. */
export function readRuntime(text: string): Former | undefined {
  const saved = parseRecord(text)
  return saved?.['version'] === VERSION ? (saved as unknown as Saved) : undefined
}

/** The state that the text of the state directory's file holds, on the present clocks. Undefined: none. */
export function readLasting(text: string, now: Instant): Former | undefined {
  const saved = readRuntime(text) as Saved | undefined
  if (saved === undefined) return undefined
  const { state, isOrderly, at } = saved
  // The wall clock may have been set back between the boots: then no time has passed, and no wait is longer than it was.
  const byMs = now.bootMs - at.bootMs - Math.max(0, now.wallMs - at.wallMs)
  const clocks = { wallMs: now.wallMs - now.bootMs, serviceMs: null }
  return { state: { ...moved(state, byMs), clocks }, isOrderly }
}

/** The same facts, with each instant of the boot clock later by so much. */
function moved<Facts>(facts: Facts, byMs: number): Facts {
  if (typeof facts !== 'object' || facts === null || Array.isArray(facts)) return facts
  const entries = Object.entries(facts).map(([name, fact]: [string, unknown]) => {
    const isInstant = typeof fact === 'number' && (name === 'bootMs' || name.endsWith('AtMs'))
    return [name, isInstant ? fact + byMs : moved(fact, byMs)] as const
  })
  return Object.fromEntries(entries) as Facts
}
