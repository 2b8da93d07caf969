import { expect, test } from 'vitest'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { accountInactive, granting } from '../support/service.ts'

const other = { credentials: { apiKey: 'another-key', apiSecret: 'another-secret' } }

test('says what is in force, and what needs a restart', async () => {
  const { cli, daemon } = await commandWorld()
  await cli(['token'])
  expect(await cli(['reload'])).toMatchObject({
    status: 0,
    stdout: 'The configuration was read again and is in force.\n',
    stderr: '',
  })
  daemon.configure({ http: false })
  const { status, stdout } = await cli(['reload'])
  expect(status).toBe(0)
  expect(stdout).toMatch(
    /^.*in force\.\nNot in force: http, which can be changed by a restart alone: `kill -TERM \d+`\.\n$/,
  )
})

test('has another pair in use once the service gives a token for it', async () => {
  const { cli, daemon, service } = await commandWorld()
  await cli(['token'])
  service.answer(granting(hourToken(2)))
  daemon.configure(other)
  const { status, stdout } = await cli(['reload'])
  expect(status).toBe(0)
  expect(stdout).toMatch(/in force\.\nThe other pair has given a token and is in use\.\n$/)
  expect(daemon.records('credentials-taken-over')).toHaveLength(1)
})

test('a pair that is refused is 77, one without an answer 75, and neither is in use', async () => {
  const { cli, daemon, service } = await commandWorld()
  const { stdout: token } = await cli(['token'])
  service.answer(accountInactive)
  daemon.configure({ ...other, http: false })
  const refused = await cli(['reload'])
  expect(refused).toMatchObject({
    status: 77,
    stderr: expect.stringMatching(/^Correct these files first, .*account-inactive: .*\n$/) as string,
  })
  expect(refused.stdout).toMatch(/The service refuses the other pair: the former one stays in use\.\n/)
  expect(refused.stdout).not.toContain('kill')
  service.answer({ status: 503 })
  daemon.configure({ credentials: { apiKey: 'key', apiSecret: 'a-third-secret-of-the-test' } })
  const tried = await cli(['reload'])
  expect(tried).toMatchObject({ status: 75 })
  expect(tried.stdout).toMatch(/The other pair has given no token yet/)
  expect((await cli(['token'])).stdout).toBe(token)
  const { stdout: status } = await cli(['status'])
  expect(status).toContain('another pair')
})

test('a faulty configuration is 78 with its faults, and changes nothing', async () => {
  const { cli, daemon } = await commandWorld()
  daemon.configure({ refresh: { maxAge: 5 } })
  const { status, stdout, stderr } = await cli(['reload'])
  expect({ status, stdout }).toEqual({ status: 78, stdout: '' })
  expect(stderr).toMatch(
    /refresh\.maxAge: .*\nThe configuration was not taken over: the running one stays\.\n$/,
  )
})
