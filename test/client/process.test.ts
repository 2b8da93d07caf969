import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { build } from 'esbuild'
import { expect, test } from 'vitest'

import { daemonWith, generous, startApi } from '../support/client-world.ts'
import { tokenFields } from '../support/scripted-daemon.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const root = new URL('../..', import.meta.url).pathname

/** Runs a program that imports the bundled client, as `TokenClient`. */
async function runProgram(
  source: string,
  options: { node?: string; env?: NodeJS.ProcessEnv } = {},
): Promise<{ status: number | null; stdout: string; stderr: string }> {
  const outfile = join(await tempDirectory(), 'client.mjs')
  await build({
    entryPoints: [join(root, 'src/client/index.ts')],
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    outfile,
  })
  const { spawn } = await import('node:child_process')
  const child = spawn(
    options.node ?? process.execPath,
    ['--input-type=module', '-e', `import { TokenClient } from '${outfile}'\n${source}`],
    { env: { ...process.env, ...options.env }, timeout: 20_000 },
  )
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk) => (stdout += String(chunk)))
  child.stderr.on('data', (chunk) => (stderr += String(chunk)))
  const status = await new Promise<number | null>((resolve) => child.on('close', resolve))
  return { status, stdout, stderr }
}

test('an idle client never keeps a process alive', async () => {
  const daemon = await daemonWith(generous)
  const startedMs = performance.now()
  const { status, stdout } = await runProgram(
    `const client = new TokenClient({ socketPath: '${daemon.path}' })
     console.log((await client.get()).accessToken)
     client.subscribe(() => undefined)()`,
  )
  expect({ status, stdout }).toEqual({ status: 0, stdout: 'token-1\n' })
  expect(performance.now() - startedMs).toBeLessThan(10_000)
})

test('a pending call and a subscription keep the process alive', async () => {
  const daemon = await daemonWith(({ type, answer }) => {
    if (type === 'token.subscribe') return answer('token.result', tokenFields('token-1'))
    setTimeout(() => {
      answer('token.result', tokenFields('token-1'))
      setTimeout(() => daemon.publish('token.changed', tokenFields('token-2')), 500)
    }, 500)
  })
  const { stdout } = await runProgram(
    `const client = new TokenClient({ socketPath: '${daemon.path}' })
     client.get().then(({ accessToken }) => console.log('got', accessToken))
     const end = client.subscribe(({ accessToken }) => { if (accessToken === 'token-2') { console.log('told'); end() } })`,
  )
  expect(stdout).toBe('got token-1\ntold\n')
})

test('the socket is found as the commands find it', async () => {
  const daemon = await daemonWith(generous)
  const { stdout } = await runProgram(`console.log((await new TokenClient().get()).accessToken)`, {
    env: { KYC_TOKEND_SOCKET: daemon.path },
  })
  expect(stdout).toBe('token-1\n')
})

const oldNode = '/usr/bin/node'
const isOldNodeThere = spawnSync(oldNode, ['--version']).stdout?.toString().startsWith('v20.') ?? false
test.skipIf(!isOldNodeThere)('works on Node 20 (skipped where /usr/bin/node is another)', async () => {
  const daemon = await daemonWith(generous)
  const service = await startApi((request, response) => {
    response.writeHead(request.headers.authorization === 'Bearer token-1' ? 200 : 401).end(process.version)
  })
  const { stdout, stderr } = await runProgram(
    `const client = new TokenClient({ socketPath: '${daemon.path}', origins: ['${service.url}'] })
     console.log((await client.get()).accessToken, (await client.fetch('${service.url}/x')).status, process.version)`,
    { node: oldNode },
  )
  expect({ stdout, stderr }).toEqual({
    stdout: expect.stringMatching(/^token-1 200 v20/) as string,
    stderr: '',
  })
})
