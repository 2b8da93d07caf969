// Plays the scenarios of scenarios.yaml (README.md says how they are read).
import { readFileSync } from 'node:fs'
import { beforeAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import { createWorld, durationMs, type World } from './world.ts'

type Step = Record<string, unknown> | string

/** Steps by name, of which none is there twice. */
const scenarios = parse(readFileSync(new URL('scenarios.yaml', import.meta.url), 'utf8')) as Readonly<
  Record<string, readonly Step[]>
>

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

async function play(world: World, step: Step): Promise<void> {
  if (typeof step === 'string') return void (await world.play(step))
  const { says, for: heldFor, expect: expected, ...act } = step
  if (expected !== undefined) return expectSeen(world, expected as Record<string, unknown>)
  expect(Object.keys(act), 'a step has one word').toHaveLength(1)
  const answer = await world.play(act)
  const about = `the answer to ${JSON.stringify(act)}`
  expect(answer.says, about).toBe(says)
  if (heldFor !== undefined) expect(answer.for, about).toBe(heldFor)
}

// The daemon imports them when it first needs them; the fake clock cannot wait for that.
beforeAll(() => Promise.all([import('p-retry'), import('../../src/share/share.ts')]))

test.for(Object.entries(scenarios))('%s', async ([, steps]) => {
  const world = await createWorld()
  try {
    for (const step of steps) await play(world, step)
  } finally {
    await world.end()
  }
})
