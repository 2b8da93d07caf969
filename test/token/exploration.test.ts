// No history breaks a rule of the contract, and the exploration finds mistakes that are planted in the machine. The
// histories here are short; those of `exploration.process.test.ts` are long.
import { describe, expect, test } from 'vitest'
import type { PairRecord, TokenState } from '../../src/token/state.ts'
import { ALL, explore, machine, WORLDS, type Machine } from './exploration.ts'

test.each(Object.entries({ ...WORLDS, all: ALL }))('no history of %s breaks a rule', (name, world) => {
  const { states, broken } = explore(world, { depth: name === 'all' ? 5 : 7 })
  expect(broken).toBeNull()
  expect(states).toBeGreaterThan(1_000)
})

const withRecords = (state: TokenState, change: (record: PairRecord) => Partial<PairRecord>): TokenState => ({
  ...state,
  pairs: Object.fromEntries(
    Object.entries(state.pairs).map(([id, record]) => [id, { ...record, ...change(record) }]),
  ),
})
const { next, afterAnswer, afterAssertion, afterBoot, afterFiles, afterRequest, afterStart, afterTick } =
  machine

/** Mistakes, the world that shows each, and words of the rule that it breaks. */
const MISTAKES: readonly (readonly [string, keyof typeof WORLDS, Partial<Machine>, string])[] = [
  [
    'Retry-After holds nobody back',
    'pairs',
    {
      next: (s, now) =>
        next(
          withRecords(s, () => ({ floorAtMs: 0 })),
          now,
        ),
    },
    'Retry-After',
  ],
  [
    'a request that is under way is not saved as failed',
    'pairs',
    { afterRequest: (...asked) => withRecords(afterRequest(...asked), () => ({ attempts: 0 })) },
    'counted is not sent again',
  ],
  [
    'a start after a crash asks a refused pair',
    'pairs',
    { afterStart: (s, files, now) => afterStart(s, { ...files, isOrderly: true }, now) },
    'a refused pair',
  ],
  [
    'a reload lifts a refusal',
    'pairs',
    {
      afterFiles: (s, files, step) => withRecords(afterFiles(s, files, step), () => ({ refusal: null })),
    },
    'refus',
  ],
  [
    'a pair comes into use by a reload',
    'pairs',
    { afterFiles: (s, files, now) => ({ ...afterFiles(s, files, now), running: files.pair }) },
    'comes into use',
  ],
  [
    'a refused candidate takes the token away',
    'pairs',
    {
      afterAnswer: (s, outcome, step) => {
        const { state, ...rest } = afterAnswer(s, outcome, step)
        return { ...rest, state: outcome.kind === 'permanent' ? { ...state, token: null } : state }
      },
    },
    'taken away',
  ],
  [
    'an answer of the former service is taken',
    'pairs',
    { afterFiles: (s, files, now) => ({ ...afterFiles(s, files, now), inFlight: s.inFlight }) },
    'former service',
  ],
  [
    'two requests at a time',
    'pairs',
    { next: (s, now) => next({ ...s, inFlight: null }, now) },
    'one request at a time',
  ],
  [
    'the state directory holds no records',
    'pairs',
    {
      afterBoot(...saved) {
        const former = afterBoot(...saved)
        return { ...former, state: { ...former.state, pairs: {} } }
      },
    },
    '',
  ],
  [
    'the same token is planned like a new one',
    'life',
    {
      afterAnswer: (s, outcome, step) => {
        const { state, ...rest } = afterAnswer(s, outcome, step)
        const { token } = state
        const isSame = token !== null && token.isUnchanged && token.expMs !== null
        return {
          ...rest,
          state: isSame ? { ...state, token: { ...token, refreshAtMs: token.expiresAtMs } } : state,
        }
      },
    },
    'half of its life',
  ],
  ['a token is served past its end', 'life', { usableToken: ({ token }) => token }, 'past its known end'],
  [
    'a jump of the wall clock is passed over',
    'life',
    { afterTick: (s, now, awakeMs) => ({ ...afterTick(s, now, awakeMs), token: s.token }) },
    'a jump of the clock',
  ],
  [
    'a need that cannot be met asks the service',
    'life',
    { afterNeed: (s) => (s.token === null ? s : { ...s, clients: { ...s.clients, want: 'more life' } }) },
    'a cause',
  ],
  [
    'the pace of clients is lost at a restart',
    'life',
    {
      afterStart(...saved) {
        const state = afterStart(...saved)
        return { ...state, clients: { ...state.clients, requestedAtMs: null, pace: 0 } }
      },
    },
    'clients cause one request',
  ],
  [
    'a changed assertion lifts a refusal as often as it changes',
    'assertion',
    { afterAssertion: (s, ...read) => afterAssertion({ ...s, liftAtMs: 0 }, ...read) },
    'a refused pair',
  ],
]

describe('a planted mistake is found', () => {
  test.each(MISTAKES)('%s', (_mistake, world, change, rule) => {
    const { broken } = explore(WORLDS[world], { states: 30_000, play: { ...machine, ...change } })
    expect(broken?.rule).toContain(rule)
  })
})
