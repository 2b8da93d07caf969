import {
  chmodSync,
  chownSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { isMainThread } from 'node:worker_threads'
import { beforeEach, describe, expect, it, onTestFinished, test, vi } from 'vitest'
import { createDirectories } from '../../src/lib/directories.ts'
import { inDirectory } from '../../src/lib/in-directory.ts'
import { UserError } from '../../src/lib/error.ts'
import { asFileError } from '../../src/lib/atomic-file.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const uid = process.geteuid!()

test.each([
  ['memory', 'root', 0, 0o755],
  ['disk', 'an ordinary user', 65_533, 0o700],
] as const)(
  'the directories, in %s, of %s, are made, made again where they were removed, and one in the way is logged once',
  async (where, _who, owner, mode) => {
    const parent = await tempDirectory(where)
    const [runtimeDirectory, stateDirectory] = [join(parent, 'run'), join(parent, 'state')]
    vi.spyOn(process, 'geteuid').mockReturnValueOnce(owner)
    const directories = createDirectories({ runtimeDirectory, stateDirectory })
    const { log, events } = createRecords()
    const open = readdirSync('/proc/self/fd').length
    await directories.prepare()
    expect(readdirSync('/proc/self/fd')).toHaveLength(open)
    const { ino } = statSync(stateDirectory)
    await directories.tick(log)
    expect(statSync(stateDirectory).ino).toBe(ino)
    rmSync(runtimeDirectory, { recursive: true })
    rmSync(stateDirectory, { recursive: true })
    writeFileSync(stateDirectory, '')
    await directories.tick(log)
    await directories.tick(log)
    expect(statSync(runtimeDirectory).mode & 0o777).toBe(mode)
    expect(events()).toEqual(['directory-error'])
    rmSync(stateDirectory)
    await directories.tick(log)
    expect(statSync(stateDirectory).mode & 0o777).toBe(0o700)
    expect(events()).toEqual(['directory-error'])
  },
)

test('where its disk does not answer the state directory is done without, and the runtime directory is not', async () => {
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
    message: `The directory ${slow} cannot be used: the disk of ${slow} has not answered for 5 s: check the disk or its server, or set another directory.`,
  })
})

test('a runtime directory of the unit has the cure of its account as the remedy', async () => {
  const directory = '/run/kyc-tokend/accounts/no-such-account'
  vi.stubEnv('RUNTIME_DIRECTORY', directory)
  vi.stubEnv('INVOCATION_ID', 'of-systemd')
  onTestFinished(() => void vi.unstubAllEnvs())
  expect(
    asFileError(`${directory}/token`, Object.assign(new Error('none'), { code: 'ENOENT' })),
  ).toMatchObject({
    message: `Cannot write ${directory}/token: the directory ${directory} is not there: \`sudo systemd-tmpfiles --create kyc-tokend.conf && sudo systemctl try-restart kyc-tokend@no-such-account.socket kyc-tokend-http@no-such-account.socket kyc-tokend-alert@no-such-account.path\``,
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
  it('says what to do where a file is in the way', async () => {
    writeFileSync(join(base, 'file'), '')
    await expect(stateAt('file').prepare()).rejects.toThrow(/a part of its path is no directory: remove that/)
    await expect(stateAt('file', 'x').prepare()).rejects.toThrow(
      /a part of its path is no directory: remove that/,
    )
    await expect(stateAt('file', 'x', 'y').prepare()).rejects.toThrow(
      /a part of its path is no directory: remove that/,
    )
  })
  it('says why it cannot be made, and where another is set', async () => {
    const prepared = stateAt('x'.repeat(256)).prepare()
    await expect(prepared).rejects.toThrow(/x cannot be used: ENAMETOOLONG.*, or set another directory\.$/)
    await expect(prepared).rejects.toThrow(UserError)
  })

  it.each<[string, string | null]>([
    ['own', null],
    ['open', 'every user can write in the directory'],
    ['link', 'name the directory itself'],
    ['dangling', 'name the directory itself'],
    ...(uid === 0 ? [['foreign', 'belongs to the user 4242'] as [string, string]] : []),
  ])('has the problem of the directory itself: %s', async (name, expected) => {
    for (const each of ['own', 'open', 'target', 'foreign']) mkdirSync(join(base, each))
    chmodSync(join(base, 'open'), 0o777)
    if (uid === 0) chownSync(join(base, 'foreign'), 4242, 0)
    symlinkSync(join(base, 'target'), join(base, 'link'))
    symlinkSync(join(base, 'nowhere'), join(base, 'dangling'))
    const { log, of } = createRecords()
    await stateAt(name).tick(log)
    const [level, sentence, path] = ['error', 'A directory cannot be kept', join(base, name)]
    const record = {
      level,
      sentence,
      event: 'directory-error',
      path,
      error: expect.stringContaining(`${expected}`),
    }
    expect(of('directory-error')).toEqual(expected === null ? [] : [record])
  })
})
