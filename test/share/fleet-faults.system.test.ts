// A fleet of real daemons when things fail: the asker, Redis, the way between them, and who writes to Redis.
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { tokenFile, type Daemon } from '../support/daemon.ts'
import {
  askAll,
  oneToken,
  recordsOf,
  startHost,
  startHosts,
  startTokenService,
  tokensOf,
  type FleetSettings,
} from '../support/fleet.ts'
import { freePort, isWithoutRedis, startRedis, type RedisServer } from '../support/redis.ts'
import { expectUntil } from '../support/until.ts'

const withoutRedis = isWithoutRedis('test/share/fleet-faults')
const HOSTS = 4
let redis: RedisServer
let service: Awaited<ReturnType<typeof startTokenService>>
let settings: FleetSettings
beforeEach(async () => {
  if (withoutRedis) return
  redis = await startRedis()
  onTestFinished(() => redis.stop())
  service = await startTokenService(3_600)
  settings = { redis, baseUrl: service.url, share: { timeout: '2s' } }
})

const refresh = (host: Daemon): Promise<Record<string, unknown>[]> => askAll([host], 'refresh.request')
describe.skipIf(withoutRedis)('Redis', { timeout: 120_000 }, () => {
  test.each([
    ['flushed', false],
    ['restarted without persistence', true],
  ])('is %s: a host fills it again, and a new host needs no request', async (_how, isRestarted) => {
    const hosts = await startHosts(HOSTS, settings)
    const token = await oneToken(hosts)
    if (isRestarted) {
      await redis.kill()
      await expectUntil('the loss', () => recordsOf(hosts, 'share-lost').length === HOSTS, {
        withinMs: 30_000,
      })
      await redis.start()
    } else redis.cli('flushall')
    await expectUntil('the repair', () => recordsOf(hosts, 'share-repaired').length > 0, { withinMs: 30_000 })
    const late = await startHost('late', settings)
    expect(await oneToken([...hosts, late])).toBe(token)
    expect(service.requests).toHaveLength(1)
    expect(recordsOf(hosts, 'share-lost')).toHaveLength(isRestarted ? HOSTS : 0)
  })

  test('hangs: readers do not notice, an operator is served, and all agree when it is back', async () => {
    const hosts = await startHosts(HOSTS, settings)
    const before = await oneToken(hosts)
    onTestFinished(() => redis.signal('SIGCONT'))
    redis.signal('SIGSTOP')
    const readAtMs = Date.now()
    const read = await askAll(hosts, 'token.get')
    expect(read.map(({ accessToken }) => accessToken)).toEqual(hosts.map(() => before))
    // Less than `share.timeout`.
    expect(Date.now() - readAtMs).toBeLessThan(2_000)
    // Without an attempt: the connection that listens notices it.
    await expectUntil('each host to say so', async () => {
      const statuses = await askAll(hosts, 'status.get')
      return statuses.every(({ share }) => (share as { state: string }).state === 'alone')
    })
    const startMs = Date.now()
    const [outcome] = await refresh(hosts[0] as Daemon)
    expect(outcome).toMatchObject({ outcome: 'ok' })
    expect(Date.now() - startMs).toBeLessThan(6_000)
    await expectUntil('another token on one host', () => tokensOf(hosts).length === 2)
    redis.signal('SIGCONT')
    await oneToken(hosts, { not: before, withinMs: 40_000 })
    expect(service.requests).toHaveLength(2)
    const changes = (hosts[0] as Daemon)
      .log()
      .filter(({ event }) => event === 'share-lost' || event === 'share-connected')
    expect(changes[1]).toMatchObject({ event: 'share-lost', remedy: expect.any(String) })
    // Once for each time: a server that goes on is slow to begin with, and may be so again.
    for (const [index, { event }] of changes.entries())
      expect(event === 'share-connected').toBe(index % 2 === 0)
  })

  test('gets another password: hosts say so with the rights that they need, and serve on', async () => {
    redis.cli('config', 'set', 'requirepass', 'right-password')
    const share = { timeout: '2s', password: 'wrong-password' }
    const hosts = await startHosts(2, { ...settings, share })
    await expectUntil('the records', () => recordsOf(hosts, 'share-denied').length === 2)
    await expectUntil('a token on each', () => hosts.every((host) => tokenFile(host) !== undefined), {
      withinMs: 30_000,
    })
    const [status] = await askAll(hosts.slice(0, 1), 'status.get')
    expect(status?.['share']).toMatchObject({
      state: 'denied',
      lastError: expect.stringContaining('WRONGPASS'),
    })
    expect(recordsOf(hosts, 'share-denied')[0]?.['remedy']).toContain('ACL SETUSER')
    for (const host of hosts) expect(host.stderr()).not.toMatch(/wrong-password|right-password/)
  })
})

describe.skipIf(withoutRedis)('Sentinel', { timeout: 150_000 }, () => {
  async function startSentinel(): Promise<{
    master: RedisServer
    replica: RedisServer
    sentinel: RedisServer
  }> {
    const [masterPort, replicaPort, sentinelPort] = [await freePort(), await freePort(), await freePort()]
    const master = await startRedis({ port: masterPort })
    onTestFinished(() => master.stop())
    const replica = await startRedis({
      port: replicaPort,
      args: ['--replicaof', '127.0.0.1', String(masterPort)],
    })
    onTestFinished(() => replica.stop())
    await expectUntil('the replica', () =>
      replica.cli('info', 'replication').includes('master_link_status:up'),
    )
    const sentinel = await startRedis({
      port: sentinelPort,
      sentinel: [
        `sentinel monitor fleet 127.0.0.1 ${masterPort} 1`,
        'sentinel down-after-milliseconds fleet 1500',
        'sentinel failover-timeout fleet 10000',
      ].join('\n'),
    })
    onTestFinished(() => sentinel.stop())
    await expectUntil(
      'the sentinel',
      () => sentinel.cli('sentinel', 'replicas', 'fleet').includes(String(replicaPort)),
      {
        withinMs: 30_000,
      },
    )
    return { master, replica, sentinel }
  }

  test.each([
    ['killed', (master: RedisServer) => master.kill()],
    ['hung', (master: RedisServer) => Promise.resolve(master.signal('SIGSTOP'))],
  ])('the master is %s: all agree on the new one', async (_how, fail) => {
    const { master, sentinel } = await startSentinel()
    const hosts = await startHosts(HOSTS, {
      redis: sentinel,
      baseUrl: service.url,
      share: { timeout: '2s', sentinel: { name: 'fleet' } },
    })
    const before = await oneToken(hosts)
    await fail(master)
    await expectUntil(
      'the failover',
      () => !sentinel.cli('sentinel', 'get-master-addr-by-name', 'fleet').includes(String(portOf(master))),
      {
        withinMs: 30_000,
      },
    )
    await expectUntil(
      'all on the new master',
      async () =>
        (await askAll(hosts, 'status.get')).every(
          ({ share }) => (share as { state: string }).state === 'connected',
        ),
      { withinMs: 40_000 },
    )
    const [outcome] = await refresh(hosts[0] as Daemon)
    expect(outcome).toMatchObject({ outcome: 'ok' })
    await oneToken(hosts, { not: before, withinMs: 40_000 })
    expect(service.requests.length).toBeLessThanOrEqual(4)
  })
})

function portOf({ address }: RedisServer): number {
  return 'port' in address ? address.port : 0
}
