import { chmodSync, chownSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { socketFinder, untrustedReason } from '../../src/client/find-socket.ts'
import { nameOf } from '../../src/host/ids.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const me = process.getuid!()
/** The owner of the directories of these tests, and another user who is not root. */
const owner = me === 0 ? 1_234 : me
const another = owner + 1
const isSystemSocketThere = statSync('/run/kyc-tokend', { throwIfNoEntry: false }) !== undefined

function find(env: NodeJS.ProcessEnv, options: object = {}, accounts?: string): string {
  return socketFinder(() => ({ env, uid: owner }), options, accounts)()
}
const failing = (code: string, message: string): Error => expect.objectContaining({ code, message }) as Error

describe('the name of a socket', () => {
  const path = { KYC_TOKEND_SOCKET: '/env.sock' }
  const both = { ...path, KYC_TOKEND_ACCOUNT: 'uk' }

  test('is that of the options, else that of the environment: a path or an account', async () => {
    const accounts = await tempDirectory()
    for (const name of ['us', 'uk']) mkdirSync(join(accounts, name))
    expect(find(both, { socketPath: '/a.sock' })).toBe('/a.sock')
    expect(find(both, { account: 'us' }, accounts)).toBe(join(accounts, 'us', 'ipc.sock'))
    expect(find(path, { socketPath: '', account: '' })).toBe('/env.sock')
    expect(find({ KYC_TOKEND_SOCKET: '', KYC_TOKEND_ACCOUNT: 'uk' }, {}, accounts)).toMatch(/uk.ipc\.sock$/)
    const make = 'make it with `sudo kyc-tokend setup --account eu`'
    const unknown = (rest: string): Error =>
      failing('daemon-unreachable', `There is no account \`eu\` here; there are${rest}${make}.`)
    const known = ': `uk`, `us`: name one of these, or '
    expect(() => find({}, { account: 'eu' }, accounts)).toThrow(unknown(known))
    expect(() => find({}, { account: 'eu' }, join(accounts, 'us'))).toThrow(unknown(' none: '))
  })
  test.each([
    ['The socket and the account', {}, { socketPath: '/a.sock', account: 'us' }],
    ['$KYC_TOKEND_SOCKET and $KYC_TOKEND_ACCOUNT', both, {}],
  ])('cannot be given twice: %s', (names, env, options) => {
    const message = `${names} are both given: leave one of them out.`
    expect(() => find(env, options)).toThrow(failing('bad-request', message))
  })
  test('is no malformed account', () => {
    const message = expect.stringMatching(/letters, digits and hyphens/) as string
    expect(() => find({}, { account: '../x' })).toThrow(failing('bad-request', message))
  })
})

const foreign = (uid: number): string => `belongs to another user (${nameOf('user', uid)})`
const shared = 'others can write to DIRECTORY'
const link = 'DIRECTORY is a link, which others could have made'
/** Mode and owner of the directory above, and of that of the socket. */
const [root, mine, theirs] = [0, owner, another]

// Only root can give directories away.
describe.skipIf(me !== 0)('a socket is trusted only if no other user could have put it there', () => {
  test.each<
    [string, above: [number, number], below: [number, number], reason?: string | undefined, isLink?: true]
  >([
    ['the own one in /tmp', [0o1777, root], [0o700, mine]],
    ['that of root in /tmp', [0o1777, root], [0o755, root]],
    ['that of another in /tmp', [0o1777, root], [0o700, theirs], `DIRECTORY ${foreign(theirs)}`],
    ['a link in /tmp', [0o1777, root], [0o700, mine], link, true],
    ['a shared one in /tmp', [0o1777, root], [0o777, mine], shared],
    ['one that can be replaced', [0o777, root], [0o700, mine], 'others can write to ABOVE'],
    ['one in a directory of another', [0o755, theirs], [0o700, mine], `ABOVE ${foreign(theirs)}`],
    ['that of the daemon in /run', [0o755, root], [0o2751, theirs]],
    ['a link in /run', [0o755, root], [0o2751, theirs], undefined, true],
    ['a shared one in /run', [0o755, root], [0o777, theirs], shared],
    ['that of root for some in /run', [0o755, root], [0o3771, root]],
    ['that of root for a group in /run', [0o755, root], [0o2771, root], shared],
    ['that of root for all in /run', [0o755, root], [0o3773, root], shared],
    ['that of a group in /run', [0o755, root], [0o775, theirs], shared],
  ])('%s', async (_, above, below, reason, isLink) => {
    const temp = await tempDirectory()
    const made = join(temp, 'made')
    mkdirSync(made)
    const directory = isLink === true ? join(temp, 'link') : made
    if (isLink === true) symlinkSync(made, directory)
    for (const [path, [mode, uid]] of [
      [made, below],
      [temp, above],
    ] as const) {
      chownSync(path, uid, -1)
      chmodSync(path, mode)
    }
    const expected = reason?.replace('DIRECTORY', directory).replace('ABOVE', temp)
    expect(untrustedReason(directory, owner)).toBe(expected)
  })
})

test('a directory that vanishes while it is read is not trusted', async () => {
  const temp = await tempDirectory()
  chmodSync(temp, 0o1777)
  expect(untrustedReason(join(temp, 'gone'), me)).toBe(`${join(temp, 'gone')} cannot be read`)
  expect(untrustedReason(join(temp, 'gone', 'too'), me)).toBe(`${join(temp, 'gone')} cannot be read`)
})

test.skipIf(isSystemSocketThere)(
  'what is not trusted is refused with the remedy, if there is a socket',
  async () => {
    const runtime = await tempDirectory()
    const directory = join(runtime, 'kyc-tokend')
    mkdirSync(directory)
    if (me === 0) for (const path of [runtime, directory]) chownSync(path, owner, -1)
    chmodSync(directory, 0o777)
    const env = { XDG_RUNTIME_DIR: runtime }
    const named = 'socket with --socket or $KYC_TOKEND_SOCKET.'
    const none =
      `No kyc-tokend is running here (no socket at /run/kyc-tokend/ipc.sock and ${directory}/ipc.sock): ` +
      `start it with \`sudo systemctl start kyc-tokend\` or \`kyc-tokend run\`, or name the daemon's ${named}`
    expect(() => find(env)).toThrow(failing('daemon-unreachable', none))
    writeFileSync(join(directory, 'ipc.sock'), '')
    const untrusted =
      `The socket ${directory}/ipc.sock is not trusted, because others can write to ${directory}, ` +
      `and could answer instead of the daemon: fix that, or name the daemon's ${named}`
    expect(() => find(env)).toThrow(failing('denied', untrusted))
    chmodSync(directory, 0o700)
    expect(find(env)).toBe(`${directory}/ipc.sock`)
  },
)
