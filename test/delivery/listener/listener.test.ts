import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  renameSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { connect, createServer, type Server } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { openListener, type Listener } from '../../../src/delivery/listener/listener.ts'
import type { SocketConfig } from '../../../src/config/config.ts'
import { acquireInstanceLock } from '../../../src/daemon/instance-lock.ts'
import { createRecords } from '../../support/records.ts'
import { tempDirectory } from '../../support/temp-directory.ts'
import { expectUntil } from '../../support/until.ts'

const events = {
  createServer: () => createServer((socket) => socket.destroy()),
  transport: 'ipc',
  log: () => undefined,
}

async function listen(path: string, { mode = 0o600, gid = null as number | null } = {}): Promise<Listener> {
  const listener = await openListener({ path, mode, gid }, events)
  onTestFinished(async () => listener.close())
  return listener
}

async function answers(path: string): Promise<boolean> {
  const socket = connect(path)
  try {
    await once(socket, 'connect')
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}

/** A process that listens at the path and, asked to, dies without clearing up. */
async function spawnListener(path: string): Promise<{ kill(): Promise<void> }> {
  const program = `require('node:net').createServer().listen('${path}', () => console.log('listening'))`
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  await once(child.stdout, 'data')
  return {
    async kill() {
      child.kill('SIGKILL')
      await once(child, 'exit')
    },
  }
}

describe('a listening socket', () => {
  it('is private while it is bound, then has its mode whatever the umask, and goes when it is closed', async () => {
    const directory = await tempDirectory()
    const path = join(directory, 's')
    const before = process.umask(0o077)
    onTestFinished(() => void process.umask(before))
    const modes: number[] = []
    const umask = process.umask.bind(process)
    const set = vi.spyOn(process, 'umask').mockImplementation((mask) => {
      for (const name of readdirSync(directory)) modes.push(lstatSync(join(directory, name)).mode & 0o777)
      return umask(mask ?? 0)
    })
    const listener = await listen(path, { mode: 0o666 })
    set.mockRestore()
    expect(modes).toEqual([0o600])
    expect(process.umask()).toBe(0o077)
    expect(lstatSync(path).mode & 0o777).toBe(0o666)
    expect(readdirSync(directory)).toEqual(['s'])
    await listener.close()
    expect(existsSync(path)).toBe(false)
  })

  it.skipIf(process.getuid?.() !== 0)('has its group', async () => {
    const path = join(await tempDirectory(), 's')
    await listen(path, { gid: 4242 })
    expect(lstatSync(path).gid).toBe(4242)
  })

  it.each([
    ['a dead one', 's'],
    ['what a crash left in the midst of a start', '.s.new'],
  ])('replaces %s', async (_, name) => {
    const directory = await tempDirectory()
    const dead = await spawnListener(join(directory, name))
    await dead.kill()
    const path = join(directory, 's')
    await listen(path)
    expect(await answers(path)).toBe(true)
    expect(readdirSync(directory)).toEqual(['s'])
  })

  it.each(['file', 'directory', 'link'])('leaves a %s in its way alone', async (kind) => {
    const path = join(await tempDirectory(), 's')
    if (kind === 'file') writeFileSync(path, 'precious')
    else if (kind === 'directory') mkdirSync(path)
    else symlinkSync('/nowhere', path)
    const { ino } = lstatSync(path)
    const message = expect.stringContaining('is in the way') as string
    await expect(listen(path)).rejects.toMatchObject({ status: 78, message })
    expect(lstatSync(path).ino).toBe(ino)
  })

  it('does not remove a file that another process has put at its path', async () => {
    const path = join(await tempDirectory(), 's')
    const listener = await listen(path)
    renameSync(path, `${path}.away`)
    const other = await listen(path)
    await listener.close()
    expect(await answers(path)).toBe(true)
    await other.close()
  })

  it('gives its new mode to no other socket, at whatever moment that is put there', async () => {
    for (let steps = 0; steps < 30; steps += 1) {
      const directory = await tempDirectory('memory')
      const path = join(directory, 's')
      const listener = await listen(path)
      const other = createServer().listen(join(directory, 'other'))
      onTestFinished(() => void other.close())
      await once(other, 'listening')
      const { ino, mode } = lstatSync(join(directory, 'other'))
      const moving = listener.setAccess({ path, mode: 0o666, gid: null }).catch(() => undefined)
      for (let step = 0; step < steps; step += 1) await Promise.resolve()
      renameSync(join(directory, 'other'), path)
      await moving
      expect(lstatSync(path)).toMatchObject({ ino, mode })
    }
  })

  it.each([
    ['removed', () => undefined],
    ['exchanged for a link', (path: string) => symlinkSync('nowhere', path)],
  ])('is opened again once it was %s, and left alone otherwise', async (_, exchange) => {
    const directory = await tempDirectory('memory')
    const path = join(directory, 's')
    const { log, events: logged } = createRecords()
    const listener = await openListener({ path, mode: 0o600, gid: null }, { ...events, log })
    onTestFinished(async () => listener.close())
    const { ino } = lstatSync(path)
    await listener.tick()
    expect([lstatSync(path).ino, logged()]).toEqual([ino, []])
    unlinkSync(path)
    exchange(path)
    await listener.tick()
    expect(logged()).toEqual([existsSync(path) ? 'socket-restored' : 'socket-error'])
    if (lstatSync(path).isSymbolicLink()) unlinkSync(path)
    await listener.tick()
    expect(await answers(path)).toBe(true)
  })

  it('that can accept no connection is one record, with the reason, however often', async () => {
    const path = join(await tempDirectory('memory'), 's')
    const servers: Server[] = []
    const createOne = () => servers[servers.push(createServer()) - 1]!
    const { log, of } = createRecords()
    const options = { createServer: createOne, transport: 'ipc', log }
    const listener = await openListener({ path, mode: 0o600, gid: null }, options)
    onTestFinished(async () => listener.close())
    for (const server of servers) server.emit('error', new Error('accept EMFILE'))
    expect(of('connection-fault')).toMatchObject([
      { level: 'error', transport: 'ipc', detail: 'accept EMFILE' },
    ])
  })

  it('names its own path and the remedy where its directory is not there', async () => {
    const path = join(await tempDirectory(), 'none', 's')
    await expect(listen(path)).rejects.toMatchObject({
      status: 78,
      message: expect.stringContaining(
        `${path}: the directory ${join(path, '..')} is not there: \`install -d`,
      ) as string,
    })
  })

  it('of two processes that bind at one moment one has it, four times over, twice over a dead one', async () => {
    const [directory, gate] = [await tempDirectory(), await tempDirectory()]
    const script = `
      import { existsSync } from 'node:fs'
      import { createServer } from 'node:net'
      import { openListener } from '${join(import.meta.dirname, '../../../src/delivery/listener/listener.ts')}'
      const events = { createServer, transport: 'ipc', log: () => undefined }
      for (const round of [1, 2, 3, 4]) {
        process.stdout.write('ready\\n')
        while (!existsSync('${gate}/' + round)) {}
        const address = { path: '${directory}/' + round, mode: 0o600, gid: null }
        const outcome = await openListener(address, events).then(() => 'bound', ({ status }) => status)
        process.stdout.write(outcome + '\\n')
      }`
    const both = [0, 1].map(() => {
      const child = spawn(process.execPath, ['--input-type=module-typescript', '--eval', script])
      onTestFinished(() => void child.kill('SIGKILL'))
      let said = ''
      child.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()))
      return () => said.split('\n').filter(Boolean)
    })
    for (const round of [1, 2, 3, 4]) {
      await expectUntil('both', () => both.every((said) => said().length === round * 2 - 1))
      if (round % 2 === 0) await (await spawnListener(join(directory, String(round)))).kill()
      writeFileSync(join(gate, String(round)), '')
      await expectUntil('their outcomes', () => both.every((said) => said().length >= round * 2))
      expect(new Set(both.map((said) => said()[round * 2 - 1]))).toEqual(new Set(['69', 'bound']))
    }
  })
})

it('no directory is locked while a process answers at a socket of the settings', async () => {
  const [path, runtimeDirectory] = [join(await tempDirectory(), 's'), await tempDirectory()]
  const sockets = { ipc: { path } as SocketConfig, http: null }
  await listen(path)
  await expect(
    acquireInstanceLock(
      { ...sockets, runtimeDirectory, stateDirectory: runtimeDirectory },
      { ipc: [], http: [], metrics: [], unknown: [] },
    ),
  ).rejects.toMatchObject({ status: 69 })
  expect(readdirSync(runtimeDirectory)).toEqual([])
})
