// What may concern one host costs the others nothing: real daemons, each with a client certificate of its own, a
// real redis-server, and a service that knows each by its certificate.
import { describe, expect, onTestFinished, test } from 'vitest'
import { alertFile } from '../support/daemon.ts'
import { oneToken, recordsOf, spareOthers, startKnowingService, startKnownHost } from '../support/fleet.ts'
import { isWithoutRedis, startRedis } from '../support/redis.ts'
import { accountInactive, refusing } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

const withoutRedis = isWithoutRedis('test/share/one-host')
const HOSTS = 20
const LIFE_S = 12

describe.skipIf(withoutRedis)('20 daemons with certificates of their own', () => {
  test(
    'lose nothing by one that gets 403 or is refused; when all are refused it is two requests',
    { timeout: 240_000 },
    async () => {
      const redis = await startRedis()
      onTestFinished(() => redis.stop())
      const service = await startKnowingService(LIFE_S)
      const names = Array.from({ length: HOSTS }, (_, index) => `host-${index + 1}`)
      const hosts = await Promise.all(names.map((name) => startKnownHost(name, { redis, service })))
      await oneToken(hosts)
      for (const bad of [refusing(403, 'Forbidden'), accountInactive]) {
        const asked = await spareOthers(hosts, { service, name: 'host-1', bad, rotations: 3 })
        // No more often than its own failure allows.
        expect(asked).toBeLessThanOrEqual(5)
      }

      const alerts = (): number => recordsOf(hosts, 'alert').filter(({ level }) => level === 'alert').length
      const [before, alertsBefore] = [service.asked.length, alerts()]
      service.answer(() => accountInactive)
      await expectUntil('the refusal on each', () => hosts.every((host) => alertFile(host) !== undefined), {
        withinMs: 60_000,
      })
      expect(service.asked.length - before).toBe(2)
      expect(new Set(service.asked.slice(before)).size).toBe(2)
      expect(alerts()).toBe(alertsBefore + 1)
    },
  )
})
