// Who may use a socket: its path, mode and group, and the peers. That the kernel names the peers of real users
// is in lib/libc.test.ts.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, lstatSync, mkdirSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { createReadPeer } from '../../src/delivery/guard.ts'
import { loadLibc } from '../../src/lib/libc.ts'
import { answerTypes } from '../../src/protocol.ts'
import { asStranger, startDelivery } from '../support/delivery-world.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { httpAsk } from '../support/outside.ts'
import { exchange } from '../support/raw-http.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

describe('a socket of the daemon', () => {
  const modeOf = (path: string): number => lstatSync(path).mode & 0o777

  /** A socket at this path at which nobody listens any more. */
  async function leaveDead(path: string): Promise<void> {
    const program = `require('node:net').createServer().listen('${path}', () => console.log('listening'))`
    const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
    await once(child.stdout, 'data')
    child.kill('SIGKILL')
    await once(child, 'exit')
  }

  it('takes the place of a dead one, has its mode whatever the umask, and goes at the end', async () => {
    const directory = await tempDirectory()
    await leaveDead(join(directory, 'ipc.sock'))
    const before = process.umask(0o077)
    onTestFinished(() => void process.umask(before))
    const world = await startDelivery({ directory, socket: { mode: 0o660 } })
    expect(process.umask()).toBe(0o077)
    expect([modeOf(world.ipcPath), modeOf(world.httpPath)]).toEqual([0o660, 0o660])
    expect(await askOnce(world.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
    await world.stop()
    expect([world.ipcPath, world.httpPath].filter(existsSync)).toEqual([])
  })

  it.each<[string, (path: string) => unknown]>([
    ['file', (path) => writeFileSync(path, 'precious')],
    ['directory', mkdirSync],
    ['link', (path) => symlinkSync('/nowhere', path)],
    ['process that answers', async (path) => once(createServer().listen(path).unref(), 'listening')],
  ])('leaves a %s in its way alone', async (_what, make) => {
    const directory = await tempDirectory()
    const path = join(directory, 'ipc.sock')
    await make(path)
    const { ino } = lstatSync(path)
    const message = expect.stringContaining('is in the way') as string
    await expect(startDelivery({ directory })).rejects.toMatchObject({ status: 78, message })
    expect(lstatSync(path).ino).toBe(ino)
  })

  it('takes the mode of a reload, unless the reload fails', async () => {
    const world = await startDelivery()
    const modes = () => [modeOf(world.ipcPath), modeOf(world.httpPath)]
    world.reconfigure({ mode: 0o660 })
    expect(modes()).toEqual([0o660, 0o660])
    // It is no group.
    expect(() => world.reconfigure({ mode: 0o666 }, { group: 2 ** 32 })).toThrow('Cannot write')
    expect(modes()).toEqual([0o660, 0o660])
    world.pass(15_000)
    expect(modes()).toEqual([0o660, 0o660])
  })

  it('that somebody opened wider is set back within 15 s, with one warning; else it is left as it is', async () => {
    const world = await startDelivery({ socket: { mode: 0o660 } })
    chmodSync(world.ipcPath, 0o666)
    unlinkSync(world.httpPath)
    writeFileSync(world.httpPath, '')
    chmodSync(world.httpPath, 0o666)
    expect(world.servers.problems()).toMatchObject([expect.stringContaining(world.ipcPath)])
    world.pass(30_000)
    expect([modeOf(world.ipcPath), modeOf(world.httpPath)]).toEqual([0o660, 0o666])
    expect(world.of('socket-restored')).toMatchObject([{ level: 'warning', path: world.ipcPath }])
    expect(world.servers.problems()).toEqual([])
    chmodSync(world.ipcPath, 0o600)
    world.pass(15_000)
    expect(modeOf(world.ipcPath)).toBe(0o600)
  })

  it.runIf(process.getuid?.() === 0)('has the group of its setting', async () => {
    const world = await startDelivery({ socket: { mode: 0o660, group: 54_321 } })
    expect([world.ipcPath, world.httpPath].map((path) => lstatSync(path).gid)).toEqual([54_321, 54_321])
  })
})

describe('a peer', () => {
  /** The kernel shows it for users and groups that it does not know here. */
  const UNKNOWN = 65_534

  it.each([
    ['allowed by user', 4_001, 4_001, [], 'member'],
    ['allowed by group', 4_002, 4_100, [], 'member'],
    ['allowed by supplementary group', 4_002, 4_002, [7, 4_100], 'member'],
    ['root', 0, 0, [], 'operator'],
    ['the own user', 4_003, 4_003, [], 'operator'],
    ['not named', 4_002, 4_002, [7], 'denied'],
    ['not known to the kernel here, allowed or not', UNKNOWN, UNKNOWN, [UNKNOWN], 'denied'],
  ])('that is %s has its place', (_how, uid, gid, groups, place) => {
    const libc = { ...loadLibc(), peerOf: () => ({ uid, gid }), peerGroups: () => [...groups] }
    const allow = { users: [4_001, UNKNOWN], groups: [4_100, UNKNOWN] }
    expect(createReadPeer({ libc, ownUid: 4_003 })(0, allow)).toEqual({ uid, place })
    // Also where the daemon runs as one that is not known, and everybody is allowed.
    const all = { users: [], groups: [] }
    const isRoot = uid === 0
    expect(createReadPeer({ libc, ownUid: UNKNOWN })(0, all).place).toBe(isRoot ? 'operator' : 'member')
  })

  it('that `allow` does not name is denied every operation and every path, and its connection ends', async () => {
    const world = await startDelivery({ libc: asStranger, socket: { allow: { users: [4_002], groups: [] } } })
    const { rejects } = world.ipc.counts()
    for (const type of [...Object.keys(answerTypes), 'nonsense']) {
      const client = await connectRaw(world.ipcPath)
      client.ask(type, { id: '1' })
      await client.closed()
      expect(client.frames, type).toMatchObject([{ type: 'fault', data: { id: '1', code: 'denied' } }])
    }
    const gets = ['token', 'authorization', 'status'].map((name) => `/v1/${name}`)
    for (const path of [...gets, '/healthz', '/readyz', '/metrics', '/nowhere'])
      expect(await httpAsk(world, path), path).toMatchObject({ status: 403, json: { code: 'denied' } })
    for (const path of ['/v1/token/reject', '/v1/refresh'])
      expect(await httpAsk(world, path, { method: 'POST' }), path).toMatchObject({ status: 403 })
    expect(world.ipc.counts()).toMatchObject({ reads: 0, rejects, subscribers: 0 })
    expect(world.http.counts()).toMatchObject({ reads: 0, subscribers: 0 })
  })

  it('from whom a reload takes the right loses its connections, subscribed or waiting', async () => {
    const world = await startDelivery({ libc: asStranger, socket: { allow: { users: [4_001], groups: [] } } })
    const notFingerprint = world.keeper.state().token!.fingerprint
    const waitUntil = vi.spyOn(world.keeper, 'waitUntil')
    const [subscriber, waiter] = [await connectRaw(world.ipcPath), await connectRaw(world.ipcPath)]
    subscriber.ask('token.subscribe', { id: 's' })
    waiter.ask('token.get', { id: 'w', notFingerprint, waitSeconds: 30 })
    const wait = `GET /v1/token?waitSeconds=30&notFingerprint=${notFingerprint} HTTP/1.1\r\n\r\n`
    const waiting = exchange(world.httpPath, wait)
    expect((await subscriber.frame(0))?.type).toBe('token.result')
    await expectUntil('the waits', () => waitUntil.mock.calls.length === 2)
    world.reconfigure({ allow: { users: [4_002], groups: [] } })
    await Promise.all([subscriber.closed(), waiter.closed()])
    expect([subscriber.frames.length, waiter.frames.length, await waiting]).toEqual([1, 0, ''])
    expect(world.ipc.counts().reads).toBe(1)
    expect(await askOnce(world.ipcPath, 'token.get', {})).toMatchObject({ data: { code: 'denied' } })
  })
})
