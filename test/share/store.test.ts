// The store over real redis-servers and sentinels: what its two commands do, the ways to a server, and a server
// that fails, each failure by its name.
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { ShareConfig } from '../../src/config/config.ts'
import { validateDocument } from '../../src/config/document.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import { aclLine, checkStore, openStore, type Store } from '../../src/share/store.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { smallConfig } from '../support/config-files.ts'
import { listening } from '../support/listening.ts'
import { createMemoryServer } from '../support/memory-store.ts'
import { createRandom } from '../support/random.ts'
import { freePort, isWithoutRedis, settingsOf, startRedis } from '../support/redis.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const withoutRedis = isWithoutRedis('test/share/store')
const around = { clock: createSystemClock(), random: Math.random }
const keys = { record: 'kyc-tokend:3:{a}:record', lease: 'kyc-tokend:3:{a}:lease' }
const kyc = { user: 'kyc', password: new Secret('a-password') }

async function open(settings: ShareConfig, onReady = () => {}): Promise<Store> {
  const store = await openStore(settings, { ...around, onReady })
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
/** The operation rejects with a StoreError. */
async function expectFails(operation: Promise<unknown>, isDenied: boolean, words = /./): Promise<void> {
  const message = expect.stringMatching(words) as string
  await expect(operation).rejects.toMatchObject({ name: 'StoreError', isDenied, message })
}

describe.skipIf(withoutRedis)('the two commands', () => {
  test('do at random what the store in memory does; every key ends', async () => {
    const server = await startRedis()
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
    const server = await startRedis()
    const store = await open(settingsOf(server))
    const bytes = (text: string): string[] => ['eval', `redis.call('set', KEYS[1], ${text})`, '1', keys.lease]
    for (const plant of [
      ['lpush', keys.lease, 'x'],
      bytes('string.char(255, 0, 128)'),
      ['set', keys.lease, 'no base64!'],
    ]) {
      server.cli('del', keys.lease)
      server.cli(...plant)
      expect((await store.read(keys)).lease).toBe('')
      expect(await store.swap(keys.lease, '', 'mine', 60_000)).toBe(true)
    }
    server.cli(...bytes("string.rep('a', 5000000)"))
    const { lease } = await store.read(keys)
    expect(lease).toHaveLength(65_536)
    expect(await store.swap(keys.lease, lease, 'mine', 60_000)).toBe(true)
  })
})

describe.skipIf(withoutRedis)('a server', () => {
  test('is reached over TLS with a private authority and a certificate of its own', async () => {
    const directory = await tempDirectory()
    const authority = createAuthority()
    const ofServer = createCertificate(authority, { names: ['localhost'] })
    const ofHost = createCertificate(authority, { names: ['web-1'] })
    const args = Object.entries({
      cert: ofServer.cert,
      key: ofServer.key,
      'ca-cert': authority.cert,
    }).flatMap(([name, text]) => {
      writeFileSync(join(directory, name), text)
      return [`--tls-${name}-file`, join(directory, name)]
    })
    const server = await startRedis({ tls: true, port: await freePort(), args })
    const tls = { ca: authority.cert, serverName: null, cert: ofHost.cert, key: new Secret(ofHost.key) }
    await expectAllWorks(await open(settingsOf(server, { tls })))
    for (const [change, words] of [
      [{ ca: null }, /certificate/],
      [{ serverName: 'redis.example.com' }, /redis\.example\.com/],
      [{ cert: null, key: null }, /alert|ECONNRESET|EPIPE/],
    ] as const) {
      const store = await open(settingsOf(server, { tls: { ...tls, ...change }, timeoutMs: 3_000 }))
      await expectFails(store.read(keys), false, words)
    }
  })

  test('is reached through a sentinel, without and with its password', async () => {
    const port = await freePort()
    const server = await startRedis({ port })
    for (const password of [null, 'of-the-sentinel']) {
      const requirepass = password === null ? [] : [`requirepass ${password}`]
      const sentinel = [`sentinel monitor fleet 127.0.0.1 ${port} 1`, ...requirepass].join('\n')
      const { address } = await startRedis({ port: await freePort(), sentinel })
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
    const args = cluster ? ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'] : []
    const server = await startRedis({ port: await freePort(), args })
    if (cluster) {
      server.cli('cluster', 'addslotsrange', '0', '16383')
      await expectUntil('the cluster', () => server.cli('cluster', 'info').includes('cluster_state:ok'))
    }
    const settings = settingsOf(server, { ...kyc, database, cluster })
    expect(server.cli(...aclLine(settings).replace('PASSWORD', 'a-password').split(' '))).toBe('OK')
    await expectAllWorks(await open(settings))
    expect(server.cli('-n', `${database}`, 'exists', keys.record)).toBe('1')
    expect(await checkStore(settings, around)).toMatchObject({ level: 'ok' })
    expect(server.cli('acl', 'log')).toBe('')
  })

  test('denies a wrong password each time, a host without one, a user without a right', async () => {
    const server = await startRedis({ args: ['--requirepass', 'right'] })
    const store = await open(settingsOf(server, { password: new Secret('wrong'), timeoutMs: 1_000 }))
    for (let attempt = 0; attempt < 3; attempt += 1)
      await expectFails(store.read(keys), true, /^(?!.*wrong).*WRONGPASS/)
    for (const right of ['getrange', 'set']) {
      server.cli('-a', 'right', 'acl', 'setuser', 'kyc', 'on', '>a-password', '~*', '+@all', `-${right}`)
      const weak = await open(settingsOf(server, kyc))
      const all = weak.read(keys).then(() => weak.swap(keys.lease, '', 'mine', 1_000))
      await expectFails(all, true)
    }
    await expectFails((await open(settingsOf(server, { timeoutMs: 1_000 }))).read(keys), true)
  })

  test('that hangs is lost after share.timeout, its socket is closed, and it comes back', async () => {
    const server = await startRedis()
    let connections = 0
    const store = await open(settingsOf(server, { timeoutMs: 200 }), () => void (connections += 1))
    await store.read(keys)
    onTestFinished(() => server.signal('SIGCONT'))
    server.signal('SIGSTOP')
    const begunMs = Date.now()
    await expectFails(store.read(keys), false, /no answer|timed out/)
    expect(Date.now() - begunMs).toBeLessThan(2_000)
    const isClosed = (error: Error): boolean => !/no answer|timed out/.test(error.message)
    await expectUntil('the socket to be closed', () => store.read(keys).then(() => false, isClosed))
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
  await expectFails(store.read(keys), false, /^The server answers what no Redis does$/)
})

test.skipIf(withoutRedis)(
  'check names server and role, tries every right, and leaves no key behind',
  async () => {
    const server = await startRedis({ port: await freePort() })
    const expectSays = async (change: Partial<ShareConfig>, words: RegExp): Promise<void> => {
      const { level, sentence } = await checkStore(
        settingsOf(server, { timeoutMs: 1_000, ...change }),
        around,
      )
      expect(`${level} ${sentence}`).toMatch(words)
      expect(sentence).not.toContain('a-password')
    }
    await expectSays(
      {},
      /^ok is (Redis|Valkey) \d+\.\d+\.\d+, role master, and lets this host read and write$/,
    )
    expect(server.cli('keys', '*')).toBe('')
    for (const right of ['info', 'eval', 'set', 'del', 'getrange']) {
      server.cli('acl', 'setuser', 'kyc', 'on', '>a-password', '~*', '+@all', `-${right}`)
      const grants = 'ACL SETUSER kyc on >PASSWORD resetkeys ~kyc-tokend:3:\\*'
      await expectSays(kyc, new RegExp(`^fault cannot be used at \\S+: .*${grants}`))
    }
    const tls = { ca: null, serverName: null, cert: null, key: null }
    await expectSays({ tls }, /^fault cannot be used at 127.*share\.tls: false if/)
    server.cli('replicaof', '127.0.0.1', '1')
    await expectSays({}, /^fault .*READONLY/)
  },
)

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
