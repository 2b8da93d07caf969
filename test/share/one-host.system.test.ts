// What may concern one host costs the others nothing: real daemons, each with a client certificate of its own, a
// real redis-server, and a service that knows each by its certificate.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { alertFile } from '../support/daemon.ts'
import {
  oneToken,
  recordsOf,
  spareOthers,
  startHost,
  startKnowingService,
  startKnownHost,
  startTokenService,
} from '../support/fleet.ts'
import { isWithoutRedis, startRedis } from '../support/redis.ts'
import { accountInactive, refusing } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
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
      const askers = service.asked.slice(before)
      expect(askers).toHaveLength(2)
      expect(new Set(askers).size).toBe(2)
      expect(alerts()).toBe(alertsBefore + 1)
    },
  )
})

describe.skipIf(withoutRedis)('8 daemons', () => {
  test(
    'with a pair that was refused and is written again within a minute ask once, when it is over',
    { timeout: 300_000 },
    async () => {
      const redis = await startRedis()
      onTestFinished(() => redis.stop())
      const service = await startTokenService(3_600)
      const root = await tempDirectory('memory')
      const isOther = (body: string): boolean => body.includes('another-secret')
      const askedOther = () => service.requests.filter(({ body }) => isOther(body))
      service.answer(({ body }) => (isOther(body) ? accountInactive : service.token()))
      const secretOf = (name: string): string => join(root, name, 'secret')
      const write = (name: string, secret: string): void =>
        writeFileSync(secretOf(name), secret, { mode: 0o600 })
      const names = Array.from({ length: 8 }, (_, index) => `host-${index + 1}`)
      const hosts = await Promise.all(
        names.map((name) => {
          mkdirSync(join(root, name))
          write(name, 'the-first-secret')
          const credentials = { apiKey: 'key', apiSecret: { file: secretOf(name) } }
          const directory = join(root, name)
          return startHost(name, { redis, baseUrl: service.url, directory, config: { credentials } })
        }),
      )
      await oneToken(hosts)
      write('host-1', 'another-secret-1')
      await expectUntil('the refusal', () => askedOther().length === 1, { withinMs: 60_000 })
      const { length } = askedOther()
      const lastAtMs = askedOther().at(-1)!.atMs
      for (const name of names) {
        write(name, 'another-secret-1')
        await new Promise((resolve) => setTimeout(resolve, 2_000))
      }
      await expectUntil('the request', () => askedOther().length > length, { withinMs: 90_000 })
      expect(askedOther().at(-1)!.atMs - lastAtMs).toBeGreaterThanOrEqual(59_000)
      await expectUntil('the refusal on each host', () =>
        names.every((_, index) =>
          hosts[index]!.records('credentials-not-taken-over').some(({ error }) =>
            String(error).includes('account-inactive'),
          ),
        ),
      )
      expect(askedOther()).toHaveLength(length + 1)
    },
  )
})
