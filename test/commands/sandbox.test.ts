import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { sandbox as run } from '../../src/commands/foreground.ts'
import { sandboxCredentials } from '../../src/sandbox/sandbox.ts'
import { scenarioNames } from '../../src/sandbox/scenarios.ts'
import { invoke } from '../support/invoke.ts'
import { tempDirectory } from '../support/temp-directory.ts'

function start(options: Record<string, string> = {}): ReturnType<typeof invoke> {
  const started = invoke(run, options)
  onTestFinished(started.stop)
  return started
}
async function urlOf({ output }: ReturnType<typeof start>): Promise<string> {
  await expect.poll(output).toMatch(/http:\/\/127/)
  return /http:\/\/127\.0\.0\.1:\d+/.exec(output())?.[0] ?? ''
}

/** The path of a configuration with this service. */
async function configWith(service: object, baseUrl = 'https://api.example.com'): Promise<string> {
  const path = join(await tempDirectory(), 'c.json')
  const credentials = { apiKey: { env: 'NOT_SET' }, apiSecret: { env: 'NOT_SET' } }
  await writeFile(path, JSON.stringify({ baseUrl, credentials, service }))
  return path
}

describe('the command sandbox', () => {
  it('says where it is and what to try, serves, prints requests, and ends with 0', async () => {
    const sandbox = start({ scenario: 'opaque-token', 'token-lifetime': '15m' })
    const url = await urlOf(sandbox)
    const body = JSON.stringify(sandboxCredentials)
    const response = await fetch(`${url}/token/external/jwt`, { method: 'POST', body })
    const { accessToken } = (await response.json()) as { accessToken: string }
    await expect.poll(sandbox.output).toMatch(/POST \/token\/external\/jwt {2}200 {2}\(opaque-token\)$/)
    const output = sandbox.output()
    expect(output).not.toContain(accessToken)
    for (const name of scenarioNames) expect(output).toContain(`  ${name} `)
    sandbox.stop()
    expect(await sandbox.status).toBe(0)
    await expect(fetch(url)).rejects.toThrow('fetch failed')
  })

  it('is the service of a configuration, and says what that one answers', async () => {
    const refusals = [{ status: 401, says: 'invalid_client', in: 'error', reason: 'account-not-found' }]
    const parameters = { note: 'other' }
    const sandbox = start({ config: await configWith({ refusals, parameters }) })
    const url = await urlOf(sandbox)
    const body = JSON.stringify({ apiKey: 'another', apiSecret: 'another', ...parameters })
    const response = await fetch(`${url}/token/external/jwt`, { method: 'POST', body })
    expect(response.status).toBe(401)
    const output = sandbox.output()
    expect(output).toMatch(/^ {2}account-not-found +401 "invalid_client": refused for good$/m)
    expect(output).toMatch(/^ {2}account-inactive +400, because `service\.refusals` names no such refusal$/m)
  })
})
