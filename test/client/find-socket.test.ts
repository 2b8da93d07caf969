import {
  chmodSync,
  chownSync,
  lchownSync,
  mkdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { socketFinder } from '../../src/client/find-socket.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const me = process.getuid!()
/** The owner of the directories of these tests. */
const owner = me === 0 ? 1_234 : me
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
    const make = 'make it with `sudo kyc-tokend setup --account eu`, or name another'
    const unknown = (rest: string): Error =>
      failing('daemon-unreachable', `There is no account \`eu\` here; there are${rest}: ${make}.`)
    expect(() => find({}, { account: 'eu' }, accounts)).toThrow(unknown(': `uk`, `us`'))
    expect(() => find({}, { account: 'eu' }, join(accounts, 'us'))).toThrow(
      unknown(' none that this user sees'),
    )
  })
  test.each([
    [{}, { socketPath: '/a.sock', account: 'us' }],
    [both, {}],
  ])('is not given twice, by the environment %j and the options %j', (env, options) => {
    const message = expect.stringMatching(/are both given: leave one of them out/) as string
    expect(() => find(env, options)).toThrow(failing('bad-request', message))
  })
  test('is no malformed account', () => {
    const message = expect.stringMatching(/letters, digits and hyphens/) as string
    expect(() => find({}, { account: '../x' })).toThrow(failing('bad-request', message))
  })
})

test.skipIf(isSystemSocketThere)(
  'without a name it is the person’s own, unless another user could have made it',
  async () => {
    const runtime = await tempDirectory()
    const directory = join(runtime, 'kyc-tokend')
    const env = { XDG_RUNTIME_DIR: runtime }
    const none = expect.stringMatching(
      /^No kyc-tokend .* at \/run\/kyc-tokend\/ipc\.sock and .*: start it/,
    ) as string
    expect(() => find(env)).toThrow(failing('daemon-unreachable', none))
    mkdirSync(directory, { mode: 0o700 })
    writeFileSync(join(directory, 'ipc.sock'), '')
    if (me === 0) chownSync(directory, owner, -1)
    expect(find(env)).toBe(`${directory}/ipc.sock`)
    const denied = expect.stringMatching(
      /^Another user could .*: remove \S+ and start .*--socket or \$KYC/,
    ) as string
    for (const mode of [0o770, 0o707]) {
      chmodSync(directory, mode)
      expect(() => find(env)).toThrow(failing('denied', denied))
    }
    chmodSync(directory, 0o755)
    renameSync(directory, `${directory}.old`)
    symlinkSync(`${directory}.old`, directory)
    if (me === 0) lchownSync(directory, owner, -1)
    expect(() => find(env)).toThrow(/^Another user/)
    if (me !== 0) return
    rmSync(directory)
    renameSync(`${directory}.old`, directory)
    chownSync(directory, owner + 1, -1)
    expect(() => find(env)).toThrow(/^Another user/)
  },
)
