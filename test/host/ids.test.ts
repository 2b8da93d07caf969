import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

import { idOf, localUser, nameOf } from '../../src/host/ids.ts'
import { lacks } from '../support/lacks.ts'
import { canMount } from '../support/small-disk.ts'
import { tempDirectory } from '../support/temp-directory.ts'

describe('the id of an account', () => {
  it('is that of a name, or the number itself', async () => {
    expect(await idOf('user', 'root')).toBe(0)
    expect(await idOf('group', 'root')).toBe(0)
    expect(await idOf('user', 4242)).toBe(4242)
    expect(await idOf('user', '4242')).toBe(4242)
    expect(localUser('root')).toEqual({ uid: 0, gid: 0 })
  })
  it('is none for an unknown name, an option of getent or a number too large', async () => {
    expect(await idOf('user', 'no-such-user')).toBeUndefined()
    expect(await idOf('group', '--help')).toBeUndefined()
    expect(await idOf('user', '4294967295')).toBeUndefined()
    expect(localUser('no-such-user')).toBeUndefined()
  })
  it('is the name of what a remedy gives it to, where it is known here', () => {
    const names = [nameOf('user', 0), nameOf('group', 0), nameOf('user', 4_242_424)]
    expect(names).toEqual(['root', 'root', '4242424'])
  })
  it.skipIf(!canMount || lacks('getent', 'unshare'))(
    'is that of the name service, or none, soon, where that does not answer',
    async () => {
      const directory = await tempDirectory()
      const getent = join(directory, 'getent')
      const script =
        '#!/bin/sh\n[ "$*" = "passwd -- 7known7" ] && exec echo 7known7:x:4711:1::/:/bin/sh\nexec sleep 60\n'
      writeFileSync(getent, script, { mode: 0o755 })
      const accounts = new URL('../../src/host/ids.ts', import.meta.url).href
      const program = `import(${JSON.stringify(accounts)}).then(async ({ idOf }) => {
      const before = performance.now()
      const ids = [await idOf('user', '7known7'), await idOf('user', 'unknown')]
      console.log(...ids, performance.now() - before < 15_000)
    })`
      const inside = 'mount --bind "$0" "$(command -v getent)" && exec "$@"'
      const args = ['--mount', 'sh', '-c', inside, getent, process.execPath, '-e', program]
      expect(spawnSync('unshare', args, { encoding: 'utf8' }).stdout).toBe('4711 undefined true\n')
    },
  )
})
