import { expect, test } from 'vitest'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { alertFile } from '../support/daemon.ts'
import { accountInactive, granting } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

test('raises a test alert that is marked as one, and says until when', async () => {
  const { cli, daemon, service } = await commandWorld({ answer: granting(hourToken()) })
  await service.arrived(1)
  await cli(['token'])
  const { status, stdout } = await cli(['alert-test'])
  expect(stdout).toMatch(/^A test alert is raised, and is over at \S+Z\./)
  expect(status).toBe(0)
  expect(await expectUntil('alert.json', () => alertFile(daemon))).toMatchObject({ test: true })
})

test('is refused with 75 while a real alert is raised', async () => {
  const { cli, daemon } = await commandWorld({ answer: accountInactive })
  await daemon.logged('alert')
  const { status, stderr } = await cli(['alert-test'])
  expect(stderr).toMatch(/^There is no test alert, because another alert is raised: .*\n$/)
  expect(status).toBe(75)
})
