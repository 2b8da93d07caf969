import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { spawnSync } from 'node:child_process'
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import { createServer as createTlsServer, type ServerOptions } from 'node:https'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import type { TLSSocket } from 'node:tls'
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'
import { applySetup } from '../../src/setup/setup-files.ts'
import { createSandbox, sandboxCredentials, type Sandbox } from '../../src/sandbox/sandbox.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { PROGRAM } from '../support/daemon.ts'
import { jwtOf } from '../support/jwt.ts'
import { lacks } from '../support/lacks.ts'
import { listening } from '../support/listening.ts'
import { runCli, startAtTerminal, startCli, startProgram, type Ended } from '../support/run-cli.ts'
import { canMount, smallDisk, type SmallDisk } from '../support/small-disk.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const STRANGER = 65_533
/** Root would write to /etc, so root's tests act as an ordinary user. */
const uid = process.getuid!() === 0 ? STRANGER : undefined

let directory: string
let sandbox: Sandbox
let stop: AbortController
let serving: Promise<void>

beforeEach(async () => {
  directory = await tempDirectory()
  if (uid !== undefined) chownSync(directory, uid, uid)
  stop = new AbortController()
  const clock = createSystemClock()
  sandbox = await createSandbox({ port: 0, scenario: 'ok', tokenLifetimeMs: 60_000, clock })
  serving = sandbox.run(stop.signal)
  given('key.txt', `${sandboxCredentials.apiKey}\n`)
  given('secret.txt', `${sandboxCredentials.apiSecret}\n`)
})
afterEach(async () => {
  stop.abort()
  await serving
})

function given(name: string, content: string): void {
  writeFileSync(join(directory, name), content)
  chmodSync(join(directory, name), 0o644)
}

const env = (): NodeJS.ProcessEnv => ({
  HOME: directory,
  XDG_RUNTIME_DIR: directory,
  XDG_STATE_HOME: join(directory, 'state'),
})

/** Of a command in the directory. */
const place = (more: NodeJS.ProcessEnv = {}) => ({
  cwd: directory,
  env: { ...env(), ...more },
  ...(uid !== undefined && { uid }),
})
const PAIR = ['--api-key-file', 'key.txt', '--api-secret-file', 'secret.txt']

function setup(...more: string[]): Promise<Ended> {
  return setupWith(['--base-url', sandbox.url, ...PAIR, ...more])
}
function setupWith(words: readonly string[], input = ''): Promise<Ended> {
  return runCli(['setup', ...words], { ...place(), input })
}

const IN_FILES = { apiKey: { file: 'api-key' }, apiSecret: { file: 'api-secret' } }
const FILES = ['kyc-tokend.config.json', 'api-key', 'api-secret']
const contentOf = (name: string): string => readFileSync(join(directory, name), 'utf8')
const versions = (): number[] => FILES.map((name) => statSync(join(directory, name)).ino)
const configNow = (): Record<string, unknown> => JSON.parse(contentOf(FILES[0]!)) as Record<string, unknown>

describe('kyc-tokend setup without a terminal', () => {
  it('writes files that only the person reads, and tries them with the service', async () => {
    const { status, stdout, stderr } = await setup()
    expect(stderr).toBe('')
    expect(stdout).toMatch(/gave a token that lives/)
    expect(stdout).toMatch(/Next: kyc-tokend run\n$/)
    expect(status).toBe(0)
    expect(FILES.map((name) => statSync(join(directory, name)).mode & 0o777)).toEqual([0o600, 0o600, 0o600])
    expect(contentOf('api-secret')).toBe(`${sandboxCredentials.apiSecret}\n`)
    expect(configNow()).toEqual({ baseUrl: sandbox.url, credentials: IN_FILES })
  })

  it('changes nothing when it is run again, also beside settings of the operator', async () => {
    await setup()
    const config = join(directory, FILES[0]!)
    writeFileSync(config, JSON.stringify({ ...configNow(), refresh: { maxAge: '20m' } }))
    const before = versions()
    const { status, stdout } = await setup()
    expect(stdout).toMatch(/^Nothing was changed$/m)
    expect(status).toBe(0)
    expect(versions()).toEqual(before)
  })

  describe('with all of it in one document', () => {
    const document = (): Record<string, unknown> => ({
      baseUrl: sandbox.url,
      credentials: { ...sandboxCredentials },
      alerts: { contact: 'on call' },
      service: { parameters: { realm: 'partners' } },
    })
    const setupFrom = (content: unknown, words: string[] = []): Promise<Ended> =>
      setupWith(['--from', '-', ...words], typeof content === 'string' ? content : JSON.stringify(content))

    it('takes key and secret out of it into files of their own, and the rest as it is', async () => {
      const { status, stdout, stderr } = await setupFrom(document())
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
      expect(stdout.match(/^Wrote /gm)).toHaveLength(3)
      expect(stdout).not.toContain('Nothing was changed')
      expect(contentOf('api-secret')).toBe(`${sandboxCredentials.apiSecret}\n`)
      expect(configNow()).toEqual({
        baseUrl: sandbox.url,
        credentials: IN_FILES,
        alerts: { contact: 'on call' },
        service: { parameters: { realm: 'partners' } },
      })
      const before = versions()
      given('all.json', JSON.stringify(document()))
      expect((await setupWith(['--from', 'all.json'])).stdout).toMatch(/^Nothing was changed$/m)
      const changed = { ...document(), alerts: { contact: 'the other' } }
      const refused = await setupFrom(changed)
      expect(refused.stderr).toContain('add --force to replace it')
      expect(refused.status).toBe(78)
      expect(versions()).toEqual(before)
      const forced = await setupFrom(changed, ['--force'])
      expect(forced.stdout.match(/^Wrote .*/gm)).toEqual([`Wrote ${join(directory, FILES[0]!)}`])
      expect(configNow()['alerts']).toEqual({ contact: 'the other' })
    })

    it.each([
      ['what is not JSON', () => '{"baseUrl": hush-hush}', /standard input: line 1, column 13: /],
      ['nothing', () => '', /standard input/],
      ['a mistyped setting', () => ({ ...document(), alert: 'hush-hush' }), /standard input: alert: .*"al/],
      [
        'a secret that is elsewhere',
        () => ({ ...document(), credentials: { apiKey: 'hush-hush', apiSecret: { file: 'hush-hush' } } }),
        /credentials\.apiSecret: must be the text itself/,
      ],
      [
        'the endpoint in the address',
        () => ({ ...document(), baseUrl: 'https://a.example/token/external/jwt' }),
        /baseUrl: The address .*remove "\/token/,
      ],
    ])('refuses %s with 78, quotes none of it and writes nothing', async (_, content, sentence) => {
      const { status, stderr } = await setupFrom(content(), ['--force'])
      expect(stderr).toMatch(sentence)
      expect(stderr).not.toContain('hush-hush')
      expect(status).toBe(78)
      expect(FILES.filter((name) => existsSync(join(directory, name)))).toEqual([])
    })
  })

  it('refuses a document of more than 1 MiB', async () => {
    const stderr = 'The file of --from holds more than 1 MiB: name another.\n'
    expect(await setupWith(['--from', '-'], ' '.repeat(1_048_577))).toMatchObject({ status: 64, stderr })
  })

  it('replaces other content only with --force, and keeps the other settings', async () => {
    await setup()
    const config = join(directory, FILES[0]!)
    writeFileSync(config, JSON.stringify({ ...configNow(), baseUrl: 'https://old.example.com', http: false }))
    writeFileSync(join(directory, 'api-key'), 'another-key\n')
    // It holds no secret.
    chmodSync(config, 0o644)
    const refused = await setup()
    expect(refused.status).toBe(78)
    expect(refused.stderr).toContain(
      `There is ${directory}/api-key and ${config} already, with other content: add`,
    )
    expect(contentOf('api-key')).toBe('another-key\n')
    const forced = await setup('--force')
    expect(forced.status).toBe(0)
    expect(configNow()).toMatchObject({ baseUrl: sandbox.url, http: false })
    expect(contentOf('api-key')).toBe(`${sandboxCredentials.apiKey}\n`)
  })

  it.each([
    ['refused', 77, 'the service refuses key and secret', () => given('secret.txt', 'another-secret\n')],
    ['not answered', 75, 'the service gave no token', () => sandbox.setScenario('outage')],
  ])(
    'a pair that is %s leaves nothing, or what was there, unless --unverified',
    async (_, status, why, act) => {
      const sentence = `Nothing was changed, because ${why}`
      act()
      const fresh = await setup()
      expect(fresh.stdout).toContain(sentence)
      expect(fresh.status).toBe(status)
      expect(readdirSync(directory).filter((name) => !name.endsWith('.txt'))).toEqual([])
      const unverified = await setup('--unverified')
      expect(unverified.status).toBe(status)
      expect(unverified.stdout).toMatch(/Next: kyc-tokend run\n$/)
      expect(contentOf('api-secret')).toBe(contentOf('secret.txt'))
    },
  )

  /** A service that answers nobody, until it is told to. */
  async function silentService() {
    const waiting: ServerResponse[] = []
    const silent = createServer((_, response) => waiting.push(response))
    onTestFinished(() => silent.closeAllConnections())
    return { waiting, address: `http://127.0.0.1:${await listening(silent)}` }
  }

  it('runs one at a time: what was checked is what is put in force', async () => {
    const { waiting, address } = await silentService()
    const words = ['setup', '--base-url', address, ...PAIR]
    const first = startCli(words, place())
    await expectUntil('the request', () => waiting.length > 0)
    given('secret.txt', 'another-secret\n')
    const second = await setup('--force', '--unverified')
    expect(second).toMatchObject({
      status: 75,
      stdout: '',
      stderr:
        `Another setup runs for ${join(directory, FILES[0]!)}: ` +
        'wait for its end, then run this again. Nothing was changed.\n',
    })
    waiting[0]!.end(JSON.stringify({ accessToken: jwtOf({ exp: Math.trunc(Date.now() / 1_000) + 600 }) }))
    expect(await first.ended).toMatchObject({ status: 0 })
    expect(configNow()).toMatchObject({ baseUrl: address })
    expect(contentOf('api-secret')).toBe(`${sandboxCredentials.apiSecret}\n`)
    // A killed one keeps nobody out.
    const killed = startCli([...words, '--force'], place())
    await expectUntil('another request', () => waiting.length > 1)
    killed.child.kill('SIGKILL')
    await killed.ended
    expect(await setup('--force', '--unverified')).toMatchObject({ status: 77 })
    expect(contentOf('api-secret')).toBe('another-secret\n')
  })

  it.each(['000', '077', '777'])('writes the same files with the umask %s', async (mask) => {
    const words = ['setup', '--base-url', sandbox.url, ...PAIR]
    const script = `umask ${mask}; exec "$0" "$@"`
    const { ended } = startProgram(['sh', '-c', script, ...PROGRAM, ...words], place())
    expect(await ended).toMatchObject({ status: 0, stderr: '' })
    expect(FILES.map((name) => statSync(join(directory, name)).mode & 0o777)).toEqual([0o600, 0o600, 0o600])
  })

  it('replaces no file before the service has confirmed the pair, also if it is killed', async () => {
    await setup()
    const names = readdirSync(directory)
    const seen = (): unknown => [...FILES, 'api-key', 'api-secret'].map((name) => contentOf(name))
    given('secret.txt', 'another-secret\n')
    const former = seen()
    const { waiting, address } = await silentService()
    const words = ['setup', '--force', '--base-url', address, ...PAIR]
    const { child, ended } = startCli(words, place())
    await expectUntil('the request', () => waiting.length > 0)
    expect(seen()).toEqual(former)
    child.stdout.destroy()
    child.kill('SIGHUP')
    expect(await ended).toMatchObject({ status: null, signal: 'SIGHUP' })
    expect([seen(), readdirSync(directory)]).toEqual([former, names])

    const again = startCli(words, place())
    await expectUntil('another request', () => waiting.length > 1)
    again.child.kill('SIGKILL')
    await again.ended
    expect(seen()).toEqual(former)
    // Files written by hand meanwhile stays.
    writeFileSync(join(directory, 'api-secret'), 'by hand\n')
    const { status } = await setup('--force')
    expect(status).toBe(77)
    expect(contentOf('api-secret')).toBe('by hand\n')
    expect(readdirSync(directory)).toEqual(names)
  })

  describe('for another kind of service', () => {
    /** A token endpoint; gives the forms that it gets. With options it speaks TLS. */
    async function tokenEndpoint(tls?: ServerOptions): Promise<{ url: string; seen: unknown[] }> {
      const seen: unknown[] = []
      const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
        const form = Object.fromEntries(new URLSearchParams(await text(request)))
        const { url, headers, socket } = request
        const peer = tls && (socket as TLSSocket).getPeerCertificate().subject?.CN
        seen.push({ url, login: headers.authorization, ...form, peer })
        response.end(JSON.stringify({ access_token: 'token-1', token_type: 'Bearer', expires_in: 3600 }))
      }
      const onRequest: RequestListener = (request, response) => void answer(request, response)
      const server = tls === undefined ? createServer(onRequest) : createTlsServer(tls, onRequest)
      const port = await listening(server)
      return { url: `${tls === undefined ? 'http://127.0.0.1' : 'https://localhost'}:${port}`, seen }
    }
    const key = { file: 'api-key' }

    it('OAuth2: asks for what is missing, and says when the pair ends', async () => {
      const { url, seen } = await tokenEndpoint()
      const words = ['--base-url', url, '--kind', 'oauth2', '--expires-at', '2099-03-01']
      expect((await setup(...words)).stderr).toContain('no terminal to ask at: give --token-url, or --from.')
      expect((await setup(...words, '--token-url', 'oauth')).stderr).toMatch(
        /^--token-url: The address must be/,
      )
      const { status, stdout } = await setup(...words, '--token-url', '/oauth/token')
      expect(stdout).toMatch(/gave a token that lives 1 h/)
      expect(status).toBe(0)
      expect(configNow()).toEqual({
        baseUrl: url,
        service: { preset: 'oauth2', tokenUrl: '/oauth/token' },
        credentials: { apiKey: key, apiSecret: { file: 'api-secret' }, expiresAt: '2099-03-01' },
      })
      const login = `Basic ${btoa('sandbox-key:sandbox-secret')}`
      expect(seen).toEqual([{ url: '/oauth/token', login, grant_type: 'client_credentials' }])
      const again = await setup('--base-url', url, '--kind', 'oauth2', '--token-url', '/oauth/token')
      expect(again.stdout).toMatch(/^Nothing was changed$/m)
    })

    it('a client certificate: names the option for a private authority, and copies both files', async () => {
      const authority = createAuthority()
      const server = createCertificate(authority, { names: ['localhost'] })
      const client = createCertificate(authority, { names: ['us'] })
      const tls = { ...server, ca: authority.cert, requestCert: true, rejectUnauthorized: true }
      const { url, seen } = await tokenEndpoint(tls)
      given('ca.txt', authority.cert)
      given('cert.txt', client.cert)
      given('cert-key.txt', client.key)
      const kind = `--kind certificate --base-url ${url} --token-url /token`
      const files = '--api-key-file key.txt --certificate-file cert.txt --private-key-file cert-key.txt'
      const words = `${kind} ${files}`.split(' ')
      const untrusted = await setupWith(words)
      expect(untrusted.stdout).toMatch(/Nothing was changed, because TLS failed.* add --ca-file FILE/)
      expect(untrusted.status).toBe(75)
      const { status, stdout } = await setupWith([...words, '--ca-file', 'ca.txt'])
      expect(stdout).toMatch(/gave a token/)
      expect(status).toBe(0)
      expect(seen).toMatchObject([{ url: '/token', client_id: 'sandbox-key', peer: 'us' }])
      const clientCertificate = { certFile: 'client.pem', key: { file: 'client.key' } }
      expect(configNow()).toMatchObject({
        credentials: { apiKey: key, apiSecret: null },
        request: { caFile: 'ca.pem', clientCertificate },
      })
      expect(statSync(join(directory, 'client.key')).mode & 0o777).toBe(0o600)
      const again = await setupWith([...words, '--ca-file', 'ca.txt'])
      expect(again.stdout).toMatch(/^Nothing was changed$/m)
    })

    it('a signed assertion: by the algorithm of its key', async () => {
      const { url, seen } = await tokenEndpoint()
      given('signer.txt', createAuthority().key)
      const kind = `--kind assertion --base-url ${url} --token-url /token --key-id k1`
      const { status } = await setupWith(
        `${kind} --api-key-file key.txt --private-key-file signer.txt`.split(' '),
      )
      expect(status).toBe(0)
      const assertion = { key: { file: 'assertion.pem' }, algorithm: 'ES256', keyId: 'k1' }
      expect(configNow()['service']).toMatchObject({ send: 'assertion', assertion })
      expect(seen).toEqual([
        expect.objectContaining({ client_assertion: expect.stringMatching(/^ey.*\..*\./) }),
      ])
    })

    it('an assertion that another program renews: by the path of its file, with a client id or without', async () => {
      const { url, seen } = await tokenEndpoint()
      const sent = jwtOf({ exp: Math.floor(Date.now() / 1_000) + 300 })
      given('svid', sent)
      chmodSync(join(directory, 'svid'), 0o600)
      if (uid !== undefined) chownSync(join(directory, 'svid'), uid, uid)
      const words = `--kind assertion --base-url ${url} --token-url /token --assertion-file svid`.split(' ')
      expect(await setupWith(words)).toMatchObject({ status: 0 })
      const assertion = { file: join(directory, 'svid') }
      const { credentials, service } = configNow()
      expect(credentials).toMatchObject({ apiKey: null, apiSecret: null })
      expect(service).toMatchObject({ send: 'assertion', assertion })
      expect(existsSync(join(directory, 'api-key'))).toBe(false)
      expect(await setupWith([...words, '--api-key-file', 'key.txt', '--force'])).toMatchObject({ status: 0 })
      expect(configNow()).toMatchObject({ credentials: { apiKey: key }, service: { assertion } })
      expect(seen).toEqual([
        expect.not.objectContaining({ client_id: expect.anything() }),
        expect.objectContaining({ client_id: sandboxCredentials.apiKey, client_assertion: sent }),
      ])
      for (const more of [
        ['--private-key-file', 'key.txt'],
        ['--kind', 'oauth2'],
      ])
        expect((await setupWith([...words, ...more])).stderr).toMatch(
          /--assertion-file is for --kind assertion, without --private-key-file|--private-key-file: The file/,
        )
    })
  })

  it('takes the proxy of the caller only if told, with its password as a secret', async () => {
    const proxies: (string | undefined)[] = []
    const proxy = createServer()
    proxy.on('connect', (request, socket) => {
      proxies.push(request.headers['proxy-authorization'])
      socket.end('HTTP/1.1 502 Bad Gateway\r\n\r\n')
    })
    const port = await listening(proxy)
    const words = ['setup', '--base-url', 'https://api.example.com', '--unverified', '--proxy', ...PAIR]
    // As curl has it, without a scheme. A "%" that begins no escape stands for itself.
    const HTTPS_PROXY = `me:hush-hush%@127.0.0.1:${port}`
    const { stdout } = await runCli(words, place({ HTTPS_PROXY }))
    expect(stdout).toContain(`The daemon will use the proxy http://127.0.0.1:${port}, which`)
    expect(stdout).not.toContain('hush-hush')
    expect(configNow()['request']).toEqual({
      proxy: { url: `http://127.0.0.1:${port}`, user: 'me', password: { file: 'proxy-password' } },
    })
    expect(contentOf('proxy-password')).toBe('hush-hush%\n')
    expect(proxies).toContain(`Basic ${btoa('me:hush-hush%')}`)
  })

  it('has no raw control character of its directory in its output', async () => {
    const odd = join(directory, '\u001b[31m')
    mkdirSync(odd)
    if (uid !== undefined) chownSync(odd, uid, uid)
    const words = ['--api-key-file', '../key.txt', '--api-secret-file', '../secret.txt', '--unverified']
    const options = { ...place(), cwd: odd }
    const { stdout } = await runCli(['setup', '--base-url', sandbox.url, ...words], options)
    expect(stdout).toContain(String.raw`/\u001b[31m/api-key`)
    expect(stdout).not.toContain('\u001b')
  })

  it.each([
    ['--api-key-file', '--base-url https://api.example.com --api-secret-file secret.txt'],
    ['--from', ''],
  ])('says that nobody writes to a named pipe of %s, and ends by a signal', async (option, others) => {
    spawnSync('mkfifo', [join(directory, 'pipe')])
    const words = ['setup', option, 'pipe', ...others.split(' ').filter(Boolean)]
    const { child, stderr, ended } = startCli(words, place())
    onTestFinished(() => void child.kill('SIGKILL'))
    await expectUntil('what it waits for', () => stderr() === `Waiting for the file of ${option}: pipe\n`)
    child.kill('SIGTERM')
    expect(await ended).toMatchObject({ status: null, signal: 'SIGTERM' })
  })

  it.skipIf(lacks('bash'))('reads what a shell substitutes for a file', async () => {
    const program = PROGRAM.map((word) => `'${word}'`).join(' ')
    const files = '--api-key-file <(cat key.txt) --api-secret-file <(cat secret.txt)'
    const script = `${program} setup --base-url ${sandbox.url} ${files}`
    expect(await startProgram(['bash', '-c', script], place()).ended).toMatchObject({ status: 0 })
  })

  it('builds nothing on a configuration that another user can write', async () => {
    await setup()
    chmodSync(join(directory, FILES[0]!), 0o666)
    const { status, stderr } = await setup('--force')
    expect(stderr).toMatch(
      /config\.json can be written by others: `chmod go-w .*`\. Nothing was written\.\n$/,
    )
    expect(status).toBe(78)
  })

  it.runIf(canMount).each<[string, RegExp, (disk: SmallDisk) => unknown]>([
    [
      'is full',
      /no space is left in \S+: free some: `df -h \S+`\. Nothing was changed\.\n$/,
      (disk) => disk.fill(),
    ],
    ['is read-only', /^The directory is read-only: .* Nothing was changed/, (disk) => disk.readOnly(true)],
    [
      'has a directory where a file is to be written',
      /api-secret\.new\. Nothing was changed\.\n$/,
      () => mkdirSync(join(directory, 'api-secret.new')),
    ],
  ])('leaves all as it was on a disk that %s, and says what to do', async (_, sentence, act) => {
    const above = directory
    directory = join(above, 'small')
    const disk = smallDisk(directory)
    chownSync(directory, STRANGER, STRANGER)
    for (const name of ['key.txt', 'secret.txt']) given(name, readFileSync(join(above, name), 'utf8'))
    await setup()
    given('secret.txt', 'another-secret\n')
    await act(disk)
    const seen = (): unknown => [readdirSync(directory), FILES.map(contentOf)]
    const before = seen()
    const { status, stderr } = await setup('--force')
    expect(stderr).toMatch(sentence)
    expect(status).toBe(78)
    expect(seen()).toEqual(before)
  })

  it('puts back what it has replaced where another file cannot be replaced', async () => {
    const [first, second, absent] = ['first', 'second', 'absent'].map((name) => join(directory, name))
    for (const path of [first!, second!]) writeFileSync(path, 'former')
    for (const path of [absent!, first!]) writeFileSync(`${path}.new`, 'next')
    // That of the second is gone.
    const staged = new Map([absent!, first!, second!].map((path) => [path, `${path}.new`]))
    await expect(applySetup(staged)).rejects.toMatchObject({
      status: 78,
      message: expect.stringMatching(/ENOENT.*\. Nothing was changed\.$/) as string,
    })
    expect([first!, second!].map((path) => readFileSync(path, 'utf8'))).toEqual(['former', 'former'])
    expect(existsSync(absent!)).toBe(false)
  })

  it('writes nothing beside a configuration of another form, which would be read instead', async () => {
    given('kyc-tokend.config.yaml', '')
    const { status, stderr } = await setup('--force')
    expect(stderr).toMatch(/config\.yaml already: remove it, or edit it instead\.\n$/)
    expect(status).toBe(78)
    expect(existsSync(join(directory, 'api-key'))).toBe(false)
  })

  it.each<[string, string[], RegExp]>([
    ['an address in the clear', ['--base-url', 'http://api.example.com'], /must begin with https/],
    ['a file that is not there', ['--api-key-file', 'none'], /--api-key-file cannot be read .*ENOENT/],
    ['an empty secret', ['--api-secret-file', '/dev/null'], /--api-secret-file: The secret is empty/],
    ['no certificate', ['--ca-file', 'key.txt'], /--ca-file: The file holds no certificate that can be read/],
    ['another kind', ['--kind', 'other'], /give that with --from FILE: other-services\.md/],
    ['single options beside --from', ['--from', '-'], /--from and --base-url are both given/],
    ['a date that is none', ['--expires-at', '2027-02-30'], /--expires-at: Write a date such as/],
  ])('refuses %s with 64 and writes nothing', async (_, words, sentence) => {
    const { status, stderr } = await setup(...words)
    expect(stderr).toMatch(sentence)
    expect(status).toBe(64)
    expect(FILES.filter((name) => existsSync(join(directory, name)))).toEqual([])
  })

  it('lets the files stay where they are good and something else is faulty', async () => {
    const runtime = join(directory, 'kyc-tokend')
    mkdirSync(runtime, { mode: 0o700 })
    if (uid !== undefined) chownSync(runtime, uid, uid)
    writeFileSync(join(runtime, 'ipc.sock'), 'no socket')
    for (const sentence of ['The files stay', 'Nothing was changed']) {
      const { status, stdout } = await setup()
      expect(stdout).toMatch(new RegExp(`^FAULT +paths [^]*\n${sentence}: correct the faults above\n$`, 'm'))
      expect(status).toBe(78)
    }
    expect(contentOf('api-key')).toBe(`${sandboxCredentials.apiKey}\n`)
  })

  it.runIf(uid !== undefined)('sets up an account for root alone', async () => {
    const stderr = 'Only root sets up an account: run it with sudo.\n'
    expect(await setup('--account', 'eu')).toMatchObject({ status: 77, stderr })
  })
})

describe.skipIf(lacks('script'))('kyc-tokend setup at a terminal', () => {
  const start = () => startAtTerminal(['setup'], place())

  it('names a file that is there already before it asks, whatever is in it', async () => {
    given('api-key', `${sandboxCredentials.apiKey}\n`)
    const { stdout, status } = await start().ended
    expect(status, stdout).toBe(78)
    expect(stdout).toContain(`There is ${directory}/api-key already: add --force to replace it.`)
  })

  /** Gives each answer once the screen ends with its question. */
  const answerAll = async (
    { child, stdout: screen }: ReturnType<typeof start>,
    answers: [RegExp, string][],
  ) => {
    for (const [question, answer] of answers) {
      await expectUntil(String(question), () =>
        question.test(screen().replaceAll(/\u001b\[[\d;?]*[A-Za-z]/g, '')),
      )
      child.stdin.write(answer)
    }
  }

  it('asks for what OAuth 2.0 needs, and writes nothing where the input ends', async () => {
    const running = start()
    await answerAll(running, [
      [/Kind \[json\]: $/, 'oauth2\r'],
      [/Address of the service[^\n]*: $/, `${sandbox.url}\r`],
      [/Where it gives tokens [^\n]*: $/, '/oauth/token\r'],
      [/API key or client id \(not shown\): $/, 'id\r'],
      [/API secret or client secret \(not shown\): $/, '\u0004'],
    ])
    const { status, stdout } = await running.ended
    expect(stdout).toContain('Nothing was entered, and nothing was written.')
    expect(status).toBe(64)
    expect(readdirSync(directory).filter((name) => !name.endsWith('.txt'))).toEqual([])
  })

  it('asks again for what cannot be right, and shows neither key nor secret', async () => {
    const running = start()
    const { stdout: screen, ended } = running
    await answerAll(running, [
      [/OAuth2 client credentials[^]*Kind \[json\]: $/, 'neither\r'],
      [/Write one of json,[^]*: $/, '\r'],
      [/Address of the service[^\n]*: $/, 'api.example.com\r'],
      [/must be a whole URL[^\n]*\n[^\n]*: $/, `${sandbox.url}\r`],
      [/API key or client id \(not shown\): $/, `${sandboxCredentials.apiKey}\r`],
      [/API secret or client secret \(not shown\): $/, `${sandboxCredentials.apiSecret}\r`],
      [/such as 2027-03-01 \[not known\]: $/, 'soon\r'],
      [/Write a date[^\n]*\n[^\n]*: $/, '2099-03-01\r'],
    ])
    expect((await ended).status, screen()).toBe(0)
    expect(screen()).not.toContain(sandboxCredentials.apiKey)
    expect(screen()).not.toContain(sandboxCredentials.apiSecret)
    expect(contentOf('api-key')).toBe(`${sandboxCredentials.apiKey}\n`)
    expect(configNow()['credentials']).toMatchObject({ expiresAt: '2099-03-01' })
  })
})
