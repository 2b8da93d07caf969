import { Readable } from 'node:stream'
import { afterEach, describe, expect, it } from 'vitest'
import { run } from '../../src/commands/sandbox.ts'
import { sandboxCredentials } from '../../src/sandbox/sandbox.ts'
import { scenarioNames } from '../../src/sandbox/scenarios.ts'
import { createMemoryStream } from '../support/memory-stream.ts'

const stop = new Set<AbortController>()
afterEach(() => {
  for (const one of stop) one.abort()
  stop.clear()
})

function start(options: Record<string, string> = {}) {
  const stdout = createMemoryStream()
  const controller = new AbortController()
  stop.add(controller)
  const status = run({
    options,
    positionals: [],
    env: {},
    stdin: Readable.from([]),
    stdout,
    stderr: createMemoryStream(),
    signal: controller.signal,
  })
  return { status, stdout, stop: () => controller.abort() }
}
async function urlOf({ stdout }: ReturnType<typeof start>): Promise<string> {
  await expect.poll(() => stdout.lines().join('\n')).toMatch(/http:\/\/127/)
  return /http:\/\/127\.0\.0\.1:\d+/.exec(stdout.lines().join('\n'))?.[0] ?? ''
}

describe('the command sandbox', () => {
  it('says where it is and what to try, serves, prints requests, and ends with 0', async () => {
    const sandbox = start({ scenario: 'opaque-token', 'token-lifetime': '15m' })
    const url = await urlOf(sandbox)
    const body = JSON.stringify(sandboxCredentials)
    const response = await fetch(`${url}/token/external/jwt`, { method: 'POST', body })
    const { accessToken } = (await response.json()) as { accessToken: string }
    await expect
      .poll(() => sandbox.stdout.lines().at(-1))
      .toMatch(/POST \/token\/external\/jwt {2}200 {2}\(opaque-token\)$/)
    const output = sandbox.stdout.lines().join('\n')
    expect(output).toContain('Tokens live 15 min')
    expect(output).not.toContain(accessToken)
    for (const name of scenarioNames) expect(output).toContain(`  ${name} `)
    sandbox.stop()
    expect(await sandbox.status).toBe(0)
    await expect(fetch(url)).rejects.toThrow('fetch failed')
  })

  it('says so where its port is in use, and where an option is wrong', async () => {
    const port = new URL(await urlOf(start())).port
    await expect(start({ port }).status).rejects.toThrow(/in use/)
    for (const wrong of ['-1', '65536', 'http', '']) {
      await expect(start({ port: wrong }).status).rejects.toThrow(/--port/)
    }
    for (const wrong of ['60', '0s', '999ms', '10000d', 'soon']) {
      await expect(start({ 'token-lifetime': wrong }).status).rejects.toThrow(/--token-lifetime/)
    }
  })
})
