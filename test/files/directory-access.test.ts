import { expect, test } from 'vitest'
import { unsafeDirectory, unwiseDirectory } from '../../src/files/atomic-file.ts'
import { fileRemedy } from '../../src/host/file-remedy.ts'
import { rendered, unitPlace } from '../../src/host/place-commands.ts'
import { directoryAccess } from '../../src/lib/directory-access.ts'

const ME = 4000
const ANOTHER = 4001

const inWords = (error: ReturnType<typeof unsafeDirectory>): string | undefined =>
  error && rendered(fileRemedy(error, unitPlace(undefined)))

test.each([
  // owner, mode, may not be used for sockets, may not be used for files, writers
  [0, 0o755, null, null, 'owner'],
  [ME, 0o700, null, null, 'owner'],
  [ME, 0o2750, null, null, 'owner'],
  [0, 0o1777, null, null, 'sticky'],
  [ME, 0o1775, null, null, 'sticky'],
  [ME, 0o2770, null, null, 'group'],
  [0, 0o777, 'every user', 'every user', 'all'],
  [ME, 0o702, 'every user', 'every user', 'all'],
  [ANOTHER, 0o755, 'another owner', null, 'owner'],
  [ANOTHER, 0o1777, 'another owner', null, 'sticky'],
  [ANOTHER, 0o777, 'another owner', 'every user', 'all'],
] as const)('a directory of user %i with mode %o', (owner, mode, sockets, files, writers) => {
  const stats = { uid: owner, gid: ME, mode: 0o40000 | mode }
  const reason = {
    'another owner': `the user ${ANOTHER} could exchange what is made in /srv/a/d; choose another directory`,
    'every user':
      'every user could exchange what is made in /srv/a/d; choose another directory, or close this one: ' +
      '`sudo chmod o-w /srv/a/d`',
  }
  const isOwnerTrusted = owner !== ANOTHER
  expect(directoryAccess(stats, ME)).toEqual({ isOwnerTrusted, writers })
  for (const [use, expected] of [
    ['sockets', sockets],
    ['files', files],
  ] as const)
    expect(inWords(unsafeDirectory('/srv/a/d', stats, { uid: ME, use }))).toBe(
      expected === null ? undefined : reason[expected],
    )
  expect(unwiseDirectory('/srv/a/d', stats, { uid: ME }) !== undefined).toBe(writers === 'group')
})

test('root writes no file into the directory of another user either, and names its users and groups', () => {
  const stats = { uid: ME, gid: 0, mode: 0o770 }
  expect(unsafeDirectory('/srv/a/d', stats, { uid: 0, use: 'files' })).toMatchObject({ writers: { id: ME } })
  const foreign = unsafeDirectory('/srv/a/d', { ...stats, uid: 1 }, { uid: ME, use: 'sockets' })
  expect(inWords(foreign)).toContain('the user daemon could exchange')
  expect(inWords(unwiseDirectory('/srv/a/d', stats, { uid: ME }))).toContain('the group root could exchange')
})
