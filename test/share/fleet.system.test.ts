// One token for a fleet, with 20 real daemons, a real redis-server and a service on loopback.
import { expect, onTestFinished, test } from 'vitest'
import { askAll, oneToken, recordsOf, startHosts, startTokenService } from '../support/fleet.ts'
import { isWithoutRedis, startRedis } from '../support/redis.ts'
import { expectUntil } from '../support/until.ts'

test.skipIf(isWithoutRedis('test/share/fleet'))(
  '20 daemons boot with one request, rotate ten times with one each, and have the new token by a message',
  { timeout: 120_000 },
  async () => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const service = await startTokenService(6)
    // Twenty programs that start at once on two busy processors take their time to connect.
    const share = { timeout: '5s' }
    const hosts = await startHosts(20, { redis, baseUrl: service.url, share })
    await oneToken(hosts)
    expect(service.requests).toHaveLength(1)
    const isRotated = (): boolean => recordsOf(hosts, 'share-asked').length >= 11
    await expectUntil('ten rotations', isRotated, { withinMs: 90_000 })
    await oneToken(hosts)
    const { length } = service.requests
    expect(length - recordsOf(hosts, 'share-asked').length).toBeLessThanOrEqual(1)
    // The ages at which answers came to the hosts that had not asked.
    const lags = recordsOf(hosts, 'share-adopted')
      .map(({ ageMs }) => Number(ageMs))
      .toSorted((one, other) => one - other)
    const quantile = (part: number): number => lags[Math.floor(part * (lags.length - 1))] ?? 0
    process.stdout.write(
      `20 daemons: ${length} requests for the boot and ${length - 1} rotations, ` +
        `others after ${quantile(0.5)} ms (p50), ${quantile(0.99)} ms (p99)\n`,
    )
    expect(lags.length).toBeGreaterThan(9 * 19)
    // By the message, and not by the look that comes every 15 s.
    expect(quantile(0.5)).toBeLessThanOrEqual(1_000)
    expect(quantile(0.99)).toBeLessThanOrEqual(5_000)
    expect(recordsOf(hosts, 'share-lost')).toEqual([])
    const [status] = await askAll(hosts.slice(0, 1), 'status.get')
    expect(status?.['share']).toMatchObject({ state: 'connected', hosts: 20, lastError: null })
  },
)
