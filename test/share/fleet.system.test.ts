// One token for a fleet, with 20 real daemons, a real redis-server and a service on loopback.
import { setTimeout as sleep } from 'node:timers/promises'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import {
  askAll,
  lagsOf,
  oneToken,
  recordsOf,
  startHost,
  startHosts,
  startTokenService,
} from '../support/fleet.ts'
import { alertFile, tokenFile } from '../support/daemon.ts'
import { isWithoutRedis, startRedis, type RedisServer } from '../support/redis.ts'
import { accountInactive } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

const withoutRedis = isWithoutRedis('test/share/fleet')
const HOSTS = 20
/** Twenty programs that start at once on two busy processors take their time to connect. */
const PATIENT = { timeout: '5s' }
let redis: RedisServer
beforeEach(async () => {
  if (withoutRedis) return
  redis = await startRedis()
  onTestFinished(() => redis.stop())
})

describe.skipIf(withoutRedis)('20 daemons', () => {
  test(
    'boot with one request, rotate ten times with one each, and have the new token by a message',
    { timeout: 120_000 },
    async () => {
      const service = await startTokenService(6)
      const hosts = await startHosts(HOSTS, { redis, baseUrl: service.url, share: PATIENT })
      await oneToken(hosts)
      expect(service.requests).toHaveLength(1)
      await expectUntil('ten rotations', () => recordsOf(hosts, 'share-asked').length >= 11, {
        withinMs: 90_000,
      })
      await oneToken(hosts)
      const { length } = service.requests
      expect(length - recordsOf(hosts, 'share-asked').length).toBeLessThanOrEqual(1)
      const lags = lagsOf(hosts)
      const quantile = (share: number): number => lags[Math.floor(share * (lags.length - 1))] ?? 0
      process.stdout.write(
        `${HOSTS} daemons: ${length} requests for the boot and ${length - 1} rotations, ` +
          `others after ${quantile(0.5)} ms (p50), ${quantile(0.99)} ms (p99)\n`,
      )
      expect(lags.length).toBeGreaterThan(9 * (HOSTS - 1))
      // By the message, and not by the look that comes every 15 s.
      expect(quantile(0.5)).toBeLessThanOrEqual(1_000)
      expect(quantile(0.99)).toBeLessThanOrEqual(5_000)
      expect(recordsOf(hosts, 'share-lost')).toEqual([])
      const [status] = await askAll(hosts.slice(0, 1), 'status.get')
      expect(status?.['share']).toMatchObject({ state: 'connected', hosts: HOSTS, lastError: null })
    },
  )

  test(
    'ask once for 200 reports, 20 operators and a refusal, of which one host notifies people',
    { timeout: 120_000 },
    async () => {
      const service = await startTokenService(3_600)
      const hosts = await startHosts(HOSTS, { redis, baseUrl: service.url, share: PATIENT })
      const first = await oneToken(hosts)
      expect(service.requests).toHaveLength(1)

      const reports = Array.from({ length: 10 }, async () =>
        askAll(hosts, 'token.reject', () => ({ accessToken: first })),
      )
      await Promise.all(reports)
      // Clients cause one request in 30 s, counted from the last answer.
      const second = await oneToken(hosts, { not: first, withinMs: 60_000 })
      expect(service.requests).toHaveLength(2)

      service.answer(async () => {
        await sleep(1_500)
        return service.token()
      })
      const outcomes = await askAll(hosts, 'refresh.request')
      expect(outcomes.map(({ outcome }) => outcome)).toEqual(hosts.map(() => 'ok'))
      await oneToken(hosts, { not: second })
      // Those who act after a request was sent share the next one.
      const requests = service.requests.length
      expect(requests).toBeLessThanOrEqual(4)

      service.answer(accountInactive)
      hosts[3]?.process.kill('SIGUSR2')
      await expectUntil('the refusal everywhere', () => hosts.every((host) => alertFile(host) !== undefined))
      const alerts = recordsOf(hosts, 'alert')
      expect(alerts.filter(({ level }) => level === 'alert')).toHaveLength(1)
      expect(alerts.filter(({ level }) => level === 'error')).toHaveLength(HOSTS - 1)
      for (const host of hosts)
        expect(alertFile(host)?.['askedBy']).toBe(host === hosts[3] ? undefined : 'host-4')
      expect(service.requests).toHaveLength(requests + 1)

      const late = await startHost('late', { redis, baseUrl: service.url })
      await expectUntil('the refusal on the late host', () => alertFile(late) !== undefined)
      // The record is the refusal: a host that comes then has no token.
      expect(tokenFile(late)).toBeUndefined()
      expect(await hosts[5]?.end()).toBe(0)
      const again = await startHost('host-6', { redis, baseUrl: service.url }, hosts[5])
      await expectUntil('the refusal after a restart', () => again.records('alert').length > 0)
      await again.logged('share-connected')
      expect(service.requests).toHaveLength(requests + 1)

      service.answer(service.token)
      const running = [...hosts.filter((host) => host !== hosts[5]), late, again]
      const [lifted] = await askAll([late], 'refresh.request')
      expect(lifted).toMatchObject({ outcome: 'ok' })
      await expectUntil('no alert anywhere', () => running.every((host) => alertFile(host) === undefined))
      await oneToken(running)
      expect(service.requests).toHaveLength(requests + 2)
    },
  )
})
