import { expect, it, onTestFinished, vi } from 'vitest'
import type { Config } from '../../src/config/config.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createFleet, type FleetOptions } from '../../src/share/fleet.ts'
import { createSeal } from '../../src/share/seal.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { initialState } from '../../src/token/state.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { createMemoryServer } from '../support/memory-store.ts'
import { POLICY, SHARE } from '../support/share-world.ts'

const baseUrl = 'https://service.test'
const accountOf = (apiSecret: string) => ({
  baseUrl,
  service: { description: null },
  credentials: { apiKey: new Secret('key'), apiSecret: new Secret(apiSecret) },
  share: { ...SHARE, host: 'this', key: null },
  request: { timeoutMs: 15_000 },
  retry: POLICY,
})
const configOf = (apiSecret: string) => accountOf(apiSecret) as unknown as Config

it.each([
  ['is offered', [], 1],
  ['is not offered after a reload with other credentials', ['other'], 0],
])('a record whose read was under way %s', async (_what, reloads, offers) => {
  const clock = createFakeClock()
  const read = Promise.withResolvers<void>()
  const openStore: FleetOptions['openStore'] = () => {
    const server = createMemoryServer(() => clock.now().wallMs)
    const atMs = clock.now().wallMs
    const head = { fence: atMs, atMs, notBeforeMs: 0 }
    const { share: _share, ...account } = accountOf('one')
    const seal = createSeal({ ...account, description: null, key: null })
    const life = { lifeMs: 3_600_000, expirySource: 'jwt', ageMs: 0 } as const
    server.plant({
      ...head,
      sealed: seal.encrypt({ kind: 'ok', by: 'other', accessToken: 't', ...life }, head),
    })
    const store = server.connect('this')
    return Promise.resolve({
      ...store,
      async read(known) {
        const contents = await store.read(known)
        await read.promise
        return contents
      },
    })
  }
  const offer = vi.fn<(outcome: FetchOutcome) => boolean>(() => true)
  const state = initialState({ baseUrl, credentialsId: 'one' }, clock.now())
  const fleet = createFleet({
    clock,
    random: () => 0.5,
    log: () => undefined,
    openStore,
    saved: () => ({ fence: 0, hosts: 0 }),
    keeper: { offer, state: () => state, policy: () => ({ ...POLICY }) },
  })
  const fetchToken = () => new Promise<FetchOutcome>(() => undefined)
  const life = new AbortController()
  fleet.sharing(configOf('one'), 'one', fetchToken).use()
  const running = fleet.run(life.signal)
  onTestFinished(async () => {
    life.abort()
    await running
  })
  await clock.settle()
  for (const secret of reloads) fleet.sharing(configOf(secret), secret, fetchToken).use()
  read.resolve()
  await clock.settle()
  expect(offer).toHaveBeenCalledTimes(offers)
})
