import { chmodSync, chownSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { findSocket, socketName, untrustedReason } from '../../src/client/find-socket.ts'
import { nameOf } from '../../src/lib/posix-ids.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const me = process.getuid!()
/** The owner of the directories of these tests, and another user who is not root. */
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

describe('the name of a socket', () => {
  const identity = (env: NodeJS.ProcessEnv): { env: NodeJS.ProcessEnv; uid: number } => ({ env, uid: owner })
  const both = { KYC_TOKEND_SOCKET: '/somewhere/ipc.sock', KYC_TOKEND_ACCOUNT: 'uk' }
  const refused = (message: RegExp): unknown =>
    expect.objectContaining({ status: 64, message: expect.stringMatching(message) as string })

  test('is that of the options, else that of the environment', () => {
    const env = { KYC_TOKEND_SOCKET: '/somewhere/ipc.sock' }
    expect(socketName(identity(env), { socketPath: '/a.sock' })).toEqual({ socketPath: '/a.sock' })
    expect(socketName(identity(env), {})).toEqual({ socketPath: '/somewhere/ipc.sock' })
    expect(socketName(identity({ KYC_TOKEND_ACCOUNT: 'uk' }), {})).toEqual({ account: 'uk' })
    expect(socketName(identity({ KYC_TOKEND_SOCKET: '' }), {})).toEqual({})
  })
  test('is a path or an account: an option of either kind beats the environment of both', () => {
    expect(socketName(identity(both), { account: 'us' })).toEqual({ account: 'us' })
    expect(socketName(identity(both), { socketPath: '/a.sock' })).toEqual({ socketPath: '/a.sock' })
    expect(() => socketName(identity({}), { socketPath: '/a.sock', account: 'us' })).toThrow(
      refused(/^The socket and the account are both given/),
    )
    expect(() => socketName(identity(both), {})).toThrow(
      refused(/^\$KYC_TOKEND_SOCKET and \$KYC_TOKEND_ACCOUNT are both given/),
    )
  })
  test.each(['../x', 'A', '-a', 'a/b', 'a'.repeat(33)])('has no account %s', (account) => {
    expect(() => socketName(identity({}), { account })).toThrow(refused(/letters, digits and hyphens/))
  })
})

test('the socket of an account is in its own directory; of an unknown one, the known ones are listed', async () => {
  const accounts = await tempDirectory()
  const find = (account: string): string | undefined =>
    findSocket({ env: {}, uid: owner }, { account }, accounts)
  const unknown = (list: string): Error =>
    expect.objectContaining({ status: 69, message: `There is no account \`eu\` here; ${list}.` }) as Error
  expect(() => find('eu')).toThrow(unknown('there are none'))
  for (const name of ['us', 'uk']) mkdirSync(join(accounts, name))
  expect(find('us')).toBe(join(accounts, 'us', 'ipc.sock'))
  expect(() => find('eu')).toThrow(unknown('there are: `uk`, `us`'))
})

describe.skipIf(me !== 0)(
  'in a directory where everybody may make names (skipped where it is not root)',
  () => {
    test('the directory of the person and of root is trusted, that of another is not', async () => {
      const temp = await sharedDirectory()
      const mine = directoryAt(join(temp, 'mine'), { mode: 0o700 })
      expect(untrustedReason(mine, owner)).toBeUndefined()
      expect(untrustedReason(mine, another)).toBe(
        `${mine} belongs to another user (${nameOf('user', owner)})`,
      )
      expect(untrustedReason(directoryAt(join(temp, 'root'), { mode: 0o755, uid: 0 }), owner)).toBeUndefined()
    })
    test('a link is not trusted, also to a directory of the person', async () => {
      const temp = await sharedDirectory()
      const link = join(temp, 'link')
      symlinkSync(directoryAt(join(temp, 'mine'), { mode: 0o700 }), link)
      expect(untrustedReason(link, owner)).toMatch(/link is a link, which others could have made/)
    })
    test('nor is one that may be replaced by another', async () => {
      const temp = await sharedDirectory()
      const mine = directoryAt(join(temp, 'mine'), { mode: 0o700 })
      chmodSync(temp, 0o777)
      expect(untrustedReason(mine, owner)).toBe(`others can write to ${temp}`)
      chmodSync(temp, 0o755)
      chownSync(temp, another, -1)
      expect(untrustedReason(mine, owner)).toBe(
        `${temp} belongs to another user (${nameOf('user', another)})`,
      )
    })
    test('nor is one that vanishes while it is read', async () => {
      expect(untrustedReason(join(await sharedDirectory(), 'gone'), owner)).toMatch(/gone cannot be read/)
    })
  },
)

describe('in a directory where no other user makes names, such as /run', () => {
  test('a directory is trusted, whichever user owns it, and through a link too', async () => {
    const run = await tempDirectory()
    const directory = directoryAt(join(run, 'kyc-tokend'), { mode: 0o2751, uid: another })
    symlinkSync(directory, join(run, 'link'))
    expect(untrustedReason(directory, me)).toBeUndefined()
    expect(untrustedReason(join(run, 'link'), me)).toBeUndefined()
  })
  test.each([0o777, 0o1777, 0o775])(
    'one of mode %o is not: others could make the socket in it',
    async (mode) => {
      const directory = directoryAt(join(await tempDirectory(), 'kyc-tokend'), { mode })
      expect(untrustedReason(directory, me)).toBe(`others can write to ${directory}`)
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
    expect(findSocket(asker, {})).toBeUndefined()
    writeFileSync(join(directory, 'ipc.sock'), '')
    expect(() => findSocket(asker, {})).toThrow(
      expect.objectContaining({
        status: 77,
        message: `The socket ${directory}/ipc.sock is not trusted, because others can write to ${directory}, and could answer instead of the daemon: fix that, or name the daemon's socket with --socket or $KYC_TOKEND_SOCKET.`,
      }) as Error,
    )
    chmodSync(directory, 0o700)
    expect(findSocket(asker, {})).toBe(`${directory}/ipc.sock`)
  },
)
