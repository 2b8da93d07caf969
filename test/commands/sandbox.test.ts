import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { sandbox as run } from '../../src/commands/foreground.ts'
import { sandboxCredentials } from '../../src/sandbox/sandbox.ts'
import { scenarioNames } from '../../src/sandbox/scenarios.ts'
import { invoke } from '../support/invoke.ts'
import { tempDirectory } from '../support/temp-directory.ts'

/** The command, and a function that asks it for a token with this body. */
async function start(options: Record<string, string>) {
  const sandbox = invoke(run, options)
  onTestFinished(sandbox.stop)
  await expect.poll(sandbox.output).toMatch(/http:\/\/127/)
  const url = /http:\/\/127\.0\.0\.1:\d+/.exec(sandbox.output())?.[0] ?? ''
  const ask = (body: object): Promise<Response> =>
    fetch(`${url}/token/external/jwt`, { method: 'POST', body: JSON.stringify(body) })
  return { ...sandbox, ask }
}

test('says what to try, serves, prints requests without a token, and ends with 0', async () => {
  const sandbox = await start({ scenario: 'opaque-token', 'token-lifetime': '15m' })
  const { accessToken } = (await (await sandbox.ask(sandboxCredentials)).json()) as { accessToken: string }
  await expect.poll(sandbox.output).toMatch(/POST \/token\/external\/jwt {2}200 {2}\(opaque-token\)$/)
  expect(sandbox.output()).not.toContain(accessToken)
  for (const name of scenarioNames) expect(sandbox.output()).toContain(`  ${name} `)
  sandbox.stop()
  expect(await sandbox.status).toBe(0)
  await expect(sandbox.ask(sandboxCredentials)).rejects.toThrow('fetch failed')
})

test('is the service of a configuration, and says what that one answers', async () => {
  const refusals = [{ status: 401, says: 'invalid_client', in: 'error', reason: 'account-not-found' }]
  const parameters = { note: 'other' }
  const config = join(await tempDirectory(), 'c.json')
  const credentials = { apiKey: { env: 'NOT_SET' }, apiSecret: { env: 'NOT_SET' } }
  const baseUrl = 'https://api.example.com'
  await writeFile(config, JSON.stringify({ baseUrl, credentials, service: { refusals, parameters } }))
  const sandbox = await start({ config })
  const { status } = await sandbox.ask({ apiKey: 'another', apiSecret: 'another', ...parameters })
  expect(status).toBe(401)
  const output = sandbox.output()
  expect(output).toMatch(/^ {2}account-not-found +401 "invalid_client": refused for good$/m)
  expect(output).toMatch(/^ {2}account-inactive +400, because `service\.refusals` names no such refusal$/m)
})
