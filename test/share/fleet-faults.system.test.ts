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
async function allAre(state: string, hosts: readonly Daemon[]): Promise<void> {
  const areAll = async (): Promise<boolean> => {
    const statuses = await askAll(hosts, 'status.get')
    return statuses.every(({ share }) => (share as { state: string }).state === state)
  }
  await expectUntil(`all to be ${state}`, areAll)
}
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
    await allAre('alone', hosts)
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

  test('loses no token with the host that asks: the others have one once its lease is over', async () => {
    const hosts = await startHosts(HOSTS, settings)
    const before = await oneToken(hosts)
    service.answer(() => undefined)
    const [asker, ...others] = hosts as [Daemon, ...Daemon[]]
    asker.process.kill('SIGUSR2')
    await service.arrived(2)
    await asker.end('SIGKILL')
    service.answer(service.token)
    others[0]!.process.kill('SIGUSR2')
    await oneToken(others, { not: before })
    const again = await startHost('host-1', settings, asker)
    await oneToken([again, ...others], { not: before })
    expect(service.requests).toHaveLength(3)
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
  async function startSentinel() {
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
    const isFound = () => sentinel.cli('sentinel', 'replicas', 'fleet').includes(String(replicaPort))
    await expectUntil('the sentinel', isFound, { withinMs: 30_000 })
    return { master, masterPort, sentinel }
  }

  test.each([
    ['killed', (master: RedisServer) => master.kill()],
    ['hung', (master: RedisServer) => Promise.resolve(master.signal('SIGSTOP'))],
  ])('the master is %s: all agree on the new one', async (_how, fail) => {
    const { master, masterPort, sentinel } = await startSentinel()
    const share = { timeout: '2s', sentinel: { name: 'fleet' } }
    const hosts = await startHosts(HOSTS, { ...settings, redis: sentinel, share })
    const before = await oneToken(hosts)
    await fail(master)
    const isFailedOver = () =>
      !sentinel.cli('sentinel', 'get-master-addr-by-name', 'fleet').includes(String(masterPort))
    await expectUntil('the failover', isFailedOver, { withinMs: 30_000 })
    await allAre('connected', hosts)
    const [outcome] = await refresh(hosts[0] as Daemon)
    expect(outcome).toMatchObject({ outcome: 'ok' })
    await oneToken(hosts, { not: before, withinMs: 40_000 })
    expect(service.requests.length).toBeLessThanOrEqual(4)
  })
})
