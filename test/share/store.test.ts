// The store over real redis-servers and sentinels: what its two commands do, the ways to a server, and a server
// that fails, each failure by its name.
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { validateDocument } from '../../src/config/document.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import {
  aclLine,
  checkStore,
  openStore,
  StoreError,
  type Store,
  type StoreSettings,
} from '../../src/share/store.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { smallConfig } from '../support/config-files.ts'
import { listening } from '../support/listening.ts'
import { createMemoryServer } from '../support/memory-store.ts'
import { createRandom } from '../support/random.ts'
import { freePort, isWithoutRedis, settingsOf, startRedis, type RedisServer } from '../support/redis.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const withoutRedis = isWithoutRedis('test/share/store')
const around = { clock: createSystemClock(), random: Math.random }
const keys = { record: 'kyc-tokend:3:{a}:record', lease: 'kyc-tokend:3:{a}:lease' }

async function start(options: Parameters<typeof startRedis>[0] = {}): Promise<RedisServer> {
  const server = await startRedis(options)
  onTestFinished(() => server.stop())
  return server
}
async function open(settings: StoreSettings): Promise<Store> {
  const store = await openStore(settings, around)
  onTestFinished(store.close)
  return store
}
async function expectAllWorks(store: Store): Promise<void> {
  expect(await store.swap(keys.lease, '', 'mine', 60_000)).toBe(true)
  expect(await store.swap(keys.lease, '', 'yours', 60_000)).toBe(false)
  expect(await store.swap(keys.record, '', 'answer', 60_000)).toBe(true)
  expect(await store.read(keys)).toEqual({ nowMs: expect.any(Number), record: 'answer', lease: 'mine' })
  expect(await store.swap(keys.lease, 'mine', '', 1)).toBe(true)
  expect(await store.read(keys)).toMatchObject({ lease: '' })
}
async function errorOf(operation: Promise<unknown>): Promise<StoreError> {
  const error = await operation.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  if (!(error instanceof StoreError)) throw new Error(`No StoreError: ${String(error)}`)
  return error
}

describe.skipIf(withoutRedis)('the two commands', () => {
  test('do at random what the store in memory does; every key ends', async () => {
    const server = await start()
    const [real, memory] = [await open(settingsOf(server)), createMemoryServer(Date.now).connect(0)]
    const random = createRandom(7)
    const oneOf = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)]!
    const texts = ['', 'a', 'b', 'c+/=', 'x'.repeat(65_000)]
    for (let step = 0; step < 500; step += 1) {
      const [key, former, text] = [oneOf(Object.values(keys)), oneOf(texts), oneOf(texts)]
      const both = [real, memory].map((store) => store.swap(key, former, text, 3_600_000))
      expect(await both[0]).toBe(await both[1])
      const { record, lease } = await memory.read(keys)
      expect(await real.read(keys)).toMatchObject({ record, lease })
    }
    await real.swap(keys.record, (await real.read(keys)).record, 'last', 5_000)
    expect(Number(server.cli('pttl', keys.record))).toBeGreaterThan(0)
    expect(Math.abs((await real.read(keys)).nowMs - Date.now())).toBeLessThan(1_000)
  })

  test('take another type, foreign bytes and a huge text for no text that a host knows', async () => {
    const server = await start()
    const store = await open(settingsOf(server))
    const plants: (() => string)[] = [
      () => server.cli('lpush', keys.lease, 'x'),
      () => server.cli('eval', `redis.call('set', '${keys.lease}', string.char(255, 0, 128))`, '0'),
      () => server.cli('set', keys.lease, 'no base64!'),
    ]
    for (const plant of plants) {
      server.cli('del', keys.lease)
      plant()
      expect((await store.read(keys)).lease).toBe('')
      expect(await store.swap(keys.lease, '', 'mine', 60_000)).toBe(true)
    }
    server.cli('eval', `redis.call('set', '${keys.lease}', string.rep('a', 5000000))`, '0')
    const { lease } = await store.read(keys)
    expect(lease).toHaveLength(65_536)
    expect(await store.swap(keys.lease, lease, 'mine', 60_000)).toBe(true)
  })
})

describe.skipIf(withoutRedis)('a server', () => {
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
    const files = {
      '--tls-cert-file': file('cert', serverSide!.cert),
      '--tls-key-file': file('key', serverSide!.key),
      '--tls-ca-cert-file': file('ca', authority.cert),
    }
    const server = await start({ tls: true, port: await freePort(), args: Object.entries(files).flat() })
    const ours = { cert: hostSide!.cert, key: new Secret(hostSide!.key) }
    const tls = { ca: authority.cert, serverName: null, ...ours }
    await expectAllWorks(await open(settingsOf(server, { tls })))
    for (const [change, words] of [
      [{ ca: null }, /certificate/],
      [{ serverName: 'redis.example.com' }, /redis\.example\.com/],
      [{ cert: null, key: null }, /alert|ECONNRESET|EPIPE/],
    ] as const) {
      const store = await open(settingsOf(server, { tls: { ...tls, ...change }, timeoutMs: 3_000 }))
      const message = expect.stringMatching(words) as string
      expect(await errorOf(store.read(keys))).toMatchObject({ isDenied: false, message })
    }
  })

  test('is reached through a sentinel, without and with its password', async () => {
    const server = await start({ port: await freePort() })
    const port = 'port' in server.address ? server.address.port : 0
    for (const password of [null, 'of-the-sentinel']) {
      const requirepass = password === null ? [] : [`requirepass ${password}`]
      const sentinel = [`sentinel monitor fleet 127.0.0.1 ${port} 1`, ...requirepass].join('\n')
      const { address } = await start({ port: await freePort(), sentinel })
      const name = { name: 'fleet', user: null, password: password === null ? null : new Secret(password) }
      await expectAllWorks(await open(settingsOf({ address }, { sentinel: name })))
      server.cli('flushall')
    }
  })

  test.each([
    [0, false],
    [3, false],
    [0, true],
  ])('needs no other rights than those of the line (database %d, cluster %s)', async (database, cluster) => {
    const port = await freePort()
    const args = cluster ? ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'] : []
    const server = await start({ port, args })
    if (cluster) {
      server.cli('cluster', 'addslotsrange', '0', '16383')
      await expectUntil('the cluster', () => server.cli('cluster', 'info').includes('cluster_state:ok'))
    }
    const user = { user: 'kyc', password: new Secret('a-password'), database, cluster }
    const settings = settingsOf({ address: { host: '127.0.0.1', port } }, user)
    expect(server.cli(...aclLine(settings).replace('PASSWORD', 'a-password').split(' '))).toBe('OK')
    await expectAllWorks(await open(settings))
    expect(await checkStore(settings, around)).toMatchObject({ level: 'ok' })
    expect(server.cli('acl', 'log')).toBe('')
  })

  test('denies a wrong password each time, a host without one, a user without a right', async () => {
    const server = await start({ args: ['--requirepass', 'right'] })
    const store = await open(settingsOf(server, { password: new Secret('wrong'), timeoutMs: 1_000 }))
    for (let attempt = 0; attempt < 3; attempt += 1) {
      const error = await errorOf(store.read(keys))
      expect(error).toMatchObject({ isDenied: true, message: expect.stringContaining('WRONGPASS') })
      expect(error.message).not.toContain('wrong')
    }
    for (const right of ['getrange', 'set']) {
      server.cli('-a', 'right', 'acl', 'setuser', 'kyc', 'on', '>a-password', '~*', '+@all', `-${right}`)
      const weak = await open(settingsOf(server, { user: 'kyc', password: new Secret('a-password') }))
      const all = weak.read(keys).then(() => weak.swap(keys.lease, '', 'mine', 1_000))
      expect((await errorOf(all)).isDenied).toBe(true)
    }
    const nobody = await open(settingsOf(server, { timeoutMs: 1_000 }))
    expect((await errorOf(nobody.read(keys))).isDenied).toBe(true)
  })

  test('that hangs is lost after share.timeout, its socket is closed, and it comes back', async () => {
    const server = await start()
    let connections = 0
    const onReady = (): void => void (connections += 1)
    const store = await openStore(settingsOf(server, { timeoutMs: 200 }), { ...around, onReady })
    onTestFinished(store.close)
    await store.read(keys)
    onTestFinished(() => server.signal('SIGCONT'))
    server.signal('SIGSTOP')
    const begun = Date.now()
    await errorOf(store.read(keys))
    expect(Date.now() - begun).toBeLessThan(2_000)
    await expectUntil(
      'the socket to be closed',
      async () => !/no answer|timed out/.test((await errorOf(store.read(keys))).message),
    )
    server.signal('SIGCONT')
    await expectUntil('the return', () => store.read(keys).catch(() => false as const), { withinMs: 30_000 })
    expect(connections).toBeGreaterThan(1)
  })
})

test('a server that answers all commands with OK is a lost store', async () => {
  const path = join(await tempDirectory(), 'redis.sock')
  const server = createServer((socket) => {
    socket.on('data', (bytes) => socket.write(bytes.toString().replaceAll(/\*[^*]*/g, '+OK\r\n')))
  })
  await listening(server, path)
  const store = await open(settingsOf({ address: { path } }, { timeoutMs: 500 }))
  const error = await errorOf(store.read(keys))
  expect([error.isDenied, error.message]).toEqual([false, 'The server answers what no Redis does'])
})

describe.skipIf(withoutRedis)('check', () => {
  let server: RedisServer
  beforeAll(async () => {
    server = await startRedis({ port: await freePort() })
    return () => server.stop()
  })
  const expectSays = async (change: Partial<StoreSettings>, sentence: RegExp): Promise<void> => {
    const settings = settingsOf(server, { timeoutMs: 1_000, ...change })
    const { level, sentence: said } = await checkStore(settings, around)
    expect(`${level} ${said}`).toMatch(sentence)
    expect(said).not.toContain('a-password')
  }

  test('names the server and its role, tries every right, and leaves no key behind', async () => {
    await expectSays(
      {},
      /^ok is (Redis|Valkey) \d+\.\d+\.\d+, role master, and lets this host read and write$/,
    )
    expect(server.cli('keys', '*')).toBe('')
  })

  test('a missing right is a fault with the line that grants it; a server without TLS, and a replica, too', async () => {
    server.cli('acl', 'setuser', 'kyc', 'on', '>a-password', '~*', '+@all', '-del')
    const user = { user: 'kyc', password: new Secret('a-password') }
    await expectSays(
      user,
      /^fault cannot be used at \S+: .*ACL SETUSER kyc on >PASSWORD resetkeys ~kyc-tokend:3:\*/,
    )
    const tls = { ca: null, serverName: null, cert: null, key: null }
    await expectSays({ tls }, /^fault cannot be used at 127.*share\.tls: false if/)
    server.cli('replicaof', '127.0.0.1', '1')
    await expectSays({}, /^fault .*READONLY/)
  })
})

test('the line of rights, and the examples of fleet.md, are those of the program', async () => {
  const page = readFileSync(new URL('../../systemd/man/fleet.md', import.meta.url), 'utf8')
  expect(page).toContain(`\n${aclLine(settingsOf({ address: { path: '/x' } }, { user: 'kyc' }))}\n`)
  const examples = [...page.matchAll(/```json\n([\s\S]*?)```/g)].map(
    ([, text = '']) => JSON.parse(text) as object,
  )
  expect(examples).toHaveLength(2)
  for (const example of examples)
    expect(validateDocument({ ...smallConfig(), ...example }).faults).toEqual([])
})
