import { expect, test } from 'vitest'

import { configurationOf } from '../../src/terminal/ask.ts'
import { runtimeDirectoryOf, stateDirectoryOf } from '../../src/host/paths.ts'

const uid = process.geteuid!()

test('--account chooses configuration, runtime directory and state directory', () => {
  const { configPath, env, account } = configurationOf({
    options: { account: 'eu' },
    env: { HOME: '/home/x' },
  })
  expect({ configPath, account }).toEqual({ configPath: '/etc/kyc-tokend/accounts/eu.json', account: 'eu' })
  const own = { env: { HOME: '/home/x' }, uid }
  expect(runtimeDirectoryOf({ env, uid })).toBe(`${runtimeDirectoryOf(own)}/accounts/eu`)
  expect(stateDirectoryOf({ env, uid })).toBe(`${stateDirectoryOf(own)}/accounts/eu`)
})

test.each([
  [{ account: 'eu' }, { account: 'eu' }],
  [{ config: 'c.json' }, { configPath: 'c.json', account: undefined }],
  [{}, { account: 'us' }],
])('the options %j beat the environment', (options, expected) => {
  expect(configurationOf({ options, env: { KYC_TOKEND_ACCOUNT: 'us' } })).toMatchObject(expected)
})

const both = { KYC_TOKEND_CONFIG: 'c.json', KYC_TOKEND_ACCOUNT: 'eu' }
test.each([
  [{ config: 'c.json', account: 'eu' }, {}, /--config and --account are both given/],
  [{}, both, /\$KYC_TOKEND_CONFIG and \$KYC_TOKEND_ACCOUNT/],
  [{ account: '../eu' }, {}, /The name of an account is/],
])('%j and %j are refused', (options, env, message) => {
  expect(() => configurationOf({ options, env })).toThrow(message)
})
