import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import * as account from '../../src/host/account.ts'
import { UsageError } from '../../src/lib/error.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const GOOD = ['0', 'eu-west', 'a'.repeat(32)]
const BAD = ['', '-eu', 'EU', 'eu.west', 'eu ', ' eu', 'a'.repeat(33)]

test('an account has a name, for which its configuration, socket and directory are found', async () => {
  const directory = await tempDirectory()
  for (const name of [...GOOD, ...BAD.slice(1)]) mkdirSync(join(directory, name))
  expect(account.accountNames(directory)).toEqual(GOOD.toSorted())
  for (const name of [...GOOD, ...BAD]) {
    const expected = GOOD.includes(name) ? name : undefined
    const { config, ipcSocket } = account.installationOf(name)
    expect([config, ipcSocket].map(account.accountOf)).toEqual([expected, expected])
    if (expected === undefined) expect(() => account.checkedAccount(name)).toThrow(UsageError)
    else expect(account.checkedAccount(name)).toBe(name)
  }
  const others = ['/etc/kyc-tokend/eu.json', '/etc/kyc-tokend/accounts/eu.yaml', '/run/other/eu/ipc.sock']
  for (const path of others) expect(account.accountOf(path)).toBeUndefined()
})

test('directories of an account are below those of the default one, unless systemd has set them', () => {
  const of = (env: NodeJS.ProcessEnv) => account.accountEnvironment('eu', { env, uid: 0 })
  const STATE_DIRECTORY = '/var/lib/kyc-tokend/accounts/eu'
  const RUNTIME_DIRECTORY = '/run/kyc-tokend/accounts/eu'
  const own = { KYC_TOKEND_ACCOUNT: 'eu' }
  expect(of({ A: '1' })).toEqual({ A: '1', ...own, RUNTIME_DIRECTORY, STATE_DIRECTORY })
  const set = { RUNTIME_DIRECTORY: '/r', STATE_DIRECTORY: '/s' }
  expect(of(set)).toEqual({ ...own, ...set })
  const { environment } = account.installationOf('eu')
  expect(environment).toMatchObject({ RUNTIME_DIRECTORY: `${RUNTIME_DIRECTORY}/files`, STATE_DIRECTORY })
})
