// The examples of the clients' page in every language that this machine has, run as they stand there.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { createConnection, createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { lacks } from '../support/lacks.ts'
import { freePort } from '../support/redis.ts'
import { expectUntil } from '../support/until.ts'
import { installClient, startExample, type Example } from './example.ts'
import { block } from './manual.ts'

const sh = ['sh', '-euc']
/** The name of a block, the program that it needs, and how it is run. */
interface Way {
  readonly name: string
  readonly needs: string
  readonly with: readonly string[]
  readonly as: string
}
const inShell = { needs: 'curl', with: ['sh', '-eu'] }
const inNode = { needs: process.execPath, with: [process.execPath] }
const languages: readonly Way[] = [
  { name: 'php', needs: 'php', with: ['php'], as: 'example.php' },
  { name: 'ruby', needs: 'ruby', with: ['ruby', '-W'], as: 'example.rb' },
  { name: 'java', needs: 'javac', with: ['java'], as: 'Example.java' },
  { name: 'python', needs: 'python3', with: ['python3'], as: 'example.py' },
  { name: 'go', needs: 'go', with: ['go', 'run'], as: 'example.go' },
  { name: 'node-ipc', ...inNode, as: 'ipc.mjs' },
]
const curl: Way = { name: 'curl', ...inShell, as: 'curl.sh' }
const others: readonly Way[] = [
  { name: 'env-file', ...inShell, as: 'env.sh' },
  { name: 'token-client', ...inNode, as: 'client.mjs' },
  { name: 'crontab', needs: 'curl', with: [...sh, 'sh -c "$(cut -d" " -f6- "$0")"'], as: 'crontab' },
]

describe('examples in every language', { timeout: 120_000 }, () => {
  /** The output of each example, or why it failed, by its name. They run together. */
  async function outcomes(
    example: Example,
    ways: readonly Way[],
    edit: (code: string, name: string) => string,
  ): Promise<[name: string, outcome: string][]> {
    const present = ways.filter(({ needs }) => needs === process.execPath || !lacks(needs))
    const run = async ({ name, ...how }: Way): Promise<string> =>
      example.run(name, { ...how, edit: (code) => edit(code, name) }).catch(String)
    return Promise.all(present.map(async (way) => [way.name, await run(way)] as const))
  }

  async function exampleInNode(): Promise<Example> {
    const example = await startExample()
    installClient(example, ['node-ipc'])
    return example
  }

  test('each asks once more if its connection is closed before the answer', async () => {
    const example = await exampleInNode()
    const directory = join(example.daemon.directory, 'run')
    /** Has the sockets of an example close every second connection: first after its request, then before it. */
    const listen = async (name: string): Promise<void> => {
      for (const file of ['ipc.sock', 'http.sock']) {
        let connections = 0
        const server = createServer((client) => {
          client.on('error', () => undefined)
          connections += 1
          if (connections === 1) client.once('data', () => client.end())
          else if (connections === 3) client.destroy()
          else client.pipe(createConnection(join(directory, file))).pipe(client)
        })
        await new Promise<void>((resolve) => server.listen(join(directory, `${name}-${file}`), resolve))
        onTestFinished(() => void server.close())
      }
    }
    const ways = [...languages, curl]
    for (const { name } of ways) await listen(name)
    const edit = (code: string, name: string): string =>
      code.replaceAll(/(?<=\/run\/kyc-tokend\/)(?=ipc|http)/g, `${name}-`)
    const found = [...(await outcomes(example, ways, edit)), ...(await outcomes(example, ways, edit))]
    for (const [name, outcome] of found)
      expect(outcome, name).toMatch(
        name === 'curl'
          ? new RegExp(`^{"accessToken":.*}${example.token}$`)
          : new RegExp(`^${example.token.length} characters`),
      )
  })

  test('without an answer each fails, says something, and sends nothing to the service', async () => {
    const example = await exampleInNode()
    await example.daemon.end('SIGTERM')
    const short = (code: string): string => code.replace('--wait 20s ', '')
    const away = await outcomes(example, [...languages, ...others], short)
    for (const file of ['ipc.sock', 'http.sock']) {
      const silent = createServer(() => undefined)
      await new Promise<void>((resolve) =>
        silent.listen(join(example.daemon.directory, 'run', file), resolve),
      )
      onTestFinished(() => void silent.close())
    }
    const patient = (code: string): string => code.replaceAll(/\b30(?=\b|_000\b)/g, '1')
    const stuck = await outcomes(example, languages, patient)
    for (const [name, outcome] of [...away, ...stuck]) expect(outcome, name).toMatch(/ended with \d+: \S/)
    expect(example.authorizations('/some/path')).toEqual([])
  })
})

test.skipIf(lacks('curl'))('the time in a file of JSON says whether its token has expired', async () => {
  const example = await startExample({
    tokenFiles: [
      { path: 'token', format: 'raw' },
      { path: 'token.json', format: 'json' },
    ],
  })
  expect(await example.run('expired-file', { with: sh })).toBe('')
  await example.daemon.end('SIGKILL')
  const file = join(example.daemon.directory, 'run/token.json')
  const past = readFileSync(file, 'utf8').replace(/"expiresAt":"\d{4}/, '"expiresAt":"2020')
  writeFileSync(file, past)
  expect(await example.run('expired-file', { with: sh })).toBe('the token has expired\n')
})

test.skipIf(lacks('caddy'))(
  'caddy adds the token, whatever a request brings, for its own host names only',
  async () => {
    const example = await startExample()
    const { directory } = example.daemon
    const port = await freePort()
    const site = block('caddy')
      .code.replaceAll('/run/kyc-tokend', join(directory, 'run'))
      .replaceAll('https://api.example.com', example.service.url)
      .replaceAll(':8080', `:${port}`)
    const file = join(directory, 'Caddyfile')
    writeFileSync(file, `{\n\tadmin off\n}\n${site}\n`)
    const env = { ...process.env, HOME: directory, XDG_CONFIG_HOME: directory, XDG_DATA_HOME: directory }
    const words = ['run', '--config', file, '--adapter', 'caddyfile']
    const caddy = spawn('caddy', words, { stdio: 'ignore', env })
    onTestFinished(() => void caddy.kill('SIGTERM'))
    const call = async (headers: Record<string, string>, query = ''): Promise<string | undefined> =>
      fetch(`http://127.0.0.1:${port}/some/path${query}`, { headers }).then(
        (response) => response.text(),
        () => undefined,
      )
    await expectUntil('caddy', () => call({}))
    expect(await call({ authorization: 'Bearer mine' })).toBe('/some/path is answered\n')
    expect(await call({}, '?a=b&waitSeconds=1&x')).toBe('/some/path?a=b&waitSeconds=1&x is answered\n')
    expect(new Set(example.authorizations('/some/path'))).toEqual(new Set([`Bearer ${example.token}`]))
    // What a page can send without being asked first.
    const { length } = example.service.requests
    for (const origin of ['https://example.com', 'null', `http://127.0.0.1:${port}`])
      expect(
        (await fetch(`http://127.0.0.1:${port}/some/path`, { method: 'POST', headers: { origin } })).status,
      ).toBe(403)
    expect(example.service.requests).toHaveLength(length)
    const other = request({ port, path: '/some/path', headers: { host: 'other.example' } }).end()
    const [{ statusCode }] = (await once(other, 'response')) as [{ statusCode: number }]
    expect(statusCode).toBe(421)
    other.destroy()
  },
)
