// refresh, reload and alert-test.
import { expect, test } from 'vitest'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { alertFile } from '../support/daemon.ts'
import { accountInactive, granting } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

test('refresh asks now and says how it went: another token, the same one, or none (75); alert-test raises an alert', async () => {
  const token = hourToken(2)
  const { cli, daemon, service } = await commandWorld()
  await cli(['token'])
  service.answer(granting(token))
  const life = String.raw`[0-9a-f]{16}, good for (59 min( \d+ s)?|1 h)\.\n$`
  for (const words of ['New token', 'The service gave the same token again:']) {
    const { status, stdout } = await cli(['refresh'])
    expect(status).toBe(0)
    expect(stdout).toMatch(new RegExp(`^${words} ${life}`))
  }
  expect(service.requests.length).toBe(3)
  service.answer({ status: 503 })
  const { status, stdout, stderr } = await cli(['refresh'])
  expect({ status, stdout }).toEqual({ status: 75, stdout: '' })
  expect(stderr).toMatch(
    /^No new token \(server-error\): .+\. .*goes on asking.*\. Token [0-9a-f]{16} is still served\.\n$/,
  )
  const rehearsed = await cli(['alert-test'])
  expect(rehearsed).toMatchObject({
    status: 0,
    stdout: expect.stringMatching(/ is over at \S+Z: /) as string,
  })
  expect(await expectUntil('alert.json', () => alertFile(daemon))).toMatchObject({ test: true })
})

test('reload says what is in force, what needs a restart, and how it went with another pair: 77 refused, 75 no answer', async () => {
  const { cli, daemon, service } = await commandWorld()
  const { stdout: token } = await cli(['token'])
  const reload = async (config: object) => {
    daemon.configure(config)
    return cli(['reload'])
  }
  const inForce = 'The configuration was read again and is in force.\n'
  expect(await reload({})).toMatchObject({ status: 0, stdout: inForce, stderr: '' })
  expect((await reload({ http: false })).stdout).toMatch(
    /^.*in force\.\nNot in force: http, which can be changed by a restart alone: `kill -TERM \d+`\.\n$/,
  )
  const faulty = await reload({ refresh: { maxAge: 5 } })
  expect(faulty).toMatchObject({ status: 78, stdout: '' })
  expect(faulty.stderr).toMatch(
    /refresh\.maxAge: .*\nThe configuration was not taken over: the running one stays\.\n$/,
  )
  service.answer(accountInactive)
  const another = { apiKey: 'another-key', apiSecret: 'another-secret' }
  const refused = await reload({ credentials: another, http: false })
  expect(refused.status).toBe(77)
  expect(refused.stderr).toMatch(/the service refused .*account-inactive: .* restart would use it\n$/)
  expect(refused.stdout).toMatch(/The service refuses the other pair: the former one stays in use\.\n/)
  expect(refused.stdout).not.toContain('kill')
  service.answer({ status: 503 })
  const third = { apiKey: 'key', apiSecret: 'a-third-secret-of-the-test' }
  const tried = await reload({ credentials: third })
  expect(tried.status).toBe(75)
  expect(tried.stdout).toMatch(/The other pair has given no token yet/)
  expect((await cli(['token'])).stdout).toBe(token)
  expect((await cli(['status'])).stdout).toContain('another pair')
  service.answer(granting(hourToken(2)))
  const taken = await reload({ credentials: { ...third, apiKey: 'a-fourth-key' } })
  expect(taken).toMatchObject({
    status: 0,
    stdout: `${inForce}The other pair has given a token and is in use.\n`,
  })
})

test('of a refused account, refresh is 77, and alert-test 75 while that alert is raised', async () => {
  const { cli, daemon } = await commandWorld({ answer: accountInactive })
  await daemon.logged('alert')
  const refused = await cli(['refresh'])
  expect(refused.status).toBe(77)
  expect(refused.stderr).toMatch(/^No new token \(account-inactive\): .+\. .+\.\n$/)
  const { status, stderr } = await cli(['alert-test'])
  expect(stderr).toMatch(/^There is no test alert, because another alert is raised: .*\n$/)
  expect(status).toBe(75)
})
