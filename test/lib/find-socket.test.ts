import { chmodSync, chownSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { distrustOf, findSocket } from '../../src/lib/find-socket.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const me = process.getuid!()
/** Whose the directories of these tests are, and another who is not root. */
const owner = me === 0 ? 1_234 : me
const another = owner + 1

function directoryAt(path: string, options: { mode: number; uid?: number }): string {
  mkdirSync(path)
  if (me === 0) chownSync(path, options.uid ?? owner, -1)
  chmodSync(path, options.mode)
  return path
}
const isSystemSocketThere = statSync('/run/kyc-tokend', { throwIfNoEntry: false }) !== undefined
/** A directory such as /tmp. */
async function sharedDirectory(): Promise<string> {
  const path = await tempDirectory()
  chmodSync(path, 0o1777)
  return path
}

test('a socket that was named is taken as it is', () => {
  const env = { KYC_TOKEND_SOCKET: '/somewhere/ipc.sock' }
  expect(findSocket({ env, uid: owner }, '/elsewhere/ipc.sock')).toBe('/elsewhere/ipc.sock')
  expect(findSocket({ env, uid: owner })).toBe('/somewhere/ipc.sock')
})

describe.skipIf(me !== 0)(
  'in a directory where everybody may make names (skipped where it is not root)',
  () => {
    test('the directory of the person and of root is trusted, that of another is not', async () => {
      const temp = await sharedDirectory()
      const mine = directoryAt(join(temp, 'mine'), { mode: 0o700 })
      expect(distrustOf(mine, owner)).toBeUndefined()
      expect(distrustOf(mine, another)).toBe(`${mine} belongs to another user (uid ${owner})`)
      expect(distrustOf(directoryAt(join(temp, 'root'), { mode: 0o755, uid: 0 }), owner)).toBeUndefined()
    })
    test('a link is not trusted, whoever made what it leads to', async () => {
      const temp = await sharedDirectory()
      const link = join(temp, 'link')
      symlinkSync(directoryAt(join(temp, 'mine'), { mode: 0o700 }), link)
      expect(distrustOf(link, owner)).toMatch(/link is a link, which others could have made/)
    })
    test('nor is one that may be replaced by another', async () => {
      const temp = await sharedDirectory()
      const mine = directoryAt(join(temp, 'mine'), { mode: 0o700 })
      chmodSync(temp, 0o777)
      expect(distrustOf(mine, owner)).toBe(`others can write to ${temp}`)
      chmodSync(temp, 0o755)
      chownSync(temp, another, -1)
      expect(distrustOf(mine, owner)).toBe(`${temp} belongs to another user (uid ${another})`)
    })
    test('nor is one that vanishes while it is looked at', async () => {
      expect(distrustOf(join(await sharedDirectory(), 'gone'), owner)).toMatch(/gone cannot be looked at/)
    })
  },
)

describe('in a directory where nobody else makes names, such as /run', () => {
  test('a directory is trusted, whoever has it, and through a link too', async () => {
    const run = await tempDirectory()
    const directory = directoryAt(join(run, 'kyc-tokend'), { mode: 0o2751, uid: another })
    symlinkSync(directory, join(run, 'link'))
    expect(distrustOf(directory, me)).toBeUndefined()
    expect(distrustOf(join(run, 'link'), me)).toBeUndefined()
  })
  test.each([0o777, 0o1777, 0o775])(
    'one of mode %o is not: others could make the socket in it',
    async (mode) => {
      const directory = directoryAt(join(await tempDirectory(), 'kyc-tokend'), { mode })
      expect(distrustOf(directory, me)).toBe(`others can write to ${directory}`)
    },
  )
})

test.skipIf(isSystemSocketThere)(
  'what is not trusted is refused with the remedy, and only where there is something to refuse',
  async () => {
    const runtime = await tempDirectory()
    const asker = { env: { XDG_RUNTIME_DIR: runtime }, uid: owner }
    const directory = directoryAt(join(runtime, 'kyc-tokend'), { mode: 0o777 })
    if (me === 0) chownSync(runtime, owner, -1)
    expect(findSocket(asker)).toBeUndefined()
    writeFileSync(join(directory, 'ipc.sock'), '')
    expect(() => findSocket(asker)).toThrow(
      expect.objectContaining({
        status: 77,
        message: `The socket ${directory}/ipc.sock is not trusted, because others can write to ${directory}, and could answer in the daemon's place: mend that, or name the daemon's socket with --socket or $KYC_TOKEND_SOCKET.`,
      }) as Error,
    )
    chmodSync(directory, 0o700)
    expect(findSocket(asker)).toBe(`${directory}/ipc.sock`)
  },
)
