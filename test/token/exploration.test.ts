// No history breaks a rule of the contract, and the exploration finds mistakes that are planted in the machine. The
// histories here are short; those of `exploration.process.test.ts` are long.
import { describe, expect, test } from 'vitest'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import type { PairRecord, TokenState } from '../../src/token/state.ts'
import { ALL, explore, machine, WORLDS, type Machine } from './exploration.ts'

test.each(Object.entries({ ...WORLDS, all: ALL }))('no history of %s breaks a rule', (name, world) => {
  const { states, broken } = explore(world, { depth: name === 'all' ? 5 : 7 })
  expect(broken).toBeNull()
  expect(states).toBeGreaterThan(1_000)
})

const withRecords = (state: TokenState, change: Partial<PairRecord>): TokenState => {
  const changed = Object.entries(state.pairs).map(([id, record]) => [id, { ...record, ...change }] as const)
  return { ...state, pairs: Object.fromEntries(changed) }
}
const { next, afterAnswer, afterAssertion, afterBoot, afterFiles, afterRequest, afterStart, afterTick } =
  machine
/** The transition by an answer, with other facts after it. */
const answering =
  (change: (state: TokenState, outcome: FetchOutcome) => Partial<TokenState>): Machine['afterAnswer'] =>
  (before, outcome, step) => {
    const { state, ...rest } = afterAnswer(before, outcome, step)
    return { ...rest, state: { ...state, ...change(state, outcome) } }
  }

/** A mistake in the machine: the world that shows it, and words of the rule that it breaks. */
function finds(mistake: string, world: keyof typeof WORLDS, rule: string, change: Partial<Machine>): void {
  test(`${mistake}: that is found`, () => {
    const { broken } = explore(WORLDS[world], { states: 30_000, play: { ...machine, ...change } })
    expect(broken?.rule).toContain(rule)
  })
}

describe('a planted mistake', () => {
  finds('Retry-After holds nobody back', 'pairs', 'Retry-After', {
    next: (s, now) => next(withRecords(s, { floorAtMs: 0 }), now),
  })
  finds('a request that is under way is not saved as failed', 'pairs', 'counted is not sent again', {
    afterRequest: (...asked) => withRecords(afterRequest(...asked), { attempts: 0 }),
  })
  finds('a start after a crash asks a refused pair', 'pairs', 'a refused pair', {
    afterStart: (s, files, step) => afterStart(s, { ...files, isOrderly: true }, step),
  })
  finds('a reload lifts a refusal', 'pairs', 'refus', {
    afterFiles: (...read) => withRecords(afterFiles(...read), { refusal: null }),
  })
  finds('a pair comes into use by a reload', 'pairs', 'comes into use', {
    afterFiles: (s, files, step) => ({ ...afterFiles(s, files, step), running: files.pair }),
  })
  finds('a refused candidate takes the token away', 'pairs', 'taken away', {
    afterAnswer: answering(({ token }, { kind }) => ({ token: kind === 'permanent' ? null : token })),
  })
  finds('an answer of the former service is taken', 'pairs', 'former service', {
    afterFiles: (s, ...read) => ({ ...afterFiles(s, ...read), inFlight: s.inFlight }),
  })
  finds('two requests at a time', 'pairs', 'one request at a time', {
    next: (s, now) => next({ ...s, inFlight: null }, now),
  })
  finds('the state directory holds no records', 'pairs', 'counted is not sent again', {
    afterBoot: ({ state, ...saved }, now) => afterBoot({ ...saved, state: { ...state, pairs: {} } }, now),
  })
  finds('the same token is planned like a new one', 'life', 'half of its life', {
    afterAnswer: answering(({ token }) => {
      const isPlanned = token?.isUnchanged === true && token.expMs !== null
      return { token: isPlanned ? { ...token, refreshAtMs: token.expiresAtMs } : token }
    }),
  })
  finds('a token is served past its end', 'life', 'past its known end', { usableToken: ({ token }) => token })
  finds('a jump of the wall clock is passed over', 'life', 'a jump of the clock', {
    afterTick: (s, now, awakeMs) => ({ ...afterTick(s, now, awakeMs), token: s.token }),
  })
  finds('a need that cannot be met asks the service', 'life', 'a cause', {
    afterNeed: (s) => (s.token === null ? s : { ...s, clients: { ...s.clients, want: 'more life' } }),
  })
  finds('the pace of clients is lost at a restart', 'life', 'clients cause one request', {
    afterStart: ({ clients, ...s }, ...files) =>
      afterStart({ ...s, clients: { ...clients, requestedAtMs: null, pace: 0 } }, ...files),
  })
  finds('a changed assertion lifts a refusal as often as it changes', 'assertion', 'a refused pair', {
    afterAssertion: (s, ...read) => afterAssertion({ ...s, liftAtMs: 0 }, ...read),
  })
  finds('a bad assertion is asked with again at once', 'assertion', 'a postponed attempt', {
    next: (s, now) => next(withRecords(s, { resumeAtMs: 0 }), now),
  })
})
