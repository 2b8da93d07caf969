// The examples of clients in every language that this machine has, run as they stand there.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { createConnection, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { lacks } from '../support/lacks.ts'
import { listening } from '../support/listening.ts'
import { freePort } from '../support/redis.ts'
import { expectUntil } from '../support/until.ts'
import { installClient, startExample } from './example.ts'
import { block } from './manual.ts'

/** The name, the program that it needs, and how the file or the block of this name is run. */
const WAYS = [
  { name: 'php', needs: 'php', with: ['php'], file: 'example.php' },
  { name: 'ruby', needs: 'ruby', with: ['ruby', '-W'], file: 'example.rb' },
  { name: 'java', needs: 'javac', with: ['java'], file: 'Example.java' },
  { name: 'python', needs: 'python3', with: ['python3'], file: 'example.py' },
  { name: 'go', needs: 'go', with: ['go', 'run'], file: 'example.go' },
  { name: 'node-ipc', needs: 'sh', with: [process.execPath], file: 'node-ipc.mjs' },
  { name: 'curl', needs: 'curl', with: ['sh', '-eu'], as: 'curl.sh' },
].filter(({ needs }) => !lacks(needs))

test('in every language a call is asked once more if its connection is closed, and fails without an answer', async () => {
  const example = await startExample()
  installClient(example, ['node-ipc'])
  const directory = join(example.daemon.directory, 'run')
  /** The output of each example, or why it failed, by its name. They run together. */
  const outcomes = (edit: (code: string, name: string) => string) =>
    Promise.all(
      WAYS.map(async ({ name, ...how }): Promise<[string, string]> => {
        const run = example.run(name, { ...how, edit: (code) => edit(code, name) })
        return [name, await run.catch(String)]
      }),
    )
  async function listen(file: string, onConnection: (client: Socket) => void): Promise<void> {
    const server = createServer((client) => onConnection(client.on('error', () => undefined)))
    await listening(server, join(directory, file))
  }

  // The sockets of each close every second connection: first after its request, then before it.
  for (const { name } of WAYS)
    for (const file of ['ipc.sock', 'http.sock']) {
      let connections = 0
      await listen(`${name}-${file}`, (client) => {
        connections += 1
        if (connections === 1) client.once('data', () => client.end())
        else if (connections === 3) client.destroy()
        else client.pipe(createConnection(join(directory, file))).pipe(client)
      })
    }
  const own = (code: string, name: string): string =>
    code.replaceAll(/(?<=\/run\/kyc-tokend\/)(?=ipc|http)/g, `${name}-`)
  const curl = new RegExp(`^{"accessToken":.*}${example.token}$`)
  const others = new RegExp(`^${example.token.length} characters`)
  for (const [name, outcome] of [...(await outcomes(own)), ...(await outcomes(own))])
    expect(outcome, name).toMatch(name === 'curl' ? curl : others)

  await example.daemon.end('SIGTERM')
  const { length } = example.authorizations('/some/path')
  const away = await outcomes((code) => code)
  for (const file of ['ipc.sock', 'http.sock']) await listen(file, () => undefined)
  const impatient = (code: string): string => code.replaceAll(/\b30(?=\b|_000\b)/g, '1')
  const stuck = (await outcomes(impatient)).filter(([name]) => name !== 'curl')
  for (const [name, outcome] of [...away, ...stuck]) {
    expect(outcome, name).toMatch(/ended with \d+: \S/)
    expect(outcome, name).not.toContain('Traceback')
  }
  expect(example.authorizations('/some/path')).toHaveLength(length)
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
    const call = (given: RequestInit = {}, query = ''): Promise<Response> =>
      fetch(`http://127.0.0.1:${port}/some/path${query}`, given)
    await expectUntil('caddy', () => call().catch(() => undefined))
    const own = await call({ headers: { authorization: 'Bearer mine' } })
    expect(await own.text()).toBe('/some/path is answered\n')
    const query = '?a=b&waitSeconds=1&x'
    expect(await (await call({}, query)).text()).toBe(`/some/path${query} is answered\n`)
    expect(new Set(example.authorizations('/some/path'))).toEqual(new Set([`Bearer ${example.token}`]))
    // What a page can send without being asked first.
    const { length } = example.service.requests
    for (const origin of ['https://example.com', 'null', `http://127.0.0.1:${port}`])
      expect((await call({ method: 'POST', headers: { origin } })).status).toBe(403)
    expect(example.service.requests).toHaveLength(length)
    const other = request({ port, path: '/some/path', headers: { host: 'other.example' } }).end()
    const [{ statusCode }] = (await once(other, 'response')) as [{ statusCode: number }]
    expect(statusCode).toBe(421)
    other.destroy()
  },
)
