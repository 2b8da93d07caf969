import { expect, it, onTestFinished, vi } from 'vitest'
import type { Config } from '../../src/config/config.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createFleet, type Sharing } from '../../src/share/fleet.ts'
import { createSeal, type Seal } from '../../src/share/seal.ts'
import type { Attempt, FetchOutcome } from '../../src/token/outcome.ts'
import { initialState, type TokenState } from '../../src/token/state.ts'
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

const sealOf = (secret: string): Seal => createSeal({ ...configOf(secret), description: null, key: null })

function sharing({
  saved = { fence: 0, hosts: 0 },
  state: change = {},
}: { saved?: { fence: number; hosts: number }; state?: Partial<TokenState> } = {}) {
  const { clock, server } = createShareWorld()
  /** An answer of the store waits for it. */
  const read = Promise.withResolvers<void>()
  const closed: string[] = []
  const offer = vi.fn<(outcome: FetchOutcome) => boolean>(() => true)
  const state = { ...initialState({ baseUrl, credentialsId: 'one' }, clock.now()), ...change }
  const fleet = createFleet({
    clock,
    random: () => 0.5,
    log: () => undefined,
    openStore: (_config, { accountKey }) => {
      const store = server.connect('this')
      return Promise.resolve({
        ...store,
        async read(known) {
          const contents = await store.read(known)
          await read.promise
          return contents
        },
        close() {
          closed.push(accountKey)
          store.close()
        },
      })
    },
    saved: () => saved,
    keeper: { offer, state: () => state, policy: () => POLICY },
  })
  const session = (secret: string): Sharing => {
    const fetchToken = () => new Promise<FetchOutcome>(() => undefined)
    return fleet.sharing(configOf(secret) as unknown as Config, secret, fetchToken)
  }
  const stop = new AbortController()
  const running: { promise?: Promise<void> } = {}
  onTestFinished(async () => {
    stop.abort()
    read.resolve()
    await running.promise
  })
  return {
    clock,
    server,
    fleet,
    offer,
    read,
    closed,
    session,
    use: async (secret: string): Promise<void> => {
      session(secret).use()
      running.promise ??= fleet.run(stop.signal)
      await clock.settle()
    },
  }
}

it.each([
  ['is offered', 'one', 1],
  ['is not offered after a reload with other credentials', 'other', 0],
])('a record whose read was under way %s', async (_what, last, offers) => {
  const { clock, server, offer, read, use } = sharing()
  const atMs = clock.now().wallMs
  const head = { fence: atMs, atMs, notBeforeMs: 0 }
  const seal = sealOf('one')
  const life = { lifeMs: 3_600_000, expirySource: 'jwt', ageMs: 0 } as const
  server.plant({
    ...head,
    sealed: seal.encrypt({ kind: 'ok', by: 'other', accessToken: 't', ...life }, head),
  })
  await use('one')
  await use(last)
  read.resolve()
  await clock.settle()
  expect(offer).toHaveBeenCalledTimes(offers)
})

it('credentials that are not used after all leave the session as it is, and their own connection is closed', async () => {
  const { clock, fleet, closed, session, use } = sharing({ saved: { fence: 0, hosts: 214 } })
  await use('one')
  session('one').drop()
  const other = session('other')
  void other.fetchToken(new AbortController().signal, {
    cause: 'reload',
    beforeRequest: () => Promise.resolve(),
  } as unknown as Attempt)
  await clock.settle()
  expect(closed).toEqual([])
  other.drop()
  await clock.advance(2 * SHARE.timeoutMs)
  expect(closed).toEqual([sealOf('other').accountKey])
  expect(fleet.status()).toMatchObject({ hosts: 214 })
})
