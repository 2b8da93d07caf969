// Plays the scenarios of scenarios.yaml (README.md says how they are read).
import { readFileSync } from 'node:fs'
import { beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { createWorld, durationMs, type Change, type Given, type ServiceAnswer, type World } from './world.ts'

type Step = Record<string, unknown> | string

/** Steps by name, of which none is there twice. */
const scenarios = parse(readFileSync(new URL('scenarios.yaml', import.meta.url), 'utf8')) as Readonly<
  Record<string, readonly Step[]>
>

/** Each word of a step, and what it does to the world. A step is its first word; the others belong to it. */
const words: Record<string, (world: World, value: unknown, step: Record<string, unknown>) => unknown> = {
  service: (world, answer) => {
    world.service(answer as ServiceAnswer)
  },
  start: async (world, change) => world.start(change as Change | undefined),
  stop: async (world) => world.stop(),
  crash: async (world) => world.crash(),
  reboot: async (world) => world.reboot(),
  wait: async (world, duration) => world.wait(durationMs(duration as string)),
  suspend: (world, duration) => {
    world.suspend(durationMs(duration as string))
  },
  'set clock': (world, duration) => {
    world.setClock(durationMs(duration as string))
  },
  reports: async (world, name, { says, for: heldFor }) => {
    const { verdict, retryAfterSeconds } = await world.report(name as string)
    expect(verdict, `the verdict on ${name as string}`).toBe(says)
    if (heldFor !== undefined) expect(retryAfterSeconds).toBe(Math.ceil(durationMs(heldFor as string) / 1000))
  },
  needs: async (world, duration) => world.need(durationMs(duration as string)),
  operator: async (world, _word, { says }) => {
    expect(await world.refresh(), 'the answer to the operator').toBe(says)
  },
  reload: async (world, change) => world.reload(change as Change),
  rotate: async (world, credentials) => world.rotate(credentials as string),
  expect: async (world, expected) => expectSeen(world, expected as Record<string, unknown>),
}

async function expectSeen(world: World, expected: Record<string, unknown>): Promise<void> {
  const seen = await world.seen()
  for (const [word, value] of Object.entries(expected)) {
    if (!(word in seen)) throw new Error(`Nothing is known of "${word}"`)
    const actual = seen[word as keyof typeof seen]
    const about = `${word} in ${JSON.stringify(seen)}`
    // Date headers have whole seconds, floats have dust.
    if ((word === 'left' || word === 'next') && value !== 'never')
      expect(Math.abs(Number(actual ?? NaN) - durationMs(value as string)), about).toBeLessThan(2)
    else expect(actual, about).toBe(value)
  }
}

const SETTINGS = [
  'credentials',
  'baseUrl',
  'maxAge',
  'initialDelay',
  'maxDelay',
  'noTokenAfter',
  'share',
  'description',
  'files',
]

/** The words that the parts of a scenario may have: one that is mistaken must not be passed over. */
const KNOWN: Record<string, readonly string[]> = {
  given: [...SETTINGS, 'local clock'],
  start: SETTINGS,
  reload: SETTINGS,
  service:
    'jwt, opaque, again, life, issued, exp, without, status, detail, body, Retry-After, silent, hangs, to'.split(
      ', ',
    ),
  step: ['says', 'for', ...Object.keys(words)],
}

function refuseUnknown(part: string, value: unknown): void {
  const known = KNOWN[part]
  if (known === undefined || typeof value !== 'object' || value === null) return
  const unknown = Object.keys(value).filter((word) => !known.includes(word))
  if (unknown.length > 0) throw new Error(`Unknown in ${part}: ${unknown.join(', ')}`)
}

async function play(world: World, step: Step): Promise<void> {
  const written = typeof step === 'string' ? { [step]: undefined } : step
  const [word = ''] = Object.keys(written)
  refuseUnknown('step', written)
  refuseUnknown(word, written[word])
  const act = words[word]
  if (act === undefined) throw new Error(`Unknown step: ${word}`)
  await act(world, written[word], written)
}

describe('scenarios', () => {
  // The daemon imports them when it first needs them; the fake clock cannot wait for that.
  beforeAll(async () => {
    await Promise.all([import('p-retry'), import('../../src/share/share.ts')])
  })

  test.for(Object.entries(scenarios))('%s', async ([, [first, ...rest]]) => {
    const { given } = first as { given?: Given }
    refuseUnknown('given', given)
    const world = createWorld(given ?? {})
    world.service({ jwt: 'A', life: '1h' })
    try {
      for (const step of given === undefined ? [first!, ...rest] : rest) await play(world, step)
    } finally {
      await world.end()
    }
  })
})
