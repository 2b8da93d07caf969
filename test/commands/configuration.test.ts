import { expect, test } from 'vitest'
import { configurationOf } from '../../src/terminal/ask.ts'

const accounts = '/etc/kyc-tokend/accounts'
test.each([
  [
    { account: 'eu' },
    { configPath: `${accounts}/eu.json`, account: 'eu', env: { KYC_TOKEND_ACCOUNT: 'eu' } },
  ],
  [{ config: 'c.json' }, { configPath: 'c.json', account: undefined }],
  [{}, { configPath: `${accounts}/us.json`, account: 'us' }],
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
