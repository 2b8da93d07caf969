// Ways to a real redis-server: TLS, users and rights, a cluster, another database; and a server that fails,
// each failure by its name.
import { randomBytes } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import type { StoreConfig } from '../../src/share/redis-client.ts'
import { aclLine, openRedisStore } from '../../src/share/redis-store.ts'
import { StoreError, type Store } from '../../src/share/store.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import {
  freePort,
  isWithoutRedis,
  settingsOf,
  startRedis,
  subscribe,
  type RedisServer,
} from '../support/redis.ts'
import { nameHas, startSilentListener } from '../support/silent-listener.ts'
import { startNonsenseRedis } from '../support/nonsense-redis.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

test.skipIf(isWithoutRedis('test/share/redis-access'))(
  'a name may have two addresses, one of them dead and the other one slow',
  async () => {
    const [target, port] = [await freePort(), await freePort()]
    const server = await start({ port: target })
    const begin = (host: string) => startSilentListener({ host, port, target }, onTestFinished)
    const answer = await begin('127.0.0.1')
    await begin('127.0.0.2')
    onTestFinished(nameHas('127.0.0.1', '127.0.0.2'))
    const servers = [{ host: 'two.example', port }]
    setTimeout(answer, 500)
    // A third of it is more than the second after which the kernel repeats its SYN.
    const store = await open({ ...settingsOf(server), servers, timeoutMs: 6_000 })
    expect(await store.poll(nothing)).toMatchObject({ record: null })
  },
  20_000,
)

const withoutRedis = isWithoutRedis('test/share/redis-access')

async function start(options: Parameters<typeof startRedis>[0] = {}): Promise<RedisServer> {
  const server = await startRedis(options)
  onTestFinished(() => server.stop())
  return server
}
async function open(settings: StoreConfig): Promise<Store> {
  const store = await openRedisStore(settings, {
    accountKey: randomBytes(16).toString('hex'),
    clock: createSystemClock(),
    random: Math.random,
  })
  onTestFinished(() => store.close())
  return store
}
const ID = '0123456789abcdef'
const nothing = {
  drop: null,
  known: { fence: 0, id: '0'.repeat(16) },
  id: ID,
  leaseMs: 17_000,
  record: null,
  kept: null,
}

/** Takes the lease, writes, looks and listens: all that a host does. */
async function expectAllWorks(store: Store): Promise<void> {
  let heard = 0
  await subscribe(store, (what) => (heard += what === 'message' ? 1 : 0))
  expect(await store.acquire(nothing)).toMatchObject({ lease: ID })
  const text = `${Date.now()} ${ID} box`
  expect(await store.write({ ...nothing, record: { text, keepMs: 60_000 } })).toMatchObject({ record: text })
  await expectUntil('the message', () => heard > 0)
  expect(await store.poll(nothing)).toMatchObject({ record: text, hosts: 1 })
  const kept = { text: `${Date.now()} ${ID} why`, keepMs: 5_000 }
  await store.write({ ...nothing, kept })
  expect(await store.acquire({ ...nothing, drop: text })).toMatchObject({ record: null, lease: kept.text })
}
async function errorOf(operation: Promise<unknown>): Promise<StoreError> {
  const error = await operation.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  if (!(error instanceof StoreError)) throw new Error(`No StoreError: ${String(error)}`)
  return error
}

describe.skipIf(withoutRedis)('a store in Redis', () => {
  test('is reached over TLS with a private authority and a certificate of its own', async () => {
    const directory = await tempDirectory()
    const authority = createAuthority()
    const [serverSide, hostSide] = ['localhost', 'web-1'].map((name) =>
      createCertificate(authority, { names: [name] }),
    )
    const file = (name: string, text: string): string => {
      writeFileSync(join(directory, name), text)
      return join(directory, name)
    }
    const server = await start({
      tls: true,
      port: await freePort(),
      args: [
        '--tls-cert-file',
        file('cert', serverSide?.cert ?? ''),
        '--tls-key-file',
        file('key', serverSide?.key ?? ''),
        '--tls-ca-cert-file',
        file('ca', authority.cert),
      ],
    })
    const tls = {
      ca: authority.cert,
      serverName: null,
      cert: hostSide?.cert ?? '',
      key: new Secret(hostSide?.key ?? ''),
    }
    await expectAllWorks(await open(settingsOf(server, { tls })))
    for (const [change, words] of [
      [{ ca: null }, /certificate/],
      [{ serverName: 'redis.example.com' }, /redis\.example\.com/],
      [{ cert: null, key: null }, /alert|ECONNRESET|EPIPE/],
    ] as const) {
      const store = await open(settingsOf(server, { tls: { ...tls, ...change } }))
      const message = expect.stringMatching(words) as string
      expect(await errorOf(store.acquire(nothing))).toMatchObject({ kind: 'lost', message })
    }
  })

  test('is reached through a sentinel, without and with its password', async () => {
    const server = await start({ port: await freePort() })
    const port = 'port' in server.address ? server.address.port : 0
    for (const password of [null, 'of-the-sentinel']) {
      const sentinel = await start({
        port: await freePort(),
        sentinel: [
          `sentinel monitor fleet 127.0.0.1 ${port} 1`,
          ...(password ? [`requirepass ${password}`] : []),
        ].join('\n'),
      })
      const name = { name: 'fleet', user: null, password: password === null ? null : new Secret(password) }
      await expectAllWorks(await open(settingsOf(sentinel, { sentinel: name })))
    }
  })

  test.each([
    [0, false],
    [3, false],
    [0, true],
  ])('needs no other rights than those of the line (database %d, cluster %s)', async (database, cluster) => {
    const port = await freePort()
    const server = await start({
      port,
      args: cluster ? ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'] : [],
    })
    if (cluster) {
      server.cli('cluster', 'addslotsrange', '0', '16383')
      await expectUntil('the cluster', () => server.cli('cluster', 'info').includes('cluster_state:ok'))
    }
    const line = aclLine({ user: 'kyc', prefix: 'kyc-tokend', database, cluster }).replace(
      'PASSWORD',
      'a-password',
    )
    expect(server.cli(...line.split(' '))).toBe('OK')
    const settings = settingsOf(server, {
      user: 'kyc',
      password: new Secret('a-password'),
      database,
      cluster,
    })
    const store = await open(cluster ? { ...settings, servers: [{ host: '127.0.0.1', port }] } : settings)
    await expectAllWorks(store)
    expect(server.cli('acl', 'log')).toBe('')
    expect(server.cli('-n', String(database), 'keys', '*')).toContain('kyc-tokend:2:{')
  })

  test('denies a wrong password each time, a host without one, a user without a right', async () => {
    const server = await start({ args: ['--requirepass', 'right'] })
    const store = await open(settingsOf(server, { password: new Secret('wrong') }))
    for (let attempt = 0; attempt < 3; attempt += 1) {
      const error = await errorOf(store.acquire(nothing))
      expect(error).toMatchObject({ kind: 'denied', message: expect.stringContaining('WRONGPASS') })
      expect(error.message).not.toContain('wrong')
    }
    server.cli('-a', 'right', 'acl', 'setuser', 'kyc', 'on', '>a-password', '~*', '&*', '+@all', '-set')
    for (const user of [{}, { user: 'kyc', password: new Secret('a-password') }])
      expect((await errorOf((await open(settingsOf(server, user))).acquire(nothing))).kind).toBe('denied')
  })

  test('is lost where a command takes longer than share.timeout, and its socket is closed', async () => {
    const server = await start()
    const store = await open(settingsOf(server, { timeoutMs: 200 }))
    await store.poll(nothing)
    onTestFinished(() => server.signal('SIGCONT'))
    server.signal('SIGSTOP')
    const words = async (): Promise<string> => (await errorOf(store.acquire(nothing))).message
    expect(await words()).toContain('Command timed out')
    await expectUntil('the socket to be closed', async () => !(await words()).includes('Command timed out'))
    server.signal('SIGCONT')
    await expectUntil('the return', () => store.poll(nothing).catch(() => false as const))
  })

  test.each([
    ['a replica', ['replicaof', '127.0.0.1', '1'], 'READONLY'],
    ['a server without memory', ['config', 'set', 'maxmemory', '1'], 'OOM'],
    ['a server that wants replicas', ['config', 'set', 'min-replicas-to-write', '1'], 'NOREPLICAS'],
  ])('%s is lost to a lease and to a poll, with its own words', async (_what, command, words) => {
    const server = await start()
    const store = await open(settingsOf(server))
    await store.poll(nothing)
    server.cli(...command)
    for (const operation of [() => store.acquire(nothing), () => store.poll(nothing)]) {
      const error = await expectUntil(words, async () => {
        const thrown = await errorOf(operation())
        return thrown.message.includes(words) && thrown
      })
      expect(error.kind).toBe('lost')
    }
  })
})

const reply = (...parts: string[]): string => `*${parts.length}\r\n${parts.join('\r\n')}`
const held = (time: string, left: string): string => reply(time, '+1', '+x', '$-1', left, ':1')
test.each<[string, string, string?]>([
  ['no array', ':1'],
  ['an array at the end', reply('+1', '+1', '+x', '$-1', ':0', '*0')],
  ['an endless number', held('+1', '+1e999')],
  ['a lease that ended long ago', held('+1', ':-9007199254740991')],
  ['a time that is none', held('+soon', ':0')],
  ['no time', held('$-1', ':0')],
  ['a time before 1970', held('+-1', ':0')],
  ['a time that leaves no room for another fence', held('+9007199254740', ':0')],
  ['an alert of TLS', '\x15\x03\x03', 'Protocol error'],
])('an answer that no script gives (%s) is a lost store', async (_what, answer, words = 'no script does') => {
  const redis = await startNonsenseRedis((socket) => socket.write(`${answer}\r\n`))
  const store = await open(settingsOf(redis))
  for (const error of await Promise.all([errorOf(store.poll(nothing)), errorOf(store.acquire(nothing))]))
    expect(error).toMatchObject({ kind: 'lost', message: expect.stringContaining(words) })
})

test.each([
  ["READONLY You can't write against a read only replica.", 2],
  ['LOADING Redis is loading the dataset in memory', 2],
  ["OOM command not allowed when used memory > 'maxmemory'.", 1],
  ['ERR not READONLY, and not LOADING', 1],
])(
  'a refused command is not sent again, and after %j the connections are %d',
  async (refusal, connections) => {
    const answers = [`-${refusal}`, held('+1', ':0')]
    const redis = await startNonsenseRedis((socket) => socket.write(`${answers.shift()}\r\n`))
    const store = await open(settingsOf(redis))
    expect((await errorOf(store.poll(nothing))).message).toBe(refusal)
    await expectUntil('the next answer', () => store.poll(nothing).catch(() => false as const))
    expect(answers).toEqual([])
    expect(redis.counts.connections).toBe(connections)
  },
)
