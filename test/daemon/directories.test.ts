import { chmodSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isMainThread } from 'node:worker_threads'
import { beforeEach, describe, expect, it, onTestFinished, test, vi } from 'vitest'
import { createDirectories } from '../../src/daemon/directories.ts'
import { inDirectory } from '../../src/files/in-directory.ts'
import { UserError } from '../../src/lib/error.ts'
import { tempDirectory } from '../support/temp-directory.ts'

test.each([
  ['memory', 'root', 0, 0o755],
  ['disk', 'an ordinary user', 65_533, 0o700],
] as const)(
  'the directories, in %s, of %s, are made, and made again once nothing is in their way',
  async (where, _who, owner, mode) => {
    const parent = await tempDirectory(where)
    const [runtimeDirectory, stateDirectory] = [join(parent, 'run'), join(parent, 'state')]
    vi.spyOn(process, 'geteuid').mockReturnValueOnce(owner)
    const directories = createDirectories({ runtimeDirectory, stateDirectory })
    const open = readdirSync('/proc/self/fd').length
    await directories.prepare()
    expect(readdirSync('/proc/self/fd')).toHaveLength(open)
    const { ino } = statSync(stateDirectory)
    await directories.tick()
    expect(statSync(stateDirectory).ino).toBe(ino)
    rmSync(runtimeDirectory, { recursive: true })
    rmSync(stateDirectory, { recursive: true })
    writeFileSync(stateDirectory, '')
    await directories.tick()
    expect(statSync(runtimeDirectory).mode & 0o777).toBe(mode)
    rmSync(stateDirectory)
    await directories.tick()
    expect(statSync(stateDirectory).mode & 0o777).toBe(0o700)
  },
)

test('where its disk does not answer the state directory is done without, the other is not', async () => {
  const [slow, other] = [await tempDirectory('memory'), await tempDirectory('disk')]
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'setImmediate', 'clearImmediate'] })
  const { promise: ended, resolve: end } = Promise.withResolvers<void>()
  const done = inDirectory(slow, async () => ended).catch(() => undefined)
  onTestFinished(async () => {
    vi.useRealTimers()
    end()
    await done
  })
  const prepared = createDirectories({ runtimeDirectory: other, stateDirectory: slow }).prepare()
  await vi.advanceTimersByTimeAsync(5_002)
  await prepared
  const refused = createDirectories({ runtimeDirectory: slow, stateDirectory: other }).prepare()
  await expect(refused).rejects.toMatchObject({
    status: 75,
    message:
      `The directory ${slow} cannot be used: the disk of ${slow} has not answered for 5 s: ` +
      'check the disk or its server, or set another directory.',
  })
})

describe('a state directory', () => {
  let base: string
  beforeEach(async () => {
    base = await tempDirectory()
  })
  const stateAt = (...names: string[]) =>
    createDirectories({ runtimeDirectory: base, stateDirectory: join(base, ...names) })
  const modeOf = (path: string) => statSync(path).mode & 0o7777

  // Planted faults run in threads, which share one umask.
  it.skipIf(!isMainThread).each([0o000, 0o277])(
    'gets its mode whatever the umask (%o), and what is missing above is made',
    async (mask) => {
      const umask = process.umask(mask)
      onTestFinished(() => void process.umask(umask))
      await stateAt('b').prepare()
      expect(modeOf(join(base, 'b'))).toBe(0o700)
      process.umask(umask)
      await stateAt('c', 'd').prepare()
      expect(modeOf(join(base, 'c', 'd'))).toBe(0o700)
    },
  )
  it('that is there stays as it is', async () => {
    const path = join(base, 'there')
    mkdirSync(path)
    chmodSync(path, 0o2750)
    await stateAt('there').prepare()
    expect(modeOf(path)).toBe(0o2750)
  })
  it.each([['file'], ['file', 'x'], ['file', 'x', 'y']])(
    'says what to do where a file is in the way: %s %s %s',
    async (...names) => {
      writeFileSync(join(base, 'file'), '')
      await expect(stateAt(...names).prepare()).rejects.toThrow(/a part of its path is no directory: remove/)
    },
  )
  it('says why it cannot be made, and where another is set', async () => {
    const prepared = stateAt('x'.repeat(256)).prepare()
    await expect(prepared).rejects.toThrow(/x cannot be used: ENAMETOOLONG.*, or set another directory\.$/)
    await expect(prepared).rejects.toThrow(UserError)
  })
})
