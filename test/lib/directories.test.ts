import { rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { createDirectories } from '../../src/lib/directories.ts'
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
