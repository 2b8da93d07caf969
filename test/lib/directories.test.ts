import { chmodSync, chownSync, mkdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, onTestFinished, test, vi } from 'vitest'
import { createDirectories, prepareDirectory } from '../../src/lib/directories.ts'
import { UserError } from '../../src/lib/error.ts'
import { asFileError } from '../../src/lib/file-error.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const uid = process.geteuid!()

test.each(['memory', 'disk'] as const)(
  'the directories, in %s, are made, made again where they were removed, and one in the way is logged once',
  async (where) => {
    const parent = await tempDirectory(where)
    const [runtimeDirectory, stateDirectory] = [join(parent, 'run'), join(parent, 'state')]
    const directories = createDirectories({ runtimeDirectory, stateDirectory, uid })
    const { log, events } = createRecords()
    await directories.prepare()
    const { ino } = statSync(stateDirectory)
    await directories.tick(log)
    expect(statSync(stateDirectory).ino).toBe(ino)
    rmSync(runtimeDirectory, { recursive: true })
    rmSync(stateDirectory, { recursive: true })
    writeFileSync(stateDirectory, '')
    await directories.tick(log)
    await directories.tick(log)
    expect(statSync(runtimeDirectory).isDirectory()).toBe(true)
    expect(events()).toEqual(['directory-error'])
    rmSync(stateDirectory)
    await directories.tick(log)
    expect(statSync(stateDirectory).mode & 0o777).toBe(0o700)
    expect(events()).toEqual(['directory-error'])
  },
)

test('a runtime directory of the unit has the cure of its account as the remedy', async () => {
  const directory = '/run/kyc-tokend/accounts/no-such-account'
  vi.stubEnv('RUNTIME_DIRECTORY', directory)
  onTestFinished(() => void vi.unstubAllEnvs())
  expect(
    asFileError(`${directory}/token`, Object.assign(new Error('none'), { code: 'ENOENT' })),
  ).toMatchObject({
    message: `Cannot write ${directory}/token: the directory ${directory} is not there: sudo systemd-tmpfiles --create && sudo systemctl restart kyc-tokend@no-such-account.socket kyc-tokend-http@no-such-account.socket kyc-tokend-alert@no-such-account.path`,
  })
})

describe('prepareDirectory', () => {
  let base: string
  beforeEach(async () => {
    base = await tempDirectory()
  })
  const modeOf = (path: string) => statSync(path).mode & 0o7777

  it('gives the mode whatever the umask, and makes what is missing above', async () => {
    const path = join(base, 'a', 'b')
    await prepareDirectory(path, { mode: 0o775, uid })
    expect(modeOf(path)).toBe(0o775)
  })
  it('leaves one that is there as it is', async () => {
    const path = join(base, 'there')
    mkdirSync(path)
    chmodSync(path, 0o2750)
    await prepareDirectory(path, { mode: 0o700, uid })
    expect(modeOf(path)).toBe(0o2750)
  })
  it('says what to do where a file is in the way', async () => {
    writeFileSync(join(base, 'file'), '')
    await expect(prepareDirectory(join(base, 'file'), { mode: 0o700, uid })).rejects.toThrow(
      /is something else: remove/,
    )
    await expect(prepareDirectory(join(base, 'file', 'x'), { mode: 0o700, uid })).rejects.toThrow(UserError)
  })

  it('of another user, one that all can write, and a link are not to be used', async () => {
    for (const name of ['own', 'open', 'target']) mkdirSync(join(base, name))
    chmodSync(join(base, 'open'), 0o777)
    symlinkSync(join(base, 'target'), join(base, 'link'))
    symlinkSync(join(base, 'nowhere'), join(base, 'dangling'))
    const problemOf = async (name: string, user = uid) =>
      prepareDirectory(join(base, name), { mode: 0o700, uid: user })
    expect(await problemOf('own')).toBeUndefined()
    expect(await problemOf('open')).toContain('every user can write in the directory')
    expect(await problemOf('link')).toContain('name the directory itself')
    expect(await problemOf('dangling')).toContain('name the directory itself')
    if (uid !== 0) return
    chownSync(join(base, 'own'), 4242, 0)
    expect(await problemOf('own')).toContain('belongs to the user 4242')
  })
})
