// The proxy of programs.md: a real nginx with the example's configuration, a real daemon, and a service that revokes tokens.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { startDaemon } from '../support/daemon.ts'
import { lacks } from '../support/lacks.ts'
import { freshToken, httpAsk, serviceOf, tokenOf, type HttpAnswer } from '../support/outside.ts'
import { granting, type ArrivedRequest } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'
import { PROJECT } from './manual.ts'

type World = Awaited<ReturnType<typeof startWorld>>

const LOCATION = 'https://elsewhere.example.com/'

describe.skipIf(lacks('nginx'))('through the proxy', () => {
  test('no call is lost or done twice, and no program sees a token, whatever happens', async () => {
    const world = await startWorld()
    const answers: HttpAnswer[] = []
    let calls = 0
    const load = { isOver: false }
    const programs = Array.from({ length: 10 }, async () => {
      while (!load.isOver) answers.push(await persist(world, ++calls))
    })
    const happenings: (() => Promise<void>)[] = [
      async () => world.refresh().then(() => world.revoke('former')),
      async () => world.revoke('all'),
      async () => world.reloadNginx(),
      async () => world.restartNginx(),
      async () => void (load.isOver = true),
    ]
    for (const happen of happenings) {
      const until = calls + 50
      await expectUntil('more calls', () => calls >= until)
      await happen()
    }
    await Promise.all(programs)

    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 201]))
    expect([world.done.length, new Set(world.done).size]).toEqual([calls, calls])
    const arrived = world.service.requests.filter(({ path }) => path.startsWith('/some/path'))
    expect(arrived.length).toBeGreaterThan(calls)
    const known = world.tokens.map((token) => `Bearer ${token}`)
    for (const { headers } of arrived) expect(known).toContain(headers.authorization)
    expect(world.service.connections.opened).toBeLessThan(arrived.length / 4)
    expect(world.tokens.length).toBeGreaterThanOrEqual(3)
    const line = /^(GET|POST) \/some\/path 20[01] "[^"]+" [\d.]+$/gm
    // A line is written after the answer.
    await expectUntil('a line for each call', () => world.log().split('\n').length > calls)
    expect(world.log().replaceAll(line, '')).toBe('\n'.repeat(calls))
    expectNoToken(world, answers)
  })

  test('the proxy passes on what is allowed, to a service that it verifies, and says what it cannot do', async () => {
    const world = await startWorld()
    const answers: HttpAnswer[] = []
    const ask = async (method: string, path: string): Promise<HttpAnswer> => {
      answers.push(await world.call(path, method, method === 'POST' ? 'x' : ''))
      return answers.at(-1)!
    }
    const before = world.service.requests.length
    expect((await ask('DELETE', '/some/path')).status).toBe(403)
    for (const path of [
      '/other',
      '/some/path/../other',
      '/applicants/%2e%2e%2fother',
      '/kyc-tokend/authorization',
      '/v1/token',
    ])
      expect([403, 404], path).toContain((await ask('GET', path)).status)
    expect(world.service.requests).toHaveLength(before)

    // Only a 401 is repeated, once; every other answer arrives as it is.
    for (const status of [302, 400, 401, 403, 500, 502, 503, 504]) {
      const path = `/some/path?status=${status}`
      const answer = await ask('POST', path)
      expect(answer).toMatchObject({ status, body: `own ${status}`, headers: { location: LOCATION } })
      expect(answer.headers['set-cookie']).toEqual(['a=b; Path=/'])
      const bodies = world.service.requests.filter((each) => each.path === path).map(({ body }) => body)
      expect(bodies).toEqual(status === 401 ? ['x', 'x'] : ['x'])
    }

    writeFileSync(join(world.directory, 'ca.pem'), createAuthority('Another authority').cert)
    await world.restartNginx()
    const asked = world.service.requests.length
    expect((await ask('GET', '/some/path?unverified')).status).toBe(502)
    await world.daemon.end()
    const without = await ask('GET', '/some/path?1')
    expect(without).toMatchObject({ status: 503, body: expect.stringContaining('has no token') })
    expect(world.service.requests).toHaveLength(asked)
    expectNoToken(world, answers)
  })
})

/** A call until it has an answer: while nginx is away, the program finds no connection. */
async function persist(world: World, number: number): Promise<HttpAnswer> {
  const isPost = number % 2 === 0
  const body = isPost ? `${number} `.repeat((number * 997) % 20_000) : ''
  const path = `/some/path?number=${number}`
  for (;;) {
    try {
      const answer = await world.call(path, isPost ? 'POST' : 'GET', body)
      expect(answer.body === body, path).toBe(true)
      if (isPost) expect(answer.headers).toMatchObject({ location: path, 'set-cookie': ['a=1', 'b=2'] })
      return answer
    } catch (error) {
      if (!(error instanceof Error && 'code' in error)) throw error
      expect(['ENOENT', 'ECONNREFUSED', 'ECONNRESET', 'EPIPE']).toContain(error.code)
      await sleep(10)
    }
  }
}

function expectNoToken(world: World, answers: readonly HttpAnswer[]): void {
  const readable = answers.map(({ headers, body }) => JSON.stringify(headers) + body).join('')
  const written = world.log() + world.stderr()
  for (const part of ['Bearer e', ...world.tokens.flatMap((token) => token.split('.').slice(1))])
    expect((readable + written).includes(part)).toBe(false)
}

async function startWorld() {
  const directory = await tempDirectory()
  const authority = createAuthority()
  /** Every token that the service has given, oldest first. */
  const tokens: string[] = []
  const refused = new Set<string>()
  /** The path of each call that the service has done. */
  const done: string[] = []
  /** Answers `status=` in a query with that status, whatever the token; else it does the call, and gives its body back. */
  const answer = ({ path, method, headers, body }: ArrivedRequest) => {
    if (path === '/token/external/jwt') {
      tokens.push(freshToken())
      return granting(tokens.at(-1)!)
    }
    const status = Number(/status=(\d+)/.exec(path)?.[1])
    const other = { 'set-cookie': 'a=b; Path=/', 'x-accel-redirect': '/kyc-tokend/authorization' }
    if (status > 0) return { status, headers: { location: LOCATION, ...other }, body: `own ${status}` }
    const token = headers.authorization?.replace(/^Bearer /, '') ?? ''
    if (!tokens.includes(token) || refused.has(token))
      return { status: 401, headers: { 'www-authenticate': 'Bearer' }, body: 'refused' }
    done.push(path)
    if (method === 'GET') return { body }
    return { status: 201, headers: { location: path, 'set-cookie': ['a=1', 'b=2'] } as never, body }
  }
  const service = await serviceOf(answer, createCertificate(authority, { names: ['localhost'] }))
  writeFileSync(join(directory, 'ca.pem'), authority.cert)
  const daemon = startDaemon({ directory, baseUrl: service.url, config: { request: { caFile: 'ca.pem' } } })
  await daemon.listening()
  await tokenOf(daemon)

  const proxy = join(directory, 'proxy')
  const httpPath = join(proxy, 'api.sock')
  const config = join(directory, 'nginx.conf')
  const example = readFileSync(join(PROJECT, 'systemd/examples/nginx-api.conf'), 'utf8')
    .replaceAll('/run/kyc-api-proxy', proxy)
    .replaceAll('/run/kyc-tokend/http.sock', daemon.httpPath)
    .replaceAll('api.example.com:443', `127.0.0.1:${service.port}`)
    .replaceAll('api.example.com', 'localhost')
    .replaceAll('/etc/ssl/certs/ca-certificates.crt', join(directory, 'ca.pem'))
    .replace(/syslog:\S+/, join(directory, 'access.log'))
  // As root nginx would take another user for its workers, who could not reach the directory of the test.
  writeFileSync(config, process.getuid?.() === 0 ? `user root;\n${example}` : example)
  let stderr = ''
  const startNginx = async () => {
    mkdirSync(proxy)
    const nginx = spawn('nginx', ['-e', 'stderr', '-c', config, '-g', 'daemon off;'])
    nginx.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    const ended = once(nginx, 'exit')
    /** Ends it when the calls under way are answered. As systemd does, it removes the directory. */
    const end = async (): Promise<void> => {
      nginx.kill('SIGQUIT')
      await ended
      rmSync(proxy, { recursive: true, force: true })
    }
    onTestFinished(end)
    await expectUntil('nginx', () => {
      if (nginx.exitCode !== null) throw new Error(`nginx has ended: ${stderr}`)
      return existsSync(httpPath) && existsSync(join(proxy, 'nginx.pid'))
    })
    return { nginx, end }
  }
  let running = await startNginx()

  return {
    directory,
    daemon,
    service,
    tokens,
    done,
    log: () => readFileSync(join(directory, 'access.log'), 'utf8'),
    stderr: () => stderr,
    /** To the daemon itself. */
    async refresh(): Promise<void> {
      expect((await httpAsk(daemon, '/v1/refresh', { method: 'POST' })).status).toBe(200)
    },
    /** Makes the service refuse every token but the newest, or that one too. */
    revoke(which: 'former' | 'all'): void {
      for (const token of which === 'all' ? tokens : tokens.slice(0, -1)) refused.add(token)
    },
    /** With a header that a program might try. */
    call: (path: string, method = 'GET', body = '') =>
      httpAsk({ httpPath }, path, { method, body, headers: { authorization: 'Bearer mine' } }),
    reloadNginx(): void {
      // As ExecReload= does.
      expect(spawnSync('nginx', ['-t', '-q', '-e', 'stderr', '-c', config]).status).toBe(0)
      running.nginx.kill('SIGHUP')
    },
    async restartNginx(): Promise<void> {
      await running.end()
      running = await startNginx()
    },
  }
}
