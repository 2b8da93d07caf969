import { rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createDirectories } from '../../src/lib/directories.ts'
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
    message: `Cannot write ${directory}/token: the directory ${directory} is not there: sudo systemd-tmpfiles --create && sudo systemctl restart kyc-tokend@no-such-account.socket kyc-tokend-http@no-such-account.socket`,
  })
})
