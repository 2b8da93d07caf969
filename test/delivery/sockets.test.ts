// The daemon's own sockets: what is at their paths before, their mode and group, and that no wider one stays.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, lstatSync, mkdirSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { startDelivery, startWithToken } from '../support/delivery-world.ts'
import { askOnce } from '../support/ipc-client.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const modeOf = (path: string): number => lstatSync(path).mode & 0o777

/** A socket at this path at which nobody listens any more. */
async function leaveDead(path: string): Promise<void> {
  const program = `require('node:net').createServer().listen('${path}', () => console.log('listening'))`
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(child.stdout, 'data')
  child.kill('SIGKILL')
  await once(child, 'exit')
}

describe('a socket', () => {
  it('takes the place of a dead one, has its mode whatever the umask, and goes at the end', async () => {
    const directory = await tempDirectory()
    await leaveDead(join(directory, 'ipc.sock'))
    const before = process.umask(0o077)
    onTestFinished(() => void process.umask(before))
    const world = await startWithToken({ directory, socket: { mode: 0o660 } })
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

  it('takes the mode of a reload, and its connections live on', async () => {
    const world = await startWithToken()
    world.reconfigure({ mode: 0o660 })
    expect([modeOf(world.ipcPath), modeOf(world.httpPath)]).toEqual([0o660, 0o660])
    world.pass(15_000)
    expect(modeOf(world.ipcPath)).toBe(0o660)
  })
})

describe('a socket that somebody opened wider than its setting', () => {
  it('is set back within 15 s, with one warning', async () => {
    const world = await startWithToken({ socket: { mode: 0o660 } })
    chmodSync(world.ipcPath, 0o666)
    expect(world.servers.problems()).toMatchObject([expect.stringContaining(world.ipcPath)])
    world.pass(30_000)
    expect(modeOf(world.ipcPath)).toBe(0o660)
    const record = { level: 'warning', fields: { event: 'socket-restored', path: world.ipcPath } }
    expect(world.records.filter(({ fields }) => fields.event === 'socket-restored')).toMatchObject([record])
    expect(world.servers.problems()).toEqual([])
  })

  it('is left alone where it was made narrower, removed or replaced', async () => {
    const world = await startWithToken({ socket: { mode: 0o660 } })
    chmodSync(world.ipcPath, 0o600)
    unlinkSync(world.httpPath)
    writeFileSync(world.httpPath, '')
    chmodSync(world.httpPath, 0o666)
    world.pass(15_000)
    expect([modeOf(world.ipcPath), modeOf(world.httpPath)]).toEqual([0o600, 0o666])
    expect(world.servers.problems()).toEqual([])
  })
})

it.runIf(process.getuid?.() === 0)('a socket has the group of its setting', async () => {
  const world = await startWithToken({ socket: { mode: 0o660, group: 54_321 } })
  expect([world.ipcPath, world.httpPath].map((path) => lstatSync(path).gid)).toEqual([54_321, 54_321])
})
