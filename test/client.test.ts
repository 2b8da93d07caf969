import { spawnSync } from 'node:child_process'
import { getEventListeners } from 'node:events'
import { chmodSync, mkdirSync, statSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { build } from 'esbuild'
import { expect, onTestFinished, test, vi } from 'vitest'
import { TokenClient, TokenClientError, type TokenClientOptions } from '../src/client.ts'
import { commandWorld, hourToken } from './support/command-world.ts'
import {
  startScriptedDaemon,
  tokenFields,
  type Asking,
  type ScriptedDaemon,
} from './support/scripted-daemon.ts'
import { granting } from './support/service.ts'
import { tempDirectory } from './support/temp-directory.ts'

const root = new URL('..', import.meta.url).pathname

async function daemonWith(script: (asking: Asking) => void): Promise<ScriptedDaemon> {
  const daemon = await startScriptedDaemon(join(await tempDirectory(), 'ipc.sock'), script)
  onTestFinished(() => daemon.stop())
  return daemon
}
/** Gives `token-1` to every `token.get`. */
const generous = ({ type, answer }: Asking): void => {
  if (type === 'token.get' || type === 'token.subscribe') answer('token.result', tokenFields('token-1'))
}
function clientOf(daemon: { path: string }, options: TokenClientOptions = {}): TokenClient {
  const client = new TokenClient({ socketPath: daemon.path, ...options })
  onTestFinished(() => {
    client.close()
  })
  return client
}
const codeOf = async (promise: Promise<unknown>): Promise<string> => {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(TokenClientError)
  return (error as TokenClientError).code
}

// ---- get ------------------------------------------------------------------------------------------------------------

test('get gives the fields of the answer, without the id of the request', async () => {
  const daemon = await daemonWith(generous)
  expect(await clientOf(daemon).get()).toEqual(tokenFields('token-1'))
})

test('get asks for what its options say, in the name of the client', async () => {
  const daemon = await daemonWith(generous)
  await clientOf(daemon, { name: 'billing' }).get({
    minValidSeconds: 60,
    notFingerprint: '0123456789abcdef',
    waitSeconds: 2,
  })
  expect(daemon.asked[0]).toMatchObject({
    type: 'token.get',
    data: { minValidSeconds: 60, notFingerprint: '0123456789abcdef', waitSeconds: 2, client: 'billing' },
  })
})

test('a fault is an error with its code, sentence and reason', async () => {
  const daemon = await daemonWith(({ answer }) =>
    answer('fault', { code: 'no-token-yet', message: 'Wait.', reason: 'network' }),
  )
  await expect(clientOf(daemon).get({ waitSeconds: 0 })).rejects.toMatchObject({
    name: 'TokenClientError',
    code: 'no-token-yet',
    message: 'Wait.',
    reason: 'network',
  })
})

test('many calls share one connection, and each gets its own answer whatever the order', async () => {
  const waiting: Asking[] = []
  const daemon = await daemonWith((asking) => {
    waiting.push(asking)
    if (waiting.length < 20) return
    for (const { answer, data } of waiting.toReversed())
      answer('token.result', tokenFields(String(data['client']), { generation: data['minValidSeconds'] }))
  })
  const client = clientOf(daemon)
  const results = await Promise.all(
    Array.from({ length: 20 }, (_, index) => client.get({ minValidSeconds: index })),
  )
  expect(results.map(({ generation }) => generation)).toEqual(Array.from({ length: 20 }, (_, index) => index))
  expect(daemon.connections.made).toBe(1)
})

test('an answer may come byte by byte', async () => {
  const daemon = await daemonWith(({ data, write }) => {
    const text = `${JSON.stringify({ type: 'token.result', data: { id: data['id'], ...tokenFields('tökén') } })}\f`
    for (const byte of Buffer.from(text)) write(Buffer.from([byte]))
  })
  expect((await clientOf(daemon).get()).accessToken).toBe('tökén')
})

test('options out of their range are refused before anything is asked', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon)
  expect(await codeOf(client.get({ waitSeconds: 61 }))).toBe('bad-request')
  expect(await codeOf(client.get({ minValidSeconds: Number.NaN }))).toBe('bad-request')
  expect(daemon.connections.made).toBe(0)
})

test('nobody at the socket is told at once, with what to do', async () => {
  const path = join(await tempDirectory(), 'none.sock')
  const startedMs = performance.now()
  const error = await clientOf({ path })
    .get()
    .catch((thrown: unknown) => thrown as TokenClientError)
  expect(error).toMatchObject({ code: 'daemon-unreachable' })
  expect((error as Error).message).toMatch(/none\.sock.*systemctl start kyc-tokend.*kyc-tokend run/)
  expect(performance.now() - startedMs).toBeLessThan(2_000)
})

test.skipIf(asStranger([process.execPath, '--version']).status !== 0)(
  'a socket that may not be opened is denied, and says which group helps',
  async () => {
    const daemon = await daemonWith(generous)
    chmodSync(daemon.path, 0o600)
    chmodSync(join(daemon.path, '..'), 0o755)
    const asker = `import { TokenClient } from '${root}src/client.ts'
      await new TokenClient({ socketPath: '${daemon.path}' }).get().catch((error) => console.log(error.code, error.message))`
    const { stdout } = asStranger([process.execPath, '--input-type=module', '-e', asker])
    expect(stdout).toMatch(/^denied .*kyc-token/)
  },
)

test.skipIf(
  asStranger([process.execPath, '--version']).status !== 0 ||
    statSync('/run/kyc-tokend', { throwIfNoEntry: false }) !== undefined,
)('a socket where another user could have put it is denied, to calls and to subscriptions', async () => {
  const temp = await tempDirectory()
  const directory = join(temp, `kyc-tokend-${process.getuid?.() === 0 ? 65_534 : process.getuid?.()}`)
  mkdirSync(directory)
  chmodSync(temp, 0o777)
  const thief = await startScriptedDaemon(join(directory, 'ipc.sock'), generous)
  onTestFinished(() => thief.stop())
  chmodSync(thief.path, 0o777)
  const asker = `import { TokenClient } from '${root}src/client.ts'
    const client = new TokenClient()
    await client.get().catch((error) => console.log(error.code, error.message))
    await new Promise((resolve) => client.subscribe(console.log, { onFault: resolve })).then(({ code }) => console.log(code))
    client.close()`
  const { status, stdout } = asStranger([
    'env',
    `TMPDIR=${temp}`,
    'XDG_RUNTIME_DIR=',
    'KYC_TOKEND_SOCKET=',
    process.execPath,
    '--input-type=module',
    '-e',
    asker,
  ])
  expect({ status, stdout }).toEqual({
    status: 0,
    stdout: expect.stringMatching(
      /^denied The socket .* is not trusted, because others can write.*\ndenied\n$/,
    ) as string,
  })
  expect(thief.connections.made).toBe(0)
})

test('an answer that does not come is a timeout a little after the time to wait', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  onTestFinished(() => {
    vi.useRealTimers()
  })
  const daemon = await daemonWith(() => undefined)
  const code = codeOf(clientOf(daemon).get({ waitSeconds: 10 }))
  await vi.waitUntil(() => daemon.asked.length === 1, { interval: 5 })
  await vi.advanceTimersByTimeAsync(14_000)
  await vi.advanceTimersByTimeAsync(2_000)
  expect(await code).toBe('timeout')
})

test('a signal ends the waiting with its own reason', async () => {
  const daemon = await daemonWith(() => undefined)
  const client = clientOf(daemon)
  const stop = new AbortController()
  const got = client.get({ signal: stop.signal })
  await vi.waitUntil(() => daemon.asked.length === 1)
  stop.abort(new Error('enough'))
  await expect(got).rejects.toThrow('enough')
  await expect(client.get({ signal: stop.signal })).rejects.toThrow('enough')
})

test('nothing of a call is left on its signal', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon)
  const { signal } = new AbortController()
  await client.get({ signal })
  await daemon.stop()
  await codeOf(client.get({ signal, waitSeconds: 0 }))
  client.close()
  await codeOf(client.get({ signal }))
  expect(getEventListeners(signal, 'abort')).toEqual([])
})

test('close rejects what is under way and what comes later', async () => {
  const daemon = await daemonWith(() => undefined)
  const client = clientOf(daemon)
  const code = codeOf(client.get())
  await vi.waitUntil(() => daemon.asked.length === 1)
  client.close()
  expect(await code).toBe('closed')
  expect(await codeOf(client.status())).toBe('closed')
  await vi.waitUntil(() => daemon.connections.open === 0)
})

test('a frame without end loses the connection and not the memory', async () => {
  let isFirst = true
  const daemon = await daemonWith((asking) => {
    if (!isFirst) return generous(asking)
    isFirst = false
    asking.write('x'.repeat(3 * 1024 * 1024))
  })
  const client = clientOf(daemon)
  expect((await client.get()).accessToken).toBe('token-1')
  expect(daemon.connections.made).toBe(2)
})

test.each([
  'null\f',
  '[]\f',
  '{}\f',
  '{"type":1,"data":{}}\f',
  '\f',
  'nonsense\f',
  '{"type":"x","data":null}\f',
])('a strange frame %j fails the call and not the program', async (text) => {
  const daemon = await daemonWith(({ write }) => write(text))
  expect(await codeOf(clientOf(daemon).status())).toBe('daemon-unreachable')
  expect(daemon.connections.made).toBe(2)
})

test('answers to nobody and of unknown types are passed over', async () => {
  const daemon = await daemonWith((asking) => {
    asking.write('{"type":"token.result","data":{"id":"none"}}\f{"type":"news","data":{"id":7}}\f')
    asking.answer('news', {})
    generous(asking)
  })
  expect((await clientOf(daemon).get()).accessToken).toBe('token-1')
})

// ---- restarts -------------------------------------------------------------------------------------------------------

test('a get that waits survives a restart of the daemon, and waits only what is left', async () => {
  let isBack = false
  const daemon = await daemonWith((asking) => {
    if (isBack) generous(asking)
  })
  const got = clientOf(daemon).get({ waitSeconds: 20 })
  await vi.waitUntil(() => daemon.asked.length === 1)
  await daemon.stop()
  isBack = true
  await new Promise((resolve) => setTimeout(resolve, 300))
  await daemon.start()
  expect((await got).accessToken).toBe('token-1')
  expect(daemon.asked[1]?.data['waitSeconds']).toBeLessThan(20)
  expect(daemon.asked[1]?.data['waitSeconds']).toBeGreaterThan(15)
})

test('a get that a daemon answers because it stops is asked again', async () => {
  const daemon = await daemonWith(({ answer, cut }) => {
    if (daemon.asked.length > 1) return answer('token.result', tokenFields('token-1'))
    answer('fault', { code: 'no-token-yet', message: 'There is no token yet.' })
    setTimeout(cut, 50)
  })
  expect((await clientOf(daemon).get()).accessToken).toBe('token-1')
})

test('a get that waits for the first token survives a restart of the real daemon, and so does a subscription', async () => {
  const { daemon, service, again } = await commandWorld({ answer: { status: 503 } })
  const client = clientOf({ path: daemon.ipcPath })
  const { told } = subscribed(client)
  await daemon.logged('fetch-failed')
  const got = client.get({ waitSeconds: 30 })
  expect(await daemon.end()).toBe(0)
  const token = hourToken()
  service.answer(granting(token))
  await again()
  expect((await got).accessToken).toBe(token)
  await vi.waitUntil(() => told.length === 1, { timeout: 5_000 })
  expect(told).toEqual([`${token} ready`])
  expect(await client.reject(token)).toMatchObject({
    verdict: expect.stringMatching(/^(refreshing|held)$/) as string,
  })
  expect(await client.status()).toMatchObject({ service: { baseUrl: service.url } })
  expect(await client.refresh()).toMatchObject({ outcome: 'ok' })
})

test('a get whose time is over while the daemon is away is rejected', async () => {
  const daemon = await daemonWith(() => undefined)
  const code = codeOf(clientOf(daemon).get({ waitSeconds: 1 }))
  await vi.waitUntil(() => daemon.asked.length === 1)
  await daemon.stop()
  expect(await code).toBe('daemon-unreachable')
})

test('a call after a restart finds the new daemon', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon)
  await client.get()
  await daemon.stop()
  expect(await codeOf(client.get({ waitSeconds: 0 }))).toBe('daemon-unreachable')
  await daemon.start()
  expect((await client.get()).accessToken).toBe('token-1')
})

test('connects to a daemon that is away become rare instead of a loop', async () => {
  const daemon = await daemonWith(({ cut }) => {
    cut()
  })
  expect(await codeOf(clientOf(daemon).get({ waitSeconds: 2 }))).toBe('daemon-unreachable')
  expect(daemon.connections.made).toBeLessThan(15)
})

test('why the daemon closed the connection is the error', async () => {
  const daemon = await daemonWith(({ write, cut }) => {
    write('{"type":"fault","data":{"id":null,"code":"busy","message":"Too many connections."}}\f')
    setImmediate(cut)
  })
  await expect(clientOf(daemon).status()).rejects.toMatchObject({
    code: 'busy',
    message: 'Too many connections.',
  })
})

test('a refresh is asked once: a connection that is lost may have had its request', async () => {
  const daemon = await daemonWith(({ cut }) => {
    cut()
  })
  expect(await codeOf(clientOf(daemon).refresh())).toBe('daemon-unreachable')
  expect(daemon.asked.length).toBe(1)
})

// ---- reject ---------------------------------------------------------------------------------------------------------

test('a rejected token does not travel, its fingerprint does', async () => {
  const daemon = await daemonWith(({ answer }) => answer('reject.result', { verdict: 'refreshing' }))
  expect(await clientOf(daemon).reject('token-1')).toEqual({ verdict: 'refreshing' })
  await clientOf(daemon).reject({ fingerprint: '0123456789abcdef' })
  expect(daemon.asked.map(({ data }) => data['fingerprint'])).toEqual([
    tokenFields('token-1')['fingerprint'],
    '0123456789abcdef',
  ])
  expect(JSON.stringify(daemon.asked)).not.toContain('token-1')
})

// ---- subscribe ------------------------------------------------------------------------------------------------------

function subscribed(client: TokenClient): { told: string[]; faults: string[]; end: () => void } {
  const told: string[] = []
  const faults: string[] = []
  const end = client.subscribe(({ accessToken, state }) => told.push(`${accessToken} ${state}`), {
    onFault: ({ code }) => faults.push(code),
  })
  return { told, faults, end }
}

test('a subscriber is told now and at each change, until it ends it', async () => {
  const daemon = await daemonWith(generous)
  const { told, end } = subscribed(clientOf(daemon))
  await vi.waitUntil(() => told.length === 1)
  daemon.publish('token.changed', tokenFields('token-2'))
  await vi.waitUntil(() => told.length === 2)
  daemon.publish('token.changed', tokenFields('token-2', { state: 'degraded' }))
  await vi.waitUntil(() => told.length === 3)
  end()
  daemon.publish('token.changed', tokenFields('token-3'))
  await clientOf(daemon).get()
  expect(told).toEqual(['token-1 ready', 'token-2 ready', 'token-2 degraded'])
})

test('any number of listeners share one subscription, and a later one is told the newest', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon)
  const first = subscribed(client)
  await vi.waitUntil(() => first.told.length === 1)
  daemon.publish('token.changed', tokenFields('token-2'))
  await vi.waitUntil(() => first.told.length === 2)
  const others = Array.from({ length: 100 }, () => subscribed(client))
  await vi.waitUntil(() => others.every(({ told }) => told.length === 1))
  expect(others[99]?.told).toEqual(['token-2 ready'])
  first.end()
  daemon.publish('token.changed', tokenFields('token-3'))
  await vi.waitUntil(() => others.every(({ told }) => told.length === 2))
  expect(first.told.length).toBe(2)
  expect(daemon.asked.length).toBe(1)
})

test('listeners may come and go on one connection as often as they like', async () => {
  const { daemon } = await commandWorld({ answer: granting(hourToken()) })
  const client = clientOf({ path: daemon.ipcPath })
  await client.get()
  for (let round = 0; round < 100; round += 1) {
    const { told, faults, end } = subscribed(client)
    await vi.waitUntil(() => told.length + faults.length > 0, { interval: 1 })
    expect(faults).toEqual([])
    end()
  }
  expect((await client.status()).clients.ipc).toEqual({ connections: 1, subscribers: 1 })
})

test('a subscription survives restarts, and tells nothing twice', async () => {
  let token = tokenFields('token-1')
  const daemon = await daemonWith(({ answer }) => answer('token.result', token))
  const client = clientOf(daemon)
  const { told, faults } = subscribed(client)
  await vi.waitUntil(() => told.length === 1)
  await daemon.stop()
  await daemon.start()
  await vi.waitUntil(() => daemon.asked.length === 2, { timeout: 5_000 })
  daemon.publish('token.changed', { ...token, expiresAt: '2030-01-01T01:00:00.300Z' })
  await client.get()
  await daemon.stop()
  token = tokenFields('token-2')
  await daemon.start()
  await vi.waitUntil(() => told.length === 2)
  expect(told).toEqual(['token-1 ready', 'token-2 ready'])
  expect(faults).toEqual(['daemon-unreachable', 'daemon-unreachable'])
})

test('a subscription that finds no daemon waits for it', async () => {
  const daemon = await daemonWith(generous)
  await daemon.stop()
  const { told, faults } = subscribed(clientOf(daemon))
  await vi.waitUntil(() => faults.length === 1)
  await daemon.start()
  await vi.waitUntil(() => told.length === 1)
  expect(faults).toEqual(['daemon-unreachable'])
})

test('a fault leaves the subscription standing', async () => {
  const daemon = await daemonWith(({ answer }) => answer('fault', { code: 'no-token-yet', message: 'Wait.' }))
  const { told, faults } = subscribed(clientOf(daemon))
  await vi.waitUntil(() => faults.length === 1)
  daemon.publish('token.changed', tokenFields('token-1'))
  await vi.waitUntil(() => told.length === 1)
  expect(faults).toEqual(['no-token-yet'])
})

test('what a listener throws is the program’s own, and the subscription goes on', async () => {
  const daemon = await daemonWith(generous)
  const uncaught: unknown[] = []
  const others = process.listeners('uncaughtException')
  process.removeAllListeners('uncaughtException')
  process.on('uncaughtException', (error) => uncaught.push(error))
  onTestFinished(() => {
    process.removeAllListeners('uncaughtException')
    for (const other of others) process.on('uncaughtException', other)
  })
  const told: string[] = []
  clientOf(daemon).subscribe(({ accessToken }) => {
    told.push(accessToken)
    throw new Error('listener')
  })
  await vi.waitUntil(() => uncaught.length === 1)
  daemon.publish('token.changed', tokenFields('token-2'))
  await vi.waitUntil(() => uncaught.length === 2)
  expect(told).toEqual(['token-1', 'token-2'])
  expect(daemon.connections.made).toBe(1)
})

// ---- processes ------------------------------------------------------------------------------------------------------

/** Runs a program that imports the bundled client, as `TokenClient`. */
async function runProgram(
  source: string,
  options: { node?: string; env?: NodeJS.ProcessEnv } = {},
): Promise<{ status: number | null; stdout: string; stderr: string }> {
  const outfile = join(await tempDirectory(), 'client.mjs')
  await build({
    entryPoints: [join(root, 'src/client.ts')],
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

// ---- fetch ----------------------------------------------------------------------------------------------------------

interface Api {
  readonly url: string
  /** `METHOD path token body` of each request. */
  readonly seen: string[]
}
async function startApi(
  answer: (request: IncomingMessage, response: ServerResponse, body: string) => void,
): Promise<Api> {
  const seen: string[] = []
  const server: Server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString()
      seen.push(`${request.method} ${request.url} ${request.headers.authorization ?? '-'} ${body}`)
      answer(request, response, body)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen }
}
/** Takes `token-2` alone. */
const strict = (request: IncomingMessage, response: ServerResponse): void => {
  response.writeHead(request.headers.authorization === 'Bearer token-2' ? 200 : 401).end()
}
/** A daemon for this service that has `token-2` once `token-1` was reported. */
async function renewingDaemon(baseUrl: string, verdict = 'refreshing'): Promise<ScriptedDaemon> {
  let token = tokenFields('token-1', { baseUrl })
  return daemonWith(({ type, answer }) => {
    if (type === 'token.reject') {
      if (verdict === 'refreshing') token = tokenFields('token-2', { baseUrl })
      return answer('reject.result', { verdict })
    }
    answer('token.result', token)
  })
}

test('fetch sets the header for the origin of baseUrl, keeps the others, and sends nothing elsewhere', async () => {
  const api = await startApi((request, response) => response.end(String(request.headers['x-own'])))
  const daemon = await daemonWith(({ answer }) =>
    answer('token.result', tokenFields('token-1', { baseUrl: `${api.url}/base/path` })),
  )
  const client = clientOf(daemon)
  const response = await client.fetch(`${api.url}/a`, { headers: { 'x-own': 'kept' } })
  expect(await response.text()).toBe('kept')
  expect(api.seen).toEqual(['GET /a Bearer token-1 '])
  const elsewhere = await startApi((_, other) => other.end())
  expect(await codeOf(client.fetch(`${elsewhere.url}/a`))).toBe('bad-request')
  expect(await codeOf(client.fetch('data:text/plain,x'))).toBe('bad-request')
  expect(elsewhere.seen).toEqual([])
})

test('the option origins says where else the token may go, and where not', async () => {
  const [one, two] = await Promise.all([startApi((_, r) => r.end()), startApi((_, r) => r.end())])
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon, { origins: [`${one.url}/some/path`] })
  expect((await client.fetch(one.url)).status).toBe(200)
  expect(await codeOf(client.fetch(two.url))).toBe('bad-request')
  expect(daemon.asked.length).toBe(1)
})

test('a redirect to another origin does not carry the token, and its 401 is not reported', async () => {
  const thief = await startApi((_, response) => response.writeHead(401).end())
  const api = await startApi((_, response) =>
    response.writeHead(302, { location: `${thief.url}/stolen` }).end(),
  )
  const daemon = await renewingDaemon(api.url)
  expect((await clientOf(daemon).fetch(api.url)).status).toBe(401)
  expect(thief.seen).toEqual(['GET /stolen - '])
  expect(daemon.asked.map(({ type }) => type)).toEqual(['token.get'])
})

const bodies: Record<string, () => RequestInit['body']> = {
  string: () => 'body',
  Buffer: () => Buffer.from('body'),
  ArrayBuffer: () => new TextEncoder().encode('body').buffer,
  URLSearchParams: () => new URLSearchParams({ body: '1' }),
  Blob: () => new Blob(['body']),
  FormData: () => {
    const form = new FormData()
    form.set('field', 'body')
    return form
  },
}
test.each(Object.keys(bodies))('after a 401 a %s body is sent once more with the new token', async (kind) => {
  const api = await startApi(strict)
  const daemon = await renewingDaemon(api.url)
  const response = await clientOf(daemon).fetch(`${api.url}/a`, {
    method: 'POST',
    body: bodies[kind]?.() as NonNullable<RequestInit['body']>,
  })
  expect(response.status).toBe(200)
  expect(api.seen.length).toBe(2)
  for (const request of api.seen) expect(request).toMatch(/^POST \/a Bearer token-[12] [^]*body/)
})

test('a request without a body is sent once more', async () => {
  const api = await startApi(strict)
  const daemon = await renewingDaemon(api.url)
  expect((await clientOf(daemon).fetch(new URL('/a', api.url))).status).toBe(200)
  expect(api.seen).toEqual(['GET /a Bearer token-1 ', 'GET /a Bearer token-2 '])
})

test('a Request object is sent once more, with its body, method and headers', async () => {
  const api = await startApi(strict)
  const daemon = await renewingDaemon(api.url)
  const request = new Request(`${api.url}/a`, {
    method: 'PUT',
    body: '{"a":1}',
    headers: { 'content-type': 'application/json' },
  })
  expect((await clientOf(daemon).fetch(request)).status).toBe(200)
  expect(api.seen).toEqual(['PUT /a Bearer token-1 {"a":1}', 'PUT /a Bearer token-2 {"a":1}'])
})

test('a stream is not sent again: the 401 is reported and given back', async () => {
  const api = await startApi(strict)
  const daemon = await renewingDaemon(api.url)
  const response = await clientOf(daemon).fetch(api.url, {
    method: 'POST',
    body: Readable.toWeb(Readable.from(['body'])) as ReadableStream,
    duplex: 'half',
  })
  expect(response.status).toBe(401)
  expect(api.seen.length).toBe(1)
  expect(daemon.asked.map(({ type }) => type)).toEqual(['token.get', 'token.reject'])
})

test('a Request with more body than is kept is not sent again', async () => {
  const api = await startApi(strict)
  const daemon = await renewingDaemon(api.url)
  const request = new Request(api.url, { method: 'POST', body: 'x'.repeat(2 * 1024 * 1024) })
  expect((await clientOf(daemon).fetch(request)).status).toBe(401)
  expect(api.seen.length).toBe(1)
})

test('it is sent once more and no third time', async () => {
  const api = await startApi((_, response) => response.writeHead(401).end())
  const daemon = await renewingDaemon(api.url)
  expect((await clientOf(daemon).fetch(api.url)).status).toBe(401)
  expect(api.seen.length).toBe(2)
})

test.each(['unchanged', 'refused'])('where the verdict is %s, nothing is waited for', async (verdict) => {
  const api = await startApi(strict)
  const daemon = await renewingDaemon(api.url, verdict)
  expect((await clientOf(daemon).fetch(api.url)).status).toBe(401)
  expect(daemon.asked.map(({ type }) => type)).toEqual(['token.get', 'token.reject'])
})

test('the wait for another token is 10 s for one that is not the old one; the old one again is no reason to repeat', async () => {
  const api = await startApi(strict)
  const daemon = await renewingDaemon(api.url, 'held')
  expect((await clientOf(daemon).fetch(api.url)).status).toBe(401)
  expect(api.seen.length).toBe(1)
  expect(daemon.asked.at(-1)?.data).toMatchObject({
    waitSeconds: 10,
    notFingerprint: tokenFields('token-1')['fingerprint'],
  })
})

test('a token of another service, which the daemon has since a reload, is not sent to the former', async () => {
  const api = await startApi(strict)
  let token = tokenFields('token-1', { baseUrl: api.url })
  const daemon = await daemonWith(({ type, answer }) => {
    if (type !== 'token.reject') return answer('token.result', token)
    token = tokenFields('token-2', { baseUrl: 'https://api.example.com' })
    return answer('reject.result', { verdict: 'replaced' })
  })
  expect((await clientOf(daemon).fetch(api.url)).status).toBe(401)
  expect(api.seen).toEqual(['GET / Bearer token-1 '])
})

test('a 401 whose body breaks off is replayed all the same', async () => {
  const refused: ServerResponse[] = []
  const api = await startApi((request, response) => {
    if (request.headers.authorization === 'Bearer token-2') return response.end()
    response.writeHead(401, { 'content-length': 100 }).write('partly')
    return refused.push(response)
  })
  const daemon = await daemonWith(({ type, answer, data }) => {
    if (type === 'token.reject') {
      for (const response of refused) response.destroy()
      return answer('reject.result', { verdict: 'refreshing' })
    }
    const isRenewal = data['notFingerprint'] !== undefined
    const give = (): void =>
      answer('token.result', tokenFields(isRenewal ? 'token-2' : 'token-1', { baseUrl: api.url }))
    return isRenewal ? setTimeout(give, 100) : give()
  })
  expect((await clientOf(daemon).fetch(api.url)).status).toBe(200)
})

test('a daemon that goes away after the 401 leaves the answer of the service', async () => {
  const api = await startApi((_, response) => response.writeHead(401).end('why'))
  const daemon = await daemonWith(({ type, answer, cut }) => {
    if (type === 'token.get') answer('token.result', tokenFields('token-1', { baseUrl: api.url }))
    else cut()
  })
  const response = await clientOf(daemon).fetch(api.url)
  expect([response.status, await response.text()]).toEqual([401, 'why'])
})

// ---- support --------------------------------------------------------------------------------------------------------

/** Runs a command as a user who is nobody in particular. */
function asStranger([command = '', ...args]: string[]): { status: number | null; stdout: string } {
  const drop = process.getuid?.() === 0 ? ['setpriv', '--reuid=65534', '--clear-groups', '--'] : []
  const [program = '', ...rest] = [...drop, command, ...args]
  return spawnSync(program, rest, { encoding: 'utf8', cwd: '/', timeout: 20_000 })
}
