import { spawnSync } from 'node:child_process'
import { mkdirSync, statSync } from 'node:fs'
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
const failing = (code: string, message: RegExp): Error =>
  expect.objectContaining({ code, message: expect.stringMatching(message) as string }) as Error

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
    const unknown = (others: string): Error =>
      failing('daemon-unreachable', new RegExp(`\`eu\` here; there are${others}: .* setup --account eu`))
    expect(() => find({}, { account: 'eu' }, accounts)).toThrow(unknown(': `uk`, `us`'))
    expect(() => find({}, { account: 'eu' }, join(accounts, 'us'))).toThrow(unknown(' none that .* sees'))
  })

  test.each([
    [{}, { socketPath: '/a.sock', account: 'us' }, /are both given: leave one of them out/],
    [both, {}, /are both given: leave one of them out/],
    [{}, { account: '../x' }, /letters, digits and hyphens/],
  ])('is not given twice, and no malformed account: %j %j', (env, options, message) => {
    expect(() => find(env, options)).toThrow(failing('bad-request', message))
  })
})

test.skipIf(isSystemSocketThere)(
  'without a name it is the person’s own, unless another user could have made it',
  async () => {
    const runtime = await tempDirectory()
    const env = { XDG_RUNTIME_DIR: runtime }
    const run = (script: string) => expect(spawnSync('sh', ['-euc', script], { cwd: runtime }).status).toBe(0)
    const none = /^No kyc-tokend .* at \/run\/kyc-tokend\/ipc\.sock and .*: start it/
    expect(() => find(env)).toThrow(failing('daemon-unreachable', none))
    run(`mkdir -m 700 kyc-tokend; touch kyc-tokend/ipc.sock; chown ${owner} kyc-tokend`)
    expect(find(env)).toBe(join(runtime, 'kyc-tokend', 'ipc.sock'))
    const denied = failing('denied', /^Another user could .*: remove \S+ and start .*--socket or \$KYC/)
    for (const mode of ['770', '707']) {
      run(`chmod ${mode} kyc-tokend`)
      expect(() => find(env), mode).toThrow(denied)
    }
    run(`chmod 755 kyc-tokend; mv kyc-tokend old; ln -s old kyc-tokend; chown -h ${owner} kyc-tokend`)
    expect(() => find(env)).toThrow(denied)
    if (me !== 0) return
    run(`rm kyc-tokend; mv old kyc-tokend; chown ${owner + 1} kyc-tokend`)
    expect(() => find(env)).toThrow(denied)
  },
)
