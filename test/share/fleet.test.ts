// The fleet across reloads: a session with the same credentials goes on with what the one before knew.
import { expect, onTestFinished, test } from 'vitest'
import type { Config } from '../../src/config/config.ts'
import { standardService } from '../../src/config/service.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createFleet } from '../../src/share/fleet.ts'
import { settingsOf } from '../support/redis.ts'
import { expectUntil } from '../support/until.ts'

const share = { ...settingsOf({ address: { host: '127.0.0.1', port: 1 } }), key: null, host: 'this' }
const config = {
  baseUrl: 'https://service.test',
  service: standardService('https://service.test'),
  credentials: { apiKey: new Secret('key'), apiSecret: new Secret('secret') },
  request: { timeoutMs: 1_000 },
  retry: { initialDelayMs: 1_000, maxDelayMs: 1_000 },
  share: { ...share, asks: true, whenAlone: 'fetch' },
} as Config

test('a reload keeps what is known about the same credentials, and forgets it with others', async () => {
  const fleet = createFleet({
    clock: createSystemClock(),
    random: () => 0,
    log: () => undefined,
    saved: () => ({ fence: 5, hosts: 3 }),
    keeper: {
      offer: () => false,
      usableUntilMs: () => null,
      assumedLifeMs: () => 0,
      rejectedAgeMs: () => null,
      holdsOthersToken: () => false,
      token: () => null,
      isRefused: () => true,
    },
  })
  const stop = new AbortController()
  const use = (credentialsId: string): void =>
    fleet.sharing(config, credentialsId, () => Promise.reject(new Error('Nothing asks'))).use()
  const saved = () => expectUntil('the session', () => fleet.saved() ?? undefined)
  use('first')
  const running = fleet.run(stop.signal)
  onTestFinished(async () => {
    stop.abort()
    await running
  })
  expect(await saved()).toEqual({ fence: 5, hosts: 3 })
  use('first')
  expect(await saved()).toEqual({ fence: 5, hosts: 3 })
  use('second')
  expect(await saved()).toEqual({ fence: 0, hosts: 0 })
})
