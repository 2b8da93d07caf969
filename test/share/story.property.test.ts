// Random stories of a fleet: whatever happens to hosts, store and service, in the end all hosts have one token, and no host went without one needlessly.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { StoreError } from '../../src/share/store.ts'
import { createShareWorld, tokensOf, type Host, type ShareWorld } from '../support/share-world.ts'

const MINUTE_MS = 60_000
const LIFE_MS = 3_600_000

type Step =
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'operator' | 'reject' | 'stop'; readonly host: number }
  | { readonly do: 'start' | 'flush' | 'lose' | 'find' | 'mute' | 'unmute' | 'endLease' }

const anyStep: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('wait' as const),
      ms: fc.integer({ min: 1, max: 25 * MINUTE_MS }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constantFrom('operator' as const, 'reject' as const), host: fc.nat(9) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('stop' as const), host: fc.nat(9) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom(
        'start' as const,
        'flush' as const,
        'lose' as const,
        'find' as const,
        'mute' as const,
        'unmute' as const,
        'endLease' as const,
      ),
    }),
  },
)

async function play(world: ShareWorld, steps: readonly Step[]): Promise<Host[]> {
  const hosts = world.hosts(3)
  const at = (index: number): Host => hosts[index % hosts.length] as Host
  await world.clock.advance(1_000)
  for (const step of steps) {
    switch (step.do) {
      case 'wait':
        await wait(world, hosts, step.ms)
        break
      case 'operator':
        void at(step.host).keeper.refresh(new AbortController().signal)
        break
      case 'reject':
        at(step.host).keeper.reject(at(step.host).keeper.state().token?.fingerprint ?? '')
        break
      case 'stop':
        if (hosts.length > 1) await hosts.splice(step.host % hosts.length, 1)[0]?.stop()
        break
      case 'start':
        if (hosts.length < 6) hosts.push(world.host())
        break
      case 'flush':
        world.server.flush()
        break
      case 'lose':
        world.server.fail(new StoreError('lost', 'connect ECONNREFUSED'))
        break
      case 'find':
        world.server.fail(null)
        break
      case 'endLease':
        world.server.endLease()
        break
      case 'mute':
      case 'unmute':
        world.server.push(step.do === 'unmute')
    }
    // A new host without a store waits its turn, of at most ten seconds.
    await wait(world, hosts, 11_000, { isChecked: false })
  }
  return hosts
}

/** A host that has had a token has one as long as the service gives some. */
async function wait(
  world: ShareWorld,
  hosts: readonly Host[],
  ms: number,
  { isChecked = true } = {},
): Promise<void> {
  for (let leftMs = ms; leftMs > 0; leftMs -= MINUTE_MS) {
    await world.clock.advance(Math.min(leftMs, MINUTE_MS))
    if (isChecked) for (const host of hosts) expect(host.token(), host.name).not.toBeNull()
  }
}

test(
  'a fleet agrees on one token within a minute once store and pushes are back, with few requests',
  { timeout: 120_000 },
  async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(anyStep, { maxLength: 12 }), fc.nat(1_000), async (steps, seed) => {
        const world = createShareWorld({ lifeSeconds: LIFE_MS / 1_000, seed })
        try {
          const hosts = await play(world, steps)
          world.server.fail(null)
          world.server.push(true)
          await world.clock.advance(MINUTE_MS)
          expect(tokensOf(hosts)).toHaveLength(1)
          expect(hosts[0]?.token()).not.toBeNull()
          const before = world.asked.length
          await world.clock.advance(30 * MINUTE_MS)
          expect(world.asked.length - before).toBeLessThanOrEqual(1)
          expect(tokensOf(hosts)).toHaveLength(1)
        } finally {
          await world.stop()
        }
      }),
      { numRuns: 60 },
    )
  },
)
