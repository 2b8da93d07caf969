// Another user exchanges directories and links while root's daemon creates, chowns, chmods and renames in
// them.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  closeSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { SocketConfig } from '../../../src/config/config.ts'
import { acquireInstanceLock } from '../../../src/daemon/instance-lock.ts'
import { openListener, type Listener } from '../../../src/delivery/listener/listener.ts'
import { removeFile, replaceFile } from '../../../src/files/atomic-file.ts'
import { FileError } from '../../../src/files/file-error.ts'
import { UserError } from '../../../src/lib/error.ts'
import { loadLibc } from '../../../src/lib/libc.ts'
import { tempDirectory } from '../../support/temp-directory.ts'

const ATTACKER = 65533
const ATTACKS_MS = 700
const NONE = { ipc: [], http: [], metrics: [], credential: [], unknown: [] }
const events = {
  createServer: () => createServer((socket) => socket.destroy()),
  transport: 'ipc',
  log: () => undefined,
}

/** A directory of the attacker that holds one of root's, `real`, beside what it exchanges it for, `fake`. */
async function createStage(fake: (path: string, target: string) => void) {
  const base = await tempDirectory()
  const precious = join(base, 'precious')
  const stage = join(base, 'stage')
  chmodSync(base, 0o755)
  for (const path of [precious, stage, join(stage, 'real')]) mkdirSync(path, { mode: 0o755 })
  for (const name of ['token', 's']) writeFileSync(join(precious, name), 'precious', { mode: 0o600 })
  fake(join(stage, 'fake'), precious)
  chownSync(stage, ATTACKER, ATTACKER)
  const args = [new URL('../../support/exchange.ts', import.meta.url).pathname]
  const attacker = spawn(process.execPath, [...args, join(stage, 'real'), join(stage, 'fake')], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void attacker.kill('SIGKILL'))
  await once(attacker.stdout, 'data')
  const before = stateOf(precious)
  return {
    directory: join(stage, 'real'),
    stage,
    expectUntouched: () => expect(stateOf(precious)).toEqual(before),
    endAttack: async (): Promise<void> => {
      attacker.kill('SIGKILL')
      await once(attacker, 'exit')
    },
  }
}

function stateOf(directory: string): unknown {
  return ['.', ...readdirSync(directory)].map((name) => {
    const { ino, mode, uid, gid, mtimeMs, ctimeMs } = lstatSync(join(directory, name))
    return { name, ino, mode, uid, gid, mtimeMs, ctimeMs }
  })
}

const fakes = {
  'a link': (path: string, target: string) => {
    symlinkSync(target, path)
  },
  'a directory of its own with links in it': (path: string, target: string) => {
    mkdirSync(path)
    for (const name of ['token', 's']) symlinkSync(join(target, name), join(path, name))
    chownSync(path, ATTACKER, ATTACKER)
  },
}

describe.skipIf(process.geteuid?.() !== 0).each(Object.entries(fakes))('exchanged for %s', (_, fake) => {
  it('a token file is written in its own directory or not at all', async () => {
    const { directory, expectUntouched, stage, endAttack } = await createStage(fake)
    const outcomes = { written: 0, refused: 0 }
    const until = performance.now() + ATTACKS_MS
    while (performance.now() < until || outcomes.written === 0 || outcomes.refused === 0) {
      try {
        const path = join(directory, 'token')
        if (outcomes.written % 3 === 2) await removeFile(path)
        else await replaceFile(path, 'secret', { mode: 0o644, uid: 1, gid: 1 })
        outcomes.written += 1
      } catch (error) {
        if (!(error instanceof FileError)) throw error
        outcomes.refused += 1
      }
      expectUntouched()
    }
    await endAttack()
    for (const name of readdirSync(stage)) {
      const path = join(stage, name)
      const { uid } = lstatSync(path)
      if (uid === ATTACKER) expect(readdirSync(path)).toEqual(['s', 'token'])
    }
  })

  it('a socket is bound, given away and removed in its own directory or not at all', async () => {
    const { directory, expectUntouched } = await createStage(fake)
    const outcomes = { bound: 0, refused: 0 }
    const until = performance.now() + ATTACKS_MS
    while (performance.now() < until || outcomes.bound === 0 || outcomes.refused === 0) {
      let listener: Listener | null = null
      const address = { path: join(directory, 's'), mode: 0o600, gid: null }
      try {
        listener = await openListener(address, events)
        await listener.setAccess({ ...address, mode: 0o666, gid: 1 })
        outcomes.bound += 1
      } catch (error) {
        if (!(error instanceof UserError)) throw error
        outcomes.refused += 1
      }
      expectUntouched()
      await listener?.close()
      expectUntouched()
    }
  })
})

describe.skipIf(process.geteuid?.() !== 0)('for root', () => {
  const listen = async (directory: string): Promise<void> => {
    const listener = await openListener({ path: join(directory, 's'), mode: 0o600, gid: null }, events)
    await listener.close()
  }

  it('a directory of another user is refused for sockets (78) and files', async () => {
    const directory = await tempDirectory()
    chownSync(directory, ATTACKER, ATTACKER)
    const message = expect.stringContaining(`chown -h root ${directory}`) as string
    await expect(listen(directory)).rejects.toMatchObject({ status: 78, message })
    await expect(replaceFile(join(directory, 'token'), 'x', { mode: 0o600 })).rejects.toMatchObject({
      kind: 'unsafe-directory',
      writers: { kind: 'user', id: ATTACKER },
    })
    expect(readdirSync(directory)).toEqual([])
  })

  it('one that others can write is refused unless it is sticky; one of its group is not', async () => {
    const directory = await tempDirectory()
    chmodSync(directory, 0o777)
    await expect(listen(directory)).rejects.toMatchObject({
      status: 78,
      message: expect.stringContaining('medium: Memory') as string,
    })
    for (const mode of [0o1777, 0o775]) {
      chmodSync(directory, mode)
      await listen(directory)
      await replaceFile(join(directory, 'token'), 'x', { mode: 0o600 })
    }
  })

  it.each([
    ['belongs to another user', (directory: string) => chownSync(directory, ATTACKER, ATTACKER)],
    ['can be written by all', (directory: string) => chmodSync(directory, 0o777)],
  ])('a runtime directory that %s ends the start (78), a state directory does not', async (_, open) => {
    const [good, bad] = [await tempDirectory(), await tempDirectory()]
    open(bad)
    const sockets = { ipc: { path: join(good, 's') } as SocketConfig, http: null }
    await expect(
      acquireInstanceLock({ ...sockets, runtimeDirectory: bad, stateDirectory: good }, NONE),
    ).rejects.toMatchObject({ status: 78, message: expect.stringContaining('`runtimeDirectory`') as string })
    const lock = await acquireInstanceLock({ ...sockets, runtimeDirectory: good, stateDirectory: bad }, NONE)
    expect(lock.unlocked).toContain('`stateDirectory`')
    expect(readdirSync(bad)).toEqual([])
  })

  it('a living daemon in a refused directory counts first (69)', async () => {
    const directory = await tempDirectory()
    const living = await openListener({ path: join(directory, 's'), mode: 0o600, gid: null }, events)
    onTestFinished(async () => living.close())
    chmodSync(directory, 0o777)
    await expect(listen(directory)).rejects.toMatchObject({ status: 69 })
    chmodSync(directory, 0o700)
  })
})

describe.skipIf(process.geteuid?.() !== 0)('another user than root', () => {
  /** What a program prints that runs as another user, with functions of the listener. */
  async function printed(text: string): Promise<string> {
    const source = (name: string): string => new URL(`../../../src/${name}`, import.meta.url).href
    const program = `
      import { openListener } from '${source('delivery/listener/listener.ts')}'
      import { acquireInstanceLock } from '${source('daemon/instance-lock.ts')}'
      import { replaceFile } from '${source('files/atomic-file.ts')}'
      process.setgroups([]); process.setgid(${ATTACKER}); process.setuid(${ATTACKER})
      const print = (error) => console.log(error.message)
      ${text}`
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let output = ''
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
    expect(await once(child, 'close')).toEqual([0, null])
    return output
  }

  /** The call that locks this directory. */
  function lockIn(directory: string): string {
    const directories = { runtimeDirectory: directory, stateDirectory: directory }
    const config = { ipc: { path: join(directory, 's') }, http: null, ...directories }
    return `acquireInstanceLock(${JSON.stringify(config)}, ${JSON.stringify(NONE)})`
  }

  it('may write a file into a directory of a third one, and opens no socket there', async () => {
    const directory = await tempDirectory()
    chownSync(directory, 4242, ATTACKER)
    chmodSync(directory, 0o770)
    const output = await printed(`
      await replaceFile('${directory}/token', 'x', { mode: 0o600 })
      await openListener({ path: '${directory}/s', mode: 0o600, gid: null }, {}).catch(print)`)
    expect(output).toContain('belongs to the user 4242')
    expect(readdirSync(directory)).toEqual(['token'])
  })

  it('takes the place of a lock in its own directory whose user is gone', async () => {
    const directory = await tempDirectory()
    chownSync(directory, ATTACKER, ATTACKER)
    const path = join(directory, 'instance.lock')
    writeFileSync(path, '', { mode: 0o600 })
    chownSync(path, 12_345, 12_345)
    expect(await printed(`await ${lockIn(directory)}.catch(print); process.exit()`)).toBe('')
    expect(lstatSync(path).uid).toBe(ATTACKER)
  })
  it.each(['s', '.s.new', 'instance.lock'])(
    'is told whose %s it is that stops the start in a sticky directory',
    async (name) => {
      const directory = await tempDirectory()
      chmodSync(directory, 0o1777)
      const path = join(directory, name)
      if (name === 'instance.lock') writeFileSync(path, '')
      else closeSync(loadLibc().listenAt(path, 1))
      chmodSync(path, 0o666)
      chownSync(path, 4242, 4242)
      const output = await printed(`
        await ${lockIn(directory)}.catch(print)
        await openListener({ path: '${directory}/s', mode: 0o600, gid: null }, {}).catch(print)
        process.exit()`)
      expect(output).toContain(
        `${path} belongs to the user 4242, and its directory is sticky: remove it (\`sudo rm -f ${path}\`), or set another \``,
      )
    },
  )
})
