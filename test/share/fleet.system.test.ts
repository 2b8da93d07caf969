// One token for a fleet, with real daemons, a real redis-server or redis-sentinel and a service on loopback.
import { setTimeout as sleep } from 'node:timers/promises'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import type { Daemon } from '../support/daemon.ts'
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
import { accountInactive } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

const withoutRedis = isWithoutRedis('test/share/fleet')
let redis: RedisServer
let service: Awaited<ReturnType<typeof startTokenService>>
let settings: FleetSettings
async function begin({ lifeS = 3_600 } = {}): Promise<void> {
  service = await startTokenService(lifeS)
  // Twenty programs that start at once on two busy processors take their time to connect.
  settings = { redis, baseUrl: service.url, share: { timeout: '5s' } }
}
beforeEach(async () => {
  if (withoutRedis) return
  redis = await startRedis()
  onTestFinished(() => redis.stop())
  await begin()
})
const say = (row: string, figure: string | number): unknown =>
  process.stdout.write(`fleet: ${row}: ${figure}\n`)
const refresh = (hosts: readonly Daemon[]): Promise<Record<string, unknown>[]> =>
  askAll(hosts, 'refresh.request')
const statesOf = async (hosts: readonly Daemon[]): Promise<unknown[]> =>
  (await askAll(hosts, 'status.get')).map(({ share }) => (share as { state: string }).state)
const allAre = (state: string, hosts: readonly Daemon[]): Promise<boolean> =>
  expectUntil(`all to be ${state}`, async () => (await statesOf(hosts)).every((one) => one === state))
const busy = { status: 429, headers: { 'retry-after': '20' } }

describe.skipIf(withoutRedis)('20 daemons', { timeout: 180_000 }, () => {
  test('boot with one request, rotate ten times with one each, and answer 20 operators with one', async () => {
    await begin({ lifeS: 8 })
    const hosts = await startHosts(20, settings)
    await oneToken(hosts)
    say('requests for the boot of 20 hosts', service.requests.length)
    expect(service.requests).toHaveLength(1)
    await expectUntil('ten rotations', () => service.requests.length >= 11, { withinMs: 90_000 })
    const gaps = service.requests.slice(1).map(({ atMs }, index) => atMs - service.requests[index]!.atMs)
    // Each rotation is one request: the next one comes when a part of the life is over.
    say('shortest time between two requests of ten rotations, life 8 s', `${Math.min(...gaps)} ms`)
    expect(Math.min(...gaps)).toBeGreaterThan(2_000)
    const lags = recordsOf(hosts, 'share-adopted')
      .map(({ ageMs }) => Number(ageMs))
      .toSorted((one, other) => one - other)
    say('the others have the token after (p50)', `${lags[Math.floor(lags.length / 2)]} ms`)
    expect(recordsOf(hosts, 'share-lost')).toEqual([])
  })

  test('answer operators, a 429, a refusal and newcomers with one request, one, one and none', async () => {
    const hosts = await startHosts(20, settings)
    const first = await oneToken(hosts)
    const outcomes = await refresh(hosts)
    expect(outcomes.every(({ outcome }) => outcome === 'ok')).toBe(true)
    say('requests for operators on 20 hosts', service.requests.length - 1)
    expect(service.requests.length).toBeLessThanOrEqual(3)
    await oneToken(hosts, { not: first })
    let before = service.requests.length
    service.answer(busy)
    await refresh(hosts.slice(0, 1))
    const late = await startHost('late', { ...settings })
    await sleep(3_000)
    say('requests for a 429, and within it', service.requests.length - before)
    expect(service.requests.length - before).toBe(1)
    before = service.requests.length
    service.answer(accountInactive)
    await refresh([hosts[1]!])
    const newcomers = await startHosts(3, settings)
    await Promise.all([...newcomers, late].map((host) => host.listening()))
    await expectUntil('refused newcomers', async () =>
      (await askAll([...newcomers, late], 'status.get')).every(({ state }) => state === 'refused'),
    )
    say('requests for a refusal, with three hosts that come', service.requests.length - before)
    expect(service.requests.length - before).toBe(1)
    const alerts = recordsOf([...hosts, ...newcomers, late], 'alert')
    expect(alerts.filter(({ level }) => level === 'alert')).toHaveLength(1)
    service.answer(service.token)
    await refresh([newcomers[0]!])
    await oneToken([...hosts, ...newcomers, late])
    expect(service.requests.length - before).toBe(2)
  })
})

describe.skipIf(withoutRedis)('four daemons', { timeout: 180_000 }, () => {
  test.each([
    ['flushed', () => Promise.resolve(redis.cli('flushall'))],
    ['restarted empty', () => redis.kill().then(() => redis.start())],
  ])('have Redis %s: a host fills it again, and a host that comes needs no request', async (what, fail) => {
    const hosts = await startHosts(4, settings)
    const token = await oneToken(hosts)
    await fail()
    await expectUntil('the record', () => redis.cli('keys', '*').includes('record'), { withinMs: 30_000 })
    const late = await startHost('late', settings)
    expect(await oneToken([...hosts, late])).toBe(token)
    say(`requests with Redis ${what}`, service.requests.length - 1)
    expect(service.requests).toHaveLength(1)
  })

  test.each([
    ['away', (): unknown => redis.kill(), (): unknown => redis.start()],
    ['hung', (): unknown => redis.signal('SIGSTOP'), (): unknown => redis.signal('SIGCONT')],
    ['read-only', () => redis.cli('replicaof', '127.0.0.1', '1'), () => redis.cli('replicaof', 'no', 'one')],
    [
      'full',
      () => redis.cli('config', 'set', 'maxmemory', '1'),
      () => redis.cli('config', 'set', 'maxmemory', '0'),
    ],
  ])('have Redis %s for 12 s: none is without a token, and one token follows', async (what, fail, mend) => {
    await begin({ lifeS: 12 })
    const hosts = await startHosts(4, {
      ...settings,
      share: { timeout: '500ms' },
      config: { request: { timeout: '1s' } },
    })
    await oneToken(hosts)
    let without = 0
    const until = async (endMs: number): Promise<void> => {
      for (; Date.now() < endMs; await sleep(50)) if (tokensOf(hosts).includes(undefined)) without += 1
    }
    const before = service.requests.length
    onTestFinished(() => redis.signal('SIGCONT'))
    await fail()
    await until(Date.now() + 12_000)
    const requests = service.requests.length - before
    await mend()
    await until(Date.now() + 15_000)
    const tokens = new Set((await askAll(hosts, 'token.get')).map(({ accessToken }) => accessToken)).size
    say(
      `Redis ${what} for 12 s, life 12 s`,
      `${requests} requests of 4 hosts, ${without} checks without a token, ${tokens} token(s) 15 s after`,
    )
    expect(without).toBe(0)
    // A host alone asks twice in its life at most.
    expect(requests).toBeLessThanOrEqual(4 * 4)
    await oneToken(hosts, { withinMs: 10_000 })
  })

  test('lose no token with the asker, killed or stopped at any moment', async () => {
    const share = { timeout: '500ms' }
    const hosts = await startHosts(4, { ...settings, share, config: { request: { timeout: '1s' } } })
    let requests = service.requests.length
    service.answer(async () => sleep(20).then(service.token))
    for (let turn = 0; turn < 6; turn += 1) {
      const before = await oneToken(hosts)
      const [asker, ...others] = hosts as [Daemon, ...Daemon[]]
      asker.process.kill('SIGUSR2')
      // The gathering of operators, the request and the write take 0.4 s.
      await sleep(turn * 80)
      const isKilled = turn % 2 === 0
      if (isKilled) await asker.end('SIGKILL')
      else asker.process.kill('SIGSTOP')
      const [outcome] = await refresh(others.slice(0, 1))
      expect(outcome).toMatchObject({ outcome: 'ok' })
      if (isKilled)
        hosts[0] = await startHost(
          'again',
          { ...settings, share, config: { request: { timeout: '1s' } } },
          asker,
        )
      else asker.process.kill('SIGCONT')
      await oneToken(hosts, { not: before, withinMs: 40_000 })
      expect(service.requests.length - requests).toBeLessThanOrEqual(2)
      requests = service.requests.length
    }
    say('the asker killed or stopped at 6 moments', `${requests - 1} requests for 12 acts`)
  })

  test.each([
    ['killed', (master: RedisServer) => master.kill()],
    ['hung', (master: RedisServer) => Promise.resolve(master.signal('SIGSTOP'))],
  ])('have a master of Sentinel %s: all agree on the new one', async (what, fail) => {
    const [masterPort, replicaPort, sentinelPort] = [await freePort(), await freePort(), await freePort()]
    const startServer = async (options: Parameters<typeof startRedis>[0]): Promise<RedisServer> => {
      const server = await startRedis(options)
      onTestFinished(() => server.stop())
      return server
    }
    const master = await startServer({ port: masterPort })
    const replica = await startServer({
      port: replicaPort,
      args: ['--replicaof', '127.0.0.1', String(masterPort)],
    })
    await expectUntil('the replica', () =>
      replica.cli('info', 'replication').includes('master_link_status:up'),
    )
    const settingsOfSentinel = ['down-after-milliseconds fleet 1500', 'failover-timeout fleet 10000']
    const lines = [`monitor fleet 127.0.0.1 ${masterPort} 1`, ...settingsOfSentinel]
    const sentinel = await startServer({
      port: sentinelPort,
      sentinel: lines.map((line) => `sentinel ${line}`).join('\n'),
    })
    await expectUntil(
      'the sentinel',
      () => sentinel.cli('sentinel', 'replicas', 'fleet').includes(String(replicaPort)),
      { withinMs: 30_000 },
    )
    const share = { timeout: '2s', sentinel: { name: 'fleet' } }
    const hosts = await startHosts(4, { ...settings, redis: sentinel, share })
    const before = await oneToken(hosts)
    await fail(master)
    const isFailedOver = () =>
      !sentinel.cli('sentinel', 'get-master-addr-by-name', 'fleet').includes(String(masterPort))
    await expectUntil('the failover', isFailedOver, { withinMs: 30_000 })
    await allAre('connected', hosts)
    expect((await refresh(hosts.slice(0, 1)))[0]).toMatchObject({ outcome: 'ok' })
    await oneToken(hosts, { not: before, withinMs: 40_000 })
    say(`requests with the master ${what}`, service.requests.length - 2)
    expect(service.requests.length).toBeLessThanOrEqual(4)
  })
})
