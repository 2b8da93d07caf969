// The proxy of programs.md: a real nginx with the example's configuration, a real daemon, and a service that revokes tokens.
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { startDaemon } from '../support/daemon.ts'
import { jwtOf } from '../support/jwt.ts'
import { lacks } from '../support/lacks.ts'
import { httpAsk, serviceOf, tokenOf, type HttpAnswer } from '../support/outside.ts'
import { granting, type ScriptedAnswer, type Service } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'
import { PROJECT } from './manual.ts'

interface Call {
  readonly method?: string
  readonly path: string
  readonly body?: string
}

type World = Awaited<ReturnType<typeof startWorld>>

describe.skipIf(lacks('nginx', 'python3'))('through the proxy', () => {
  test('no call is lost or done twice, and no program sees a token, whatever happens', async () => {
    const world = await startWorld()
    const answers: HttpAnswer[] = []
    let calls = 0
    const load = { isOver: false }
    const callOnAndOn = async (): Promise<void> => {
      while (!load.isOver) answers.push(await persist(world, ++calls))
    }
    const programs = Array.from({ length: 10 }, callOnAndOn)
    const happenings: (() => Promise<void>)[] = [
      async () => world.refresh().then(() => world.revoke('former')),
      async () => world.revoke('all'),
      async () => world.reloadNginx(),
      async () => world.endNginx().then(async () => world.startNginx()),
      async () => void (load.isOver = true),
    ]
    for (const happen of happenings) {
      const until = calls + 50
      await expectUntil('more calls', () => calls >= until)
      await happen()
    }
    await Promise.all(programs)

    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 201]))
    expect([...world.done.values()].every((times) => times === 1)).toBe(true)
    expect(world.done.size).toBe(calls)
    const arrived = world.service.requests.filter(({ path }) => path.startsWith('/some/path'))
    expect(arrived.length).toBeGreaterThan(calls)
    const known = world.tokens.map((token) => `Bearer ${token}`)
    for (const { headers } of arrived) expect(known).toContain(headers.authorization)
    expect(world.service.connections.opened).toBeLessThan(arrived.length / 4)
    expect(world.tokens.length).toBeGreaterThanOrEqual(3)
    const line = /^(GET|POST) \/some\/path 20[01] "[^"]+" [\d.]+$/gm
    const log = (): string => readFileSync(join(world.directory, 'access.log'), 'utf8')
    // A line is written after the answer.
    await expectUntil('a line for each call', () => log().split('\n').length > calls)
    expect(log().replaceAll(line, '')).toBe('\n'.repeat(calls))
    expectNoToken(world, answers)
  })

  test('the proxy passes on what is allowed, and says what it cannot do', async () => {
    const world = await startWorld()
    const { service, script, call } = world
    const answers: HttpAnswer[] = []
    const arrived = (path: string): number => service.requests.filter((each) => each.path === path).length

    const forbidden = `DELETE /some/path
      GET /other
      GET /some/path/../other
      GET /applicants/%2e%2e%2fother
      GET /kyc-tokend/authorization
      GET /v1/token`
    const before = service.requests.length
    for (const line of forbidden.split('\n')) {
      const [method = '', path = ''] = line.trim().split(' ')
      const answer = await call({ method, path })
      expect([403, 404], line).toContain(answer.status)
      answers.push(answer)
    }
    expect(service.requests).toHaveLength(before)

    // Only a 401 is repeated, once; every other answer arrives as it is.
    const location = 'https://elsewhere.example.com/'
    for (const status of [302, 400, 403, 500, 502, 503, 504]) {
      const path = `/some/path?status=${status}`
      const cookies = { 'set-cookie': 'a=b; Path=/', 'x-accel-redirect': '/kyc-tokend/authorization' }
      script(path, { status, headers: { location, ...cookies }, body: `own ${status}` })
      const answer = await call({ method: 'POST', path, body: 'x' })
      expect(answer).toMatchObject({ status, body: `own ${status}`, headers: { location } })
      expect(answer.headers['set-cookie']).toEqual(['a=b; Path=/'])
      expect(arrived(path)).toBe(1)
      answers.push(answer)
    }
    const own = '/some/path?status=401'
    script(own, { status: 401, headers: { 'www-authenticate': 'Bearer' }, body: 'own 401' })
    answers.push(await call({ method: 'POST', path: own, body: 'x' }))
    expect(answers.at(-1)).toMatchObject({ status: 401, body: 'own 401' })
    expect(service.requests.filter(({ path }) => path === own).map(({ body }) => body)).toEqual(['x', 'x'])

    await world.endDaemon()
    answers.push(await call({ path: '/some/path?without=daemon' }))
    expect(answers.at(-1)).toMatchObject({ status: 503, body: expect.stringContaining('has no token') })
    expect(arrived('/some/path?without=daemon')).toBe(0)
    expectNoToken(world, answers)
  })

  test('the proxy sends nothing to a service that it cannot verify', async () => {
    const world = await startWorld({ trusted: createAuthority('Another authority').cert })
    expect((await world.call({ path: '/some/path?1' })).status).toBe(502)
    expect(world.service.requests.filter(({ path }) => path.startsWith('/some'))).toEqual([])
  })
})

/** A call until it has an answer: while nginx is away, the program finds no connection. */
async function persist(world: World, number: number): Promise<HttpAnswer> {
  const isPost = number % 2 === 0
  const body = isPost ? `${number} `.repeat((number * 997) % 20_000) : ''
  const path = `/some/path?number=${number}`
  for (;;) {
    try {
      const answer = await world.call({ method: isPost ? 'POST' : 'GET', path, body })
      expect(answer.body).toBe(echoOf(body))
      if (isPost) expect(answer.headers).toMatchObject({ location: path, 'set-cookie': ['a=1', 'b=2'] })
      return answer
    } catch (error) {
      if (!(error instanceof Error && 'code' in error)) throw error
      expect(['ENOENT', 'ECONNREFUSED', 'ECONNRESET', 'EPIPE']).toContain(error.code)
      await sleep(10)
    }
  }
}

function echoOf(body: string): string {
  return createHash('sha256').update(body).digest('hex')
}

function expectNoToken(world: World, answers: readonly HttpAnswer[]): void {
  const readable = JSON.stringify(answers) + world.files()
  for (const token of world.tokens)
    for (const part of token.split('.').slice(1)) expect(readable.includes(part)).toBe(false)
  expect(readable.includes('Bearer e')).toBe(false)
}

async function startWorld({ trusted }: { trusted?: string } = {}) {
  const directory = await tempDirectory()
  const authority = createAuthority()
  /** Every token that the service has given, oldest first. */
  const tokens: string[] = []
  const refused = new Set<string>()
  /** By the number of a call: so many times the service has done it. */
  const done = new Map<number, number>()
  const scripted = new Map<string, ScriptedAnswer>()
  const service = await serviceOf(
    ({ path, method, headers, body }) => {
      if (path === '/token/external/jwt') {
        tokens.push(jwtOf({ exp: Math.floor(Date.now() / 1000) + 3_600, n: tokens.length }, tokens.length))
        return granting(tokens.at(-1) ?? '')
      }
      const own = scripted.get(path)
      if (own !== undefined) return own
      const [, token = ''] = /^Bearer (.+)$/.exec(headers.authorization ?? '') ?? []
      if (!tokens.includes(token) || refused.has(token))
        return { status: 401, headers: { 'www-authenticate': 'Bearer' }, body: 'refused' }
      const number = Number(/\d+$/.exec(path)?.[0])
      done.set(number, (done.get(number) ?? 0) + 1)
      const answer = { body: echoOf(body) }
      if (method === 'GET') return answer
      return { ...answer, status: 201, headers: { location: path, 'set-cookie': ['a=1', 'b=2'] } as never }
    },
    createCertificate(authority, { names: ['localhost'] }),
  )
  writeFileSync(join(directory, 'ca.pem'), authority.cert)
  writeFileSync(join(directory, 'trusted.pem'), trusted ?? authority.cert)

  const daemon = startDaemon({ directory, baseUrl: service.url, config: { request: { caFile: 'ca.pem' } } })
  const { httpPath } = daemon
  await daemon.listening()
  await tokenOf(daemon)

  const socketPath = join(directory, 'proxy/api.sock')
  const configFile = join(directory, 'nginx.conf')
  mkdirSync(join(directory, 'proxy'))
  writeFileSync(configFile, exampleFor({ directory, service, httpPath }))
  let nginx: ChildProcess | undefined
  let stderr = ''
  /** Ends it when the calls under way are answered. */
  const endNginx = async (): Promise<void> => {
    if (nginx?.exitCode !== null || nginx.signalCode !== null) return
    const ended = once(nginx, 'exit')
    nginx.kill('SIGQUIT')
    await ended
    // systemd empties the directory.
    rmSync(join(directory, 'proxy'), { recursive: true })
    mkdirSync(join(directory, 'proxy'))
  }
  const startNginx = async (): Promise<void> => {
    const started = spawn('nginx', ['-e', 'stderr', '-c', configFile, '-g', 'daemon off;'], {
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    started.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    nginx = started
    await expectUntil('nginx', () => {
      if (started.exitCode !== null) throw new Error(`nginx has ended: ${stderr}`)
      return existsSync(socketPath) && existsSync(join(directory, 'proxy/nginx.pid'))
    })
  }
  onTestFinished(endNginx)
  await startNginx()

  return {
    directory,
    service,
    tokens,
    done,
    /** All that nginx has written, its configuration, and what it was started with. */
    files(): string {
      const proc = `/proc/${nginx?.pid}`
      const paths = [join(directory, 'access.log'), configFile, `${proc}/cmdline`, `${proc}/environ`]
      return paths.map((path) => readFileSync(path, 'utf8')).join('\n') + stderr
    },
    /** Makes the service refuse every token but the newest, or that one too. */
    revoke(which: 'former' | 'all'): void {
      for (const token of which === 'all' ? tokens : tokens.slice(0, -1)) refused.add(token)
    },
    /** Answers this path so, whatever the token. */
    script: (path: string, answer: ScriptedAnswer) => void scripted.set(path, answer),
    /** With what a program might try. */
    call: ({ path, ...call }: Call) =>
      httpAsk({ httpPath: socketPath }, path, { ...call, headers: { authorization: 'Bearer mine' } }),
    /** To the daemon itself. */
    async refresh(): Promise<void> {
      expect((await httpAsk({ httpPath }, '/v1/refresh', { method: 'POST' })).status).toBe(200)
    },
    endDaemon: () => daemon.end(),
    startNginx,
    endNginx,
    reloadNginx(): void {
      // As ExecReload= does.
      expect(spawnSync('nginx', ['-t', '-q', '-e', 'stderr', '-c', configFile]).status).toBe(0)
      nginx?.kill('SIGHUP')
    },
  }
}

/** The example, with the paths and the service of the test. */
function exampleFor(options: { directory: string; service: Service; httpPath: string }): string {
  const { directory, service, httpPath } = options
  const example = readFileSync(join(PROJECT, 'systemd/examples/nginx-api.conf'), 'utf8')
    .replaceAll('/run/kyc-api-proxy', join(directory, 'proxy'))
    .replaceAll('/run/kyc-tokend/http.sock', httpPath)
    .replaceAll('api.example.com:443', `127.0.0.1:${service.port}`)
    .replaceAll('api.example.com', 'localhost')
    .replaceAll('/etc/ssl/certs/ca-certificates.crt', join(directory, 'trusted.pem'))
    .replace(/syslog:\S+/, join(directory, 'access.log'))
  // As root nginx would take another user for its workers, who could not reach the directory of the test.
  return process.getuid?.() === 0 ? `user root;\n${example}` : example
}
