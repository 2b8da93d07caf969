// One token for a fleet, with real daemons, a real redis-server or redis-sentinel and a service on loopback.
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { startDaemon, tokenFile, type Daemon } from '../support/daemon.ts'
import { askOnce } from '../support/ipc-client.ts'
import { freshToken, serviceOf } from '../support/outside.ts'
import { freePort, isWithoutRedis, startRedis, type RedisServer } from '../support/redis.ts'
import { accountInactive, granting, type Service } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const withoutRedis = isWithoutRedis('test/share/fleet')
const impatient = { share: { timeout: '500ms' }, request: { timeout: '1s' } }
let redis: RedisServer
let service: Service
let lifeS: number
const token = () => granting(freshToken(lifeS))
beforeEach(async () => {
  if (withoutRedis) return
  lifeS = 3_600
  redis = await startRedis()
  service = await serviceOf(token)
})

interface Settings {
  readonly share?: object
  readonly request?: object
}
/** Starts a host of the fleet; `directory`: that of a former one. */
async function startHost({ share, request }: Settings = {}, directory?: string): Promise<Daemon> {
  // Twenty programs that start at once on two busy processors take their time to connect.
  const common = { servers: [join(redis.directory, 'redis.sock')], tls: false, timeout: '5s' }
  return startDaemon({
    directory: directory ?? (await tempDirectory('memory')),
    baseUrl: service.url,
    config: { request: { timeout: '4s', ...request }, http: false, share: { ...common, ...share } },
  })
}
const startHosts = (count: number, settings: Settings = {}): Promise<Daemon[]> =>
  Promise.all(Array.from({ length: count }, () => startHost(settings)))
/** Resolves with the token when all hosts have the same; `not`: another than this. */
function oneToken(hosts: readonly Daemon[], not?: string, withinMs = 40_000): Promise<string> {
  const sameToken = () => {
    const [first, ...others] = new Set(hosts.map(tokenFile))
    return others.length === 0 && first !== not && first
  }
  return expectUntil('one token on every host', sameToken, { withinMs })
}
const recordsOf = (hosts: readonly Daemon[], event: string) => hosts.flatMap((host) => host.records(event))
/** Sends the same request to every host, and gives their answers. */
const askAll = (hosts: readonly Daemon[], type: string): Promise<Record<string, unknown>[]> =>
  Promise.all(hosts.map(async ({ ipcPath }) => (await askOnce(ipcPath, type, {}))?.data ?? {}))
const refresh = (...hosts: readonly Daemon[]) => askAll(hosts, 'refresh.request')
const say = (row: string, figure: string | number): unknown =>
  process.stdout.write(`fleet: ${row}: ${figure}\n`)

describe.skipIf(withoutRedis)('20 daemons', { timeout: 180_000 }, () => {
  test('boot with one request, and rotate ten times with one each', async () => {
    lifeS = 8
    const hosts = await startHosts(20)
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
    const hosts = await startHosts(20)
    const first = await oneToken(hosts)
    expect((await refresh(...hosts)).every(({ outcome }) => outcome === 'ok')).toBe(true)
    say('requests for operators on 20 hosts', service.requests.length - 1)
    expect(service.requests.length).toBeLessThanOrEqual(3)
    await oneToken(hosts, first)
    let before = service.requests.length
    service.answer({ status: 429, headers: { 'retry-after': '20' } })
    await refresh(hosts[0]!)
    const late = await startHost()
    await sleep(3_000)
    say('requests for a 429, and within it', service.requests.length - before)
    expect(service.requests.length - before).toBe(1)
    before = service.requests.length
    service.answer(accountInactive)
    await refresh(hosts[1]!)
    const newcomers = [late, ...(await startHosts(3))]
    await Promise.all(newcomers.map((host) => host.listening()))
    await expectUntil('refused newcomers', async () =>
      (await askAll(newcomers, 'status.get')).every(({ state }) => state === 'refused'),
    )
    say('requests for a refusal, with three hosts that come', service.requests.length - before)
    expect(service.requests.length - before).toBe(1)
    const alerts = recordsOf([...hosts, ...newcomers], 'alert')
    expect(alerts.filter(({ level }) => level === 'alert')).toHaveLength(1)
    service.answer(token)
    await refresh(late)
    await oneToken([...hosts, ...newcomers])
    expect(service.requests.length - before).toBe(2)
  })
})

describe.skipIf(withoutRedis)('four daemons', { timeout: 180_000 }, () => {
  test.each([
    ['flushed', () => Promise.resolve(redis.cli('flushall'))],
    ['restarted empty', () => redis.kill().then(() => redis.start())],
  ])('have Redis %s: a host fills it again, and a host that comes needs no request', async (what, fail) => {
    const hosts = await startHosts(4)
    const before = await oneToken(hosts)
    await fail()
    await expectUntil('the record', () => redis.cli('keys', '*').includes('record'), { withinMs: 30_000 })
    expect(await oneToken([...hosts, await startHost()])).toBe(before)
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
    lifeS = 12
    const hosts = await startHosts(4, impatient)
    await oneToken(hosts)
    let without = 0
    const pass = async (ms: number): Promise<void> => {
      for (const endMs = Date.now() + ms; Date.now() < endMs; await sleep(50))
        if (hosts.some((host) => tokenFile(host) === undefined)) without += 1
    }
    const before = service.requests.length
    onTestFinished(() => redis.signal('SIGCONT'))
    await fail()
    await pass(12_000)
    const requests = service.requests.length - before
    await mend()
    await pass(15_000)
    const tokens = new Set((await askAll(hosts, 'token.get')).map(({ accessToken }) => accessToken)).size
    say(
      `Redis ${what} for 12 s, life 12 s`,
      `${requests} requests of 4 hosts, ${without} checks without a token, ${tokens} token(s) 15 s after`,
    )
    expect(without).toBe(0)
    // A host alone asks twice in its life at most.
    expect(requests).toBeLessThanOrEqual(4 * 4)
    await oneToken(hosts, undefined, 10_000)
  })

  test('lose no token with the asker, killed or stopped at any moment', async () => {
    const hosts = await startHosts(4, impatient)
    let requests = service.requests.length
    service.answer(async () => sleep(20).then(token))
    for (let turn = 0; turn < 6; turn += 1) {
      const before = await oneToken(hosts)
      const [asker, other] = hosts as [Daemon, Daemon]
      asker.process.kill('SIGUSR2')
      // The gathering of operators, the request and the write take 0.4 s.
      await sleep(turn * 80)
      const isKilled = turn % 2 === 0
      if (isKilled) await asker.end('SIGKILL')
      else asker.process.kill('SIGSTOP')
      expect(await refresh(other)).toMatchObject([{ outcome: 'ok' }])
      if (isKilled) hosts[0] = await startHost(impatient, asker.directory)
      else asker.process.kill('SIGCONT')
      await oneToken(hosts, before)
      expect(service.requests.length - requests).toBeLessThanOrEqual(2)
      requests = service.requests.length
    }
    say('the asker killed or stopped at 6 moments', `${requests - 1} requests for 12 acts`)
  })

  test.each([
    ['killed', (master: RedisServer) => master.kill()],
    ['hung', (master: RedisServer) => Promise.resolve(master.signal('SIGSTOP'))],
  ])('have a master of Sentinel %s: all agree on the new one', async (what, fail) => {
    const [masterPort, port] = [await freePort(), await freePort()]
    const master = await startRedis({ port: masterPort })
    const replica = await startRedis({
      port: await freePort(),
      args: ['--replicaof', '127.0.0.1', `${masterPort}`],
    })
    const isLinked = () => replica.cli('info', 'replication').includes('master_link_status:up')
    await expectUntil('the replica', isLinked)
    const lines = [`monitor fleet 127.0.0.1 ${masterPort} 1`, 'down-after-milliseconds fleet 1500']
    const config = [...lines, 'failover-timeout fleet 10000'].map((line) => `sentinel ${line}`).join('\n')
    const sentinel = await startRedis({ port, sentinel: config })
    const knows = () => sentinel.cli('sentinel', 'replicas', 'fleet').includes('role-reported')
    await expectUntil('the sentinel', knows, { withinMs: 30_000 })
    const throughSentinel = { servers: [`127.0.0.1:${port}`], timeout: '2s', sentinel: { name: 'fleet' } }
    const hosts = await startHosts(4, { share: throughSentinel })
    const before = await oneToken(hosts)
    await fail(master)
    const isFailedOver = () =>
      !sentinel.cli('sentinel', 'get-master-addr-by-name', 'fleet').includes(`${masterPort}`)
    await expectUntil('the failover', isFailedOver, { withinMs: 30_000 })
    await expectUntil('connected hosts', async () =>
      (await askAll(hosts, 'status.get')).every(
        ({ share }) => (share as { state: string }).state === 'connected',
      ),
    )
    expect(await refresh(hosts[0]!)).toMatchObject([{ outcome: 'ok' }])
    await oneToken(hosts, before)
    say(`requests with the master ${what}`, service.requests.length - 2)
    expect(service.requests.length).toBeLessThanOrEqual(4)
  })
})
