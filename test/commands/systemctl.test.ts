import { unitNames } from '../../src/lib/account.ts'
import { expect, test } from 'vitest'
import { systemctl } from '../../src/commands/systemd.ts'

test('a call that says nothing has the reason why it failed', async () => {
  const { isOk, stderr } = await systemctl(['list-units'], 1)
  expect(isOk).toBe(false)
  expect(stderr).not.toBe('')
})

test.each([
  [undefined, ''],
  ['eu', '@eu'],
])('the units of the account %s', (account, suffix) => {
  expect(unitNames(account)).toEqual({
    unit: `kyc-tokend${suffix}`,
    httpUnit: `kyc-tokend-http${suffix}`,
    alertUnit: `kyc-tokend-alert${suffix}`,
  })
})
