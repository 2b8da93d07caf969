// All histories up to a depth, longer ones than in `exploration.test.ts`: what one test costs is printed.
import { expect, test } from 'vitest'
import { ALL, explore, WORLDS } from './exploration.ts'

const DEPTHS = { pairs: 11, life: 10, assertion: 9, postponed: 10, all: 7 } as const

test.each(Object.entries({ ...WORLDS, all: ALL }))(
  'no history of %s breaks a rule',
  { timeout: 600_000 },
  (name, world) => {
    const depth = DEPTHS[name as keyof typeof DEPTHS]
    const began = Date.now()
    const { states, broken } = explore(world, { depth })
    const seconds = Math.round((Date.now() - began) / 1_000)
    process.stdout.write(`${name}: complete to depth ${depth}, ${states} states, ${seconds} s\n`)
    expect(broken).toBeNull()
  },
)
