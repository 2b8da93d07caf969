import { expect, test } from 'vitest'
import { systemctl } from '../../src/commands/systemctl.ts'

test('a call that says nothing has the reason why it failed', async () => {
  const { isOk, stderr } = await systemctl(['list-units'], 1)
  expect(isOk).toBe(false)
  expect(stderr).not.toBe('')
})
