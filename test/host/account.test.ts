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
  expect(account.accountNames(join(directory, 'none'))).toEqual([])
  for (const name of [...GOOD, ...BAD]) {
    const expected = GOOD.includes(name) ? name : undefined
    const socket = `/run/kyc-tokend/accounts/${name}/ipc.sock`
    expect(account.accountOf(`/etc/kyc-tokend/accounts/${name}.json`)).toBe(expected)
    expect(account.accountOf(socket)).toBe(expected)
    if (expected === undefined) expect(() => account.checkedAccount(name)).toThrow(UsageError)
    else
      expect([account.checkedAccount(name), account.installationOf(name).ipcSocket]).toEqual([name, socket])
  }
  for (const path of ['/etc/kyc-tokend/eu.json', '/etc/kyc-tokend/accounts/eu.yaml', 'eu.json'])
    expect(account.accountOf(path)).toBeUndefined()
  expect(account.accountOf('/run/other/eu/ipc.sock')).toBeUndefined()
})

test('directories of an account are below those of the default one, unless systemd has set them', () => {
  const directories = {
    RUNTIME_DIRECTORY: '/run/kyc-tokend/accounts/eu',
    STATE_DIRECTORY: '/var/lib/kyc-tokend/accounts/eu',
  }
  const own = { KYC_TOKEND_ACCOUNT: 'eu' }
  const identity = (env: NodeJS.ProcessEnv) => ({ env, uid: 0 })
  expect(account.accountEnvironment('eu', identity({ A: '1' }))).toEqual({ A: '1', ...own, ...directories })
  const set = { RUNTIME_DIRECTORY: '/r', STATE_DIRECTORY: '/s' }
  expect(account.accountEnvironment('eu', identity(set))).toEqual({ ...own, ...set })
  const CREDENTIALS_DIRECTORY = '/run/credentials/kyc-tokend@eu.service'
  expect(account.installationOf('eu').environment).toEqual({
    RUNTIME_DIRECTORY: '/run/kyc-tokend/accounts/eu/files',
    STATE_DIRECTORY: directories.STATE_DIRECTORY,
    CREDENTIALS_DIRECTORY,
  })
  expect(account.installationOf(undefined).ipcSocket).toBe('/run/kyc-tokend/ipc.sock')
})
