// Random stories about the whole daemon: no rule of the contract is broken, whatever happens in whatever order.
//
//   KYC_TOKEND_STORY_SEED=7 KYC_TOKEND_STORIES=1000 npx vitest run --config test/vitest.config.ts test/scenarios/stories.test.ts
//
// plays a thousand stories of that seed; without one each run has its own. A story that breaks a rule is shortened first.
import * as fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import { playStory, type Step } from './story.ts'
import type { Harm, ServiceAnswer } from './world.ts'

const MINUTE = 60_000
const refusal = { status: 500, detail: 'Your account is not active' }
const answers: fc.Arbitrary<ServiceAnswer> = fc.constantFrom<ServiceAnswer[]>(
  { jwt: 'long', life: '1h' },
  { jwt: 'short', life: '5m' },
  { jwt: 'brief', life: '20s' },
  { opaque: 'opaque' },
  { again: true },
  { status: 503 },
  { silent: 'network' },
  { status: 503, after: '10s' },
  { jwt: 'slow', life: '30m', after: '14s' },
  { status: 429, 'Retry-After': 600 },
  { status: 401 },
  refusal,
  { to: 'two', status: 404, detail: 'Account not found' },
  { to: 'two', status: 503 },
  { to: 'one', status: 403, detail: 'You sent secret-of-one' },
  { to: 'two', status: 429 },
  { to: 'two', jwt: 'of two', life: '1h' },
)
const plain = (name: 'reject' | 'operator' | 'restart' | 'reboot' | 'freeDisk'): fc.Arbitrary<Step> =>
  fc.constant({ do: name })
const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 7, arbitrary: answers.map((answer): Step => ({ do: 'service', answer })) },
  {
    weight: 9,
    arbitrary: fc
      .oneof(fc.integer({ min: 1, max: MINUTE }), fc.integer({ min: MINUTE, max: 8 * MINUTE }))
      .map((ms): Step => ({ do: 'wait', ms })),
  },
  {
    weight: 1,
    arbitrary: fc.integer({ min: 1, max: 600 * MINUTE }).map((ms): Step => ({ do: 'suspend', ms })),
  },
  {
    weight: 1,
    arbitrary: fc.integer({ min: -600 * MINUTE, max: 600 * MINUTE }).map((ms): Step => ({ do: 'clock', ms })),
  },
  {
    weight: 2,
    arbitrary: fc.integer({ min: 1_000, max: 60 * MINUTE }).map((ms): Step => ({ do: 'need', ms })),
  },
  { weight: 3, arbitrary: plain('reject') },
  { weight: 2, arbitrary: plain('operator') },
  {
    weight: 2,
    arbitrary: fc.constantFrom('one', 'two').map((credentials): Step => ({ do: 'rotate', credentials })),
  },
  {
    weight: 2,
    arbitrary: fc
      .record({
        baseUrl: fc.constantFrom('here', 'here', 'there'),
        maxAge: fc.constantFrom('15m', '2m'),
        maxDelay: fc.constantFrom('5m', '10s'),
      })
      .map((change): Step => ({ do: 'reload', change })),
  },
  {
    weight: 3,
    arbitrary: fc.oneof(fc.constant(0), fc.nat(60)).map((turns): Step => ({ do: 'crash', turns })),
  },
  {
    weight: 4,
    arbitrary: fc
      .constantFrom<Harm[]>('run', 'state', 'log', 'socket')
      .map((what): Step => ({ do: 'harm', what })),
  },
  { weight: 1, arbitrary: plain('freeDisk') },
  { weight: 1, arbitrary: plain('restart') },
  { weight: 1, arbitrary: plain('reboot') },
)

const WITH_TOKEN: readonly Step[] = [
  { do: 'service', answer: { jwt: 'first', life: '1h' } },
  { do: 'wait', ms: MINUTE },
]

/** Stories that once broke a rule, of the daemon or of the model, or that chance rarely finds: they are played each time. */
const former: [Step[], number][] = [
  ...(['run', 'state'] as const).map((what): [Step[], number] => [
    [
      ...WITH_TOKEN,
      { do: 'harm', what },
      { do: 'service', answer: { jwt: 'short', life: '5m' } },
      { do: 'operator' },
      { do: 'wait', ms: MINUTE },
      { do: 'service', answer: refusal },
      { do: 'operator' },
      { do: 'wait', ms: MINUTE },
      { do: 'crash', turns: 0 },
    ],
    0,
  ]),
  [
    [
      ...WITH_TOKEN,
      { do: 'reload', change: { baseUrl: 'there' } },
      { do: 'service', answer: { silent: 'network' } },
      { do: 'reload', change: { baseUrl: 'here' } },
    ],
    0,
  ],
  [
    [
      ...WITH_TOKEN,
      { do: 'service', answer: { again: true } },
      { do: 'suspend', ms: 59 * MINUTE + 501 },
      { do: 'wait', ms: MINUTE },
    ],
    0,
  ],
  [
    [
      { do: 'rotate', credentials: 'two' },
      { do: 'wait', ms: 3_105 },
      { do: 'operator' },
      { do: 'wait', ms: MINUTE },
    ],
    -1_181_383_809,
  ],
  [
    [
      ...WITH_TOKEN,
      { do: 'harm', what: 'state' },
      { do: 'suspend', ms: 36 * MINUTE },
      { do: 'need', ms: 23 * MINUTE },
      { do: 'crash', turns: 0 },
      { do: 'reject' },
    ],
    0,
  ],
  [
    [
      { do: 'rotate', credentials: 'two' },
      { do: 'wait', ms: 7_226 },
      { do: 'crash', turns: 0 },
    ],
    -6,
  ],
  [
    [
      { do: 'rotate', credentials: 'two' },
      { do: 'wait', ms: 102_222 },
      { do: 'service', answer: refusal },
      { do: 'wait', ms: 21_666 },
    ],
    0,
  ],
  [
    [
      { do: 'service', answer: refusal },
      { do: 'wait', ms: MINUTE },
      { do: 'service', answer: { status: 503, after: '10s' } },
      { do: 'operator' },
      { do: 'wait', ms: MINUTE / 2 },
    ],
    0,
  ],
  [
    [
      { do: 'rotate', credentials: 'two' },
      { do: 'service', answer: { status: 401 } },
      { do: 'wait', ms: 17_501 },
      { do: 'restart' },
    ],
    0,
  ],
  [
    [
      ...WITH_TOKEN,
      { do: 'rotate', credentials: 'two' },
      { do: 'service', answer: { again: true } },
      { do: 'suspend', ms: 3_538_000 },
      { do: 'wait', ms: MINUTE },
      { do: 'wait', ms: MINUTE },
    ],
    -996_967_578,
  ],
  [
    [
      { do: 'service', answer: { opaque: 'opaque' } },
      { do: 'wait', ms: MINUTE },
      { do: 'service', answer: { silent: 'network' } },
      { do: 'suspend', ms: 16 * MINUTE },
    ],
    0,
  ],
  [
    [
      { do: 'harm', what: 'state' },
      { do: 'wait', ms: 501 },
      { do: 'reboot' },
      { do: 'harm', what: 'run' },
      { do: 'crash', turns: 0 },
    ],
    0,
  ],
]

const numRuns = Number(process.env['KYC_TOKEND_STORIES'] ?? 10)
const seed = Number(process.env['KYC_TOKEND_STORY_SEED'] ?? Date.now() % 1_000_000)

// The daemon imports it when it first needs it; the fake clock cannot wait for that.
beforeAll(async () => void (await import('p-retry')))

test(`${numRuns} stories of seed ${seed} break no rule`, { timeout: numRuns * 10_000 }, async () => {
  process.stdout.write(`Stories of seed ${seed}\n`)
  const any = fc.array(steps, { maxLength: 12, size: 'max' })
  const story = fc.oneof(
    any,
    any.map((rest) => [...WITH_TOKEN, ...rest]),
  )
  await fc.assert(
    fc.asyncProperty(story, fc.integer(), async (played, chance) => {
      expect(await playStory(played, chance)).toEqual([])
    }),
    { numRuns, seed, examples: former },
  )
})
