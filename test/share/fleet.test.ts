import { expect, it, onTestFinished, vi } from 'vitest'
import type { Config } from '../../src/config/config.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createFleet } from '../../src/share/fleet.ts'
import { createSeal } from '../../src/share/seal.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { initialState } from '../../src/token/state.ts'
import { createShareWorld, POLICY, SHARE } from '../support/share-world.ts'

const baseUrl = 'https://service.test'
const configOf = (apiSecret: string) => ({
  baseUrl,
  service: { description: null },
  credentials: { apiKey: new Secret('key'), apiSecret: new Secret(apiSecret) },
  share: { ...SHARE, host: 'this', key: null },
  request: { timeoutMs: 15_000 },
  retry: POLICY,
})

it.each([
  ['is offered', 'one', 1],
  ['is not offered after a reload with other credentials', 'other', 0],
])('a record whose read was under way %s', async (_what, last, offers) => {
  const { clock, server } = createShareWorld()
  const atMs = clock.now().wallMs
  const head = { fence: atMs, atMs, notBeforeMs: 0 }
  const seal = createSeal({ ...configOf('one'), description: null, key: null })
  const life = { lifeMs: 3_600_000, expirySource: 'jwt', ageMs: 0 } as const
  server.plant({
    ...head,
    sealed: seal.encrypt({ kind: 'ok', by: 'other', accessToken: 't', ...life }, head),
  })
  const store = server.connect('this')
  const read = Promise.withResolvers<void>()
  const offer = vi.fn<(outcome: FetchOutcome) => boolean>(() => true)
  const state = initialState({ baseUrl, credentialsId: 'one' }, clock.now())
  const fleet = createFleet({
    clock,
    random: () => 0.5,
    log: () => undefined,
    openStore: () =>
      Promise.resolve({
        ...store,
        async read(known) {
          const contents = await store.read(known)
          await read.promise
          return contents
        },
      }),
    saved: () => ({ fence: 0, hosts: 0 }),
    keeper: { offer, state: () => state, policy: () => POLICY },
  })
  const use = (secret: string): void => {
    const fetchToken = () => new Promise<FetchOutcome>(() => undefined)
    fleet.sharing(configOf(secret) as unknown as Config, secret, fetchToken).use()
  }
  const stop = new AbortController()
  use('one')
  const running = fleet.run(stop.signal)
  onTestFinished(async () => {
    stop.abort()
    await running
  })
  await clock.settle()
  use(last)
  read.resolve()
  await clock.settle()
  expect(offer).toHaveBeenCalledTimes(offers)
})
