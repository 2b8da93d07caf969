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
import { openListener } from '../../../src/delivery/listener/listener.ts'
import { removeFile, replaceFile } from '../../../src/files/replace-file.ts'
import { FileError } from '../../../src/files/file-error.ts'
import { UserError } from '../../../src/lib/error.ts'
import { loadLibc } from '../../../src/lib/libc.ts'
import { tempDirectory } from '../../support/temp-directory.ts'

const isRoot = process.geteuid?.() === 0
const ATTACKER = 65533
const ATTACKS_MS = 700
const NONE = { ipc: [], http: [], metrics: [], unknown: [] }
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

describe.skipIf(!isRoot).each(Object.entries(fakes))('exchanged for %s', (_, fake) => {
  /** Acts for a while, and until it has been done and refused, each at least once. */
  async function expectUntouchedBy(
    act: (done: number) => Promise<void>,
    expectUntouched: () => void,
  ): Promise<void> {
    const outcomes = { done: 0, refused: 0 }
    const until = performance.now() + ATTACKS_MS
    while (performance.now() < until || outcomes.done === 0 || outcomes.refused === 0) {
      try {
        await act(outcomes.done)
        outcomes.done += 1
      } catch (error) {
        if (!(error instanceof FileError || error instanceof UserError)) throw error
        outcomes.refused += 1
      }
      expectUntouched()
    }
  }

  it('a token file is written in its own directory or not at all', async () => {
    const { directory, expectUntouched, stage, endAttack } = await createStage(fake)
    const path = join(directory, 'token')
    await expectUntouchedBy(async (done) => {
      if (done % 3 === 2) await removeFile(path)
      else await replaceFile(path, { text: 'secret', attributes: { mode: 0o644, uid: 1, gid: 1 } })
    }, expectUntouched)
    await endAttack()
    for (const name of readdirSync(stage)) {
      const each = join(stage, name)
      const { uid } = lstatSync(each)
      if (uid === ATTACKER) expect(readdirSync(each)).toEqual(['s', 'token'])
    }
  })

  it('a socket is bound, given away and removed in its own directory or not at all', async () => {
    const { directory, expectUntouched } = await createStage(fake)
    const address = { path: join(directory, 's'), mode: 0o600, gid: null }
    await expectUntouchedBy(async () => {
      const listener = await openListener(address, events)
      try {
        await listener.setAccess({ ...address, mode: 0o666, gid: 1 })
        expectUntouched()
      } finally {
        await listener.close()
      }
    }, expectUntouched)
  })
})

describe.skipIf(!isRoot)('for root', () => {
  const listen = async (directory: string): Promise<void> => {
    const listener = await openListener({ path: join(directory, 's'), mode: 0o600, gid: null }, events)
    await listener.close()
  }
  const damages: [string, (directory: string) => void, string][] = [
    ['belongs to another user', (directory) => chownSync(directory, ATTACKER, ATTACKER), 'chown -h root '],
    ['can be written by all', (directory) => chmodSync(directory, 0o777), 'medium: Memory'],
  ]

  it.each(damages)(
    'a directory that %s is refused for sockets, and as a runtime directory (78), not as a state directory',
    async (_, damage, remedy) => {
      const [good, bad] = [await tempDirectory(), await tempDirectory()]
      damage(bad)
      const message = expect.stringContaining(remedy) as string
      await expect(listen(bad)).rejects.toMatchObject({ status: 78, message })
      const sockets = { ipc: { path: join(good, 's') } as SocketConfig, http: null }
      const runtime = { ...sockets, runtimeDirectory: bad, stateDirectory: good }
      await expect(acquireInstanceLock(runtime, NONE)).rejects.toMatchObject({
        status: 78,
        message: expect.stringContaining('`runtimeDirectory`') as string,
      })
      const state = { ...sockets, runtimeDirectory: good, stateDirectory: bad }
      expect((await acquireInstanceLock(state, NONE)).unlocked).toContain('`stateDirectory`')
      expect(readdirSync(bad)).toEqual([])
    },
  )

  it.each([0o1777, 0o775])('one of the mode %o, sticky or of its group, is used', async (mode) => {
    const directory = await tempDirectory()
    chmodSync(directory, mode)
    await expect(listen(directory)).resolves.toBeUndefined()
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

describe.skipIf(!isRoot)('another user than root', () => {
  /** What a program prints that runs as another user, with functions of the listener. */
  async function printed(text: string): Promise<string> {
    const source = (name: string): string => new URL(`../../../src/${name}`, import.meta.url).href
    const program = `
      import { openListener } from '${source('delivery/listener/listener.ts')}'
      import { acquireInstanceLock } from '${source('daemon/instance-lock.ts')}'
      import { replaceFile } from '${source('files/replace-file.ts')}'
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
