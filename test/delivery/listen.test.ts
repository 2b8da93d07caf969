import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import {
  closeSync,
  existsSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import {
  closeUnknownSockets,
  listenAt,
  takeInheritedSockets,
  type Listening,
} from '../../src/delivery/listen.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const callers = { onConnection: (socket: { destroy(): void }) => socket.destroy(), onFault: () => undefined }

async function listen(path: string, { mode = 0o600, gid = null as number | null } = {}): Promise<Listening> {
  const listening = await listenAt({ path, mode, gid }, callers)
  onTestFinished(() => listening.close())
  return listening
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
  const program = `require('node:net').createServer(s => s.destroy()).listen(${JSON.stringify(path)}, () => console.log('listening'))`
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
  it('has its mode whatever the umask, and goes when it is closed', async () => {
    const path = join(await tempDirectory(), 's')
    const before = process.umask(0o077)
    onTestFinished(() => void process.umask(before))
    const listening = await listen(path, { mode: 0o666 })
    expect(process.umask()).toBe(0o077)
    expect(lstatSync(path).mode & 0o777).toBe(0o666)
    expect(readdirSync(join(path, '..'))).toEqual(['s'])
    listening.close()
    expect(existsSync(path)).toBe(false)
  })

  it.skipIf(process.getuid?.() !== 0)('has its group', async () => {
    const path = join(await tempDirectory(), 's')
    await listen(path, { gid: 4242 })
    expect(lstatSync(path).gid).toBe(4242)
  })

  it('is never taken over while somebody answers', async () => {
    const path = join(await tempDirectory(), 's')
    await listen(path)
    await expect(listen(path)).rejects.toMatchObject({ status: 69 })
    expect(await answers(path)).toBe(true)
  })

  it('replaces a dead one', async () => {
    const path = join(await tempDirectory(), 's')
    const dead = await spawnListener(path)
    await dead.kill()
    expect(lstatSync(path).isSocket()).toBe(true)
    await listen(path)
    expect(await answers(path)).toBe(true)
  })

  it.each(['file', 'directory', 'link'])('leaves a %s in its way alone', async (kind) => {
    const path = join(await tempDirectory(), 's')
    if (kind === 'file') writeFileSync(path, 'precious')
    else if (kind === 'directory') mkdirSync(path)
    else symlinkSync('/nowhere', path)
    const { ino } = lstatSync(path)
    await expect(listen(path)).rejects.toMatchObject({ status: 78 })
    expect(lstatSync(path).ino).toBe(ino)
  })

  it('does not remove what another has put in its place', async () => {
    const path = join(await tempDirectory(), 's')
    const listening = await listen(path)
    renameSync(path, `${path}.away`)
    const other = await listen(path)
    listening.close()
    expect(await answers(path)).toBe(true)
    other.close()
  })

  it('tells its own path and the remedy where its directory is not there', async () => {
    const path = join(await tempDirectory(), 'none', 's')
    await expect(listen(path)).rejects.toMatchObject({
      status: 78,
      message: `No socket can be made at ${path} (its directory is not there): make it, or set another \`path\``,
    })
  })

  it('may have a path that is longer than the address of a socket', async () => {
    const directory = join(await tempDirectory(), 'x'.repeat(100))
    mkdirSync(directory)
    const path = join(directory, 's')
    const outcomes = await Promise.allSettled([listen(path), listen(path)])
    expect(outcomes.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected'])
    await expect(listen(path)).rejects.toMatchObject({ status: 69 })
    expect(readdirSync(directory)).toEqual(['s'])
    for (const outcome of outcomes) if (outcome.status === 'fulfilled') outcome.value.close()
    expect(readdirSync(directory)).toEqual([])
  })

  it('is clear about a way that leads nowhere, and closes in peace where the way to it was barred', async () => {
    const directory = await tempDirectory()
    const folder = join(directory, 'folder')
    mkdirSync(folder)
    const listening = await listen(join(folder, 's'))
    expect(listening.isThere()).toBe(true)
    renameSync(folder, `${folder}.away`)
    // A link to itself: whoever follows it is told ELOOP, also as root.
    symlinkSync(folder, folder)
    await expect(listen(join(folder, 's'))).rejects.toMatchObject({ status: 78 })
    expect(listening.isThere()).toBe(false)
    listening.close()
    expect(await answers(join(`${folder}.away`, 's'))).toBe(false)
  })

  it('lets one of many that start at once live, also over a dead one', async () => {
    for (let round = 0; round < 10; round += 1) {
      const path = join(await tempDirectory(), 's')
      const dead = createServer().listen(`${path}.dead`)
      await once(dead, 'listening')
      renameSync(`${path}.dead`, path)
      dead.close()
      const outcomes = await Promise.allSettled(Array.from({ length: 8 }, async () => listen(path)))
      const living = outcomes.filter(({ status }) => status === 'fulfilled')
      const faults = outcomes.flatMap((outcome) =>
        outcome.status === 'rejected' ? [outcome.reason as object] : [],
      )
      expect(living).toHaveLength(1)
      for (const fault of faults) expect(fault).toMatchObject({ status: 69 })
      expect(readdirSync(join(path, '..'))).toEqual(['s'])
    }
  })

  it('stands again where a rival took it for dead, before it was fit to answer', async () => {
    const directory = await tempDirectory()
    const umask = process.umask.bind(process)
    const set = vi.spyOn(process, 'umask').mockImplementation((mask) => {
      // The second call puts it back: then the name is there.
      if (set.mock.calls.length === 2)
        for (const name of readdirSync(directory)) unlinkSync(join(directory, name))
      return umask(mask ?? 0)
    })
    onTestFinished(() => set.mockRestore())
    await listen(join(directory, 's'))
    expect(await answers(join(directory, 's'))).toBe(true)
    expect(readdirSync(directory)).toEqual(['s'])
  })

  it('is not held up by what a crash left behind in the midst of a start', async () => {
    const directory = await tempDirectory()
    const path = join(directory, 's')
    const listening = await listen(path)
    listening.close()
    const candidate = createHash('sha256').update('s').digest('hex').slice(0, 4)
    const dead = await spawnListener(join(directory, `.${candidate}.000000`))
    await dead.kill()
    await listen(path)
    expect(readdirSync(directory)).toEqual(['s'])
  })
})

describe('inherited sockets', () => {
  const none = { ipc: [], http: [], unknown: [] }

  it('are known by their names, several of one name too, and are taken out of the environment', () => {
    const env = { LISTEN_PID: '7', LISTEN_FDS: '5', LISTEN_FDNAMES: 'http:other:ipc:ipc', PATH: '/bin' }
    expect(takeInheritedSockets(env, 7)).toEqual({
      http: [3],
      ipc: [5, 6],
      unknown: [
        { name: 'other', fd: 4 },
        { name: 'unknown', fd: 7 },
      ],
    })
    expect(env).toEqual({ PATH: '/bin' })
  })

  it('are not ours where they are for another process', () => {
    const env = { LISTEN_PID: '8', LISTEN_FDS: '1', LISTEN_FDNAMES: 'ipc' }
    expect(takeInheritedSockets(env, 7)).toEqual(none)
    expect(env).toEqual({})
  })

  it.each([undefined, '', '0', '-1', '1e9', 'two'])('none, where LISTEN_FDS is %s', (LISTEN_FDS) => {
    expect(takeInheritedSockets({ LISTEN_PID: '7', LISTEN_FDS, LISTEN_FDNAMES: 'ipc' }, 7)).toEqual(none)
  })

  it('of other names are closed, and nothing else that their descriptors may be', () => {
    const file = openSync('/dev/null', 'r')
    onTestFinished(() => closeSync(file))
    const unknown = [
      { name: 'file', fd: file },
      { name: 'none', fd: 9_999 },
    ]
    closeUnknownSockets({ ...none, unknown })
    expect(fstatSync(file).isCharacterDevice()).toBe(true)
  })
})
