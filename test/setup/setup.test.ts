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
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'
import { discardStaged, planSetup, setupFiles } from '../../src/setup/setup-files.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createSandbox, sandboxCredentials, type Sandbox } from '../../src/sandbox/sandbox.ts'
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

  it('replaces a configuration only with --force, keeps its other settings, and says when nothing changes', async () => {
    await setup()
    const config = join(directory, FILES[0]!)
    writeFileSync(config, JSON.stringify({ ...configNow(), refresh: { maxAge: '20m' } }))
    const before = versions()
    const refused = await setup()
    expect(refused).toMatchObject({
      status: 78,
      stderr: `There is ${config} already: add --force to replace it.\n`,
    })
    const same = await setup('--force')
    expect(same).toMatchObject({
      status: 0,
      stdout: expect.stringMatching(/^Nothing was changed$/m) as string,
    })
    expect(versions()).toEqual(before)
    writeFileSync(join(directory, 'api-key'), 'another-key\n')
    expect(await setup('--force')).toMatchObject({ status: 0 })
    expect(configNow()).toMatchObject({ refresh: { maxAge: '20m' }, credentials: IN_FILES })
    expect(contentOf('api-key')).toBe(`${sandboxCredentials.apiKey}\n`)
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
      given('all.json', JSON.stringify({ ...document(), alerts: undefined }))
      expect((await setupWith(['--from', 'all.json', '--force'])).status).toBe(0)
      // It is the whole of the configuration.
      expect(configNow()).not.toHaveProperty('alerts')
    })

    it('leaves sources of secrets as they are', async () => {
      const credentials = { apiKey: 'sandbox-key', apiSecret: { file: 'own' } }
      writeFileSync(join(directory, 'own'), sandboxCredentials.apiSecret, { mode: 0o600 })
      if (uid !== undefined) chownSync(join(directory, 'own'), uid, uid)
      expect(await setupFrom({ ...document(), credentials })).toMatchObject({ status: 0 })
      expect(configNow()['credentials']).toEqual({ apiKey: { file: 'api-key' }, apiSecret: { file: 'own' } })
    })

    it.each([
      ['what is not JSON', () => '{"baseUrl": hush-hush}', /line 1, column 13: /],
      ['nothing', () => '', /is empty/],
      ['a mistyped setting', () => ({ ...document(), alert: 'hush-hush' }), /alert: .*"al/],
      ['the endpoint in the address', () => ({ ...document(), baseUrl: 'http://hush.example' }), /baseUrl: /],
    ])('refuses %s with 78, quotes none of it and writes nothing', async (_, content, sentence) => {
      const { status, stdout, stderr } = await setupFrom(content(), ['--force'])
      expect(stdout).toMatch(sentence)
      expect(stdout + stderr).not.toContain('hush-hush')
      expect(status).toBe(78)
      expect(FILES.filter((name) => existsSync(join(directory, name)))).toEqual([])
    })
  })

  it('refuses a document of more than 1 MiB', async () => {
    const stderr = 'The file of --from holds more than 1 MiB: name another.\n'
    expect(await setupWith(['--from', '-'], ' '.repeat(1_048_577))).toMatchObject({ status: 64, stderr })
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

  it('for an OAuth2 service it asks for what is missing, and says when the pair ends', async () => {
    const seen: unknown[] = []
    const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
      seen.push({ url: request.url, login: request.headers.authorization, form: await text(request) })
      response.end(JSON.stringify({ access_token: 'token-1', token_type: 'Bearer', expires_in: 3600 }))
    }
    const server = createServer((request, response) => void answer(request, response))
    const url = `http://127.0.0.1:${await listening(server)}`
    const words = ['--base-url', url, '--kind', 'oauth2', '--expires-at', '2099-03-01']
    expect((await setup(...words)).stderr).toContain('no terminal to ask at: give --token-url, or --from.')
    expect((await setup(...words, '--token-url', 'oauth')).stderr).toMatch(
      /^The answer of --token-url must be/,
    )
    const { status, stdout } = await setup(...words, '--token-url', '/oauth/token')
    expect(stdout).toMatch(/gave a token that lives 1 h/)
    expect(status).toBe(0)
    expect(configNow()).toEqual({
      baseUrl: url,
      service: { preset: 'oauth2', tokenUrl: '/oauth/token' },
      credentials: { ...IN_FILES, expiresAt: '2099-03-01' },
    })
    const login = `Basic ${btoa('sandbox-key:sandbox-secret')}`
    expect(seen).toEqual([{ url: '/oauth/token', login, form: 'grant_type=client_credentials' }])
  })

  it('has no raw control character of its directory in its output', async () => {
    const odd = join(directory, '\u001b[31m')
    mkdirSync(odd)
    if (uid !== undefined) chownSync(odd, uid, uid)
    const words = ['--api-key-file', '../key.txt', '--api-secret-file', '../secret.txt', '--unverified']
    const options = { ...place(), cwd: odd }
    const { stdout } = await runCli(['setup', '--base-url', sandbox.url, ...words], options)
    expect(stdout).toContain(String.raw`/\u001b[31m/`)
    expect(stdout).not.toContain('\u001b')
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
      /config\.json can be written by others than its owner: `chmod go-w .*`\. Nothing was changed\.\n$/,
    )
    expect(status).toBe(78)
  })

  it.runIf(canMount).each<[string, RegExp, (disk: SmallDisk) => unknown]>([
    ['is full', /^No space is left in \S+: free some: `df -h \S+`\.\n$/, (disk) => disk.fill()],
    ['is read-only', /read-only/i, (disk) => disk.readOnly(true)],
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

  it('leaves the former pair or the new one, whole, whenever it is killed, and so does the next one', async () => {
    const settings = { baseUrl: sandbox.url, credentials: {} }
    const answersOf = (pair: string) => ({
      settings,
      secrets: { apiKey: `${pair}-key-1`, apiSecret: `${pair}-secret-1` },
      document: '{}',
    })
    // This process is no stranger, and root's files would be those of /etc.
    chownSync(directory, process.getuid!(), process.getgid!())
    const files = {
      ...(await setupFiles(undefined, directory)),
      config: join(directory, 'kyc-tokend.config.json'),
      secrets: { apiKey: join(directory, 'api-key'), apiSecret: join(directory, 'api-secret') },
      attributes: { mode: 0o600 },
    }
    /** Each of a setup that ends after so many steps. */
    async function put(pair: string, steps = Infinity): Promise<void> {
      const staged = await planSetup(files, answersOf(pair)).stage()
      for (const step of staged.steps.slice(0, steps)) await step()
      if (steps === Infinity) await discardStaged(files)
    }
    const inUse = async (): Promise<(string | undefined)[]> => {
      const { pair } = await loadConfig({ configPath: files.config, env: {} })
      return [pair.apiKey?.reveal(), pair.apiSecret?.reveal()]
    }
    const whole = (pair: string): string[] => [`${pair}-key-1`, `${pair}-secret-1`]
    for (let steps = 0; steps <= 4; steps += 1) {
      await put('former')
      await put('next', steps)
      expect(await inUse()).toEqual(whole(steps === 0 ? 'former' : 'next'))
      // The next setup is killed, too; it removes no secret that is in use.
      await discardStaged(files)
      expect(await inUse()).toEqual(whole(steps === 0 ? 'former' : 'next'))
      await put('third', steps)
      expect(await inUse()).toEqual(whole(steps === 0 ? 'former' : 'third'))
    }
    await put('last')
    expect(await inUse()).toEqual(whole('last'))
    expect(readdirSync(directory).filter((name) => name.startsWith('.setup-'))).toEqual([])
  })

  it('is not kept out by a lock of anybody else on its directory', async () => {
    const holder = startProgram(['flock', directory, 'sleep', '60'], {})
    onTestFinished(() => void holder.child.kill('SIGKILL'))
    await expectUntil('the lock', () => spawnSync('flock', ['-n', directory, 'true']).status === 1)
    expect(await setup()).toMatchObject({ status: 0 })
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
    ['an empty secret', ['--api-secret-file', '/dev/null'], /--api-secret-file is empty/],
    ['another kind', ['--kind', 'other'], /--kind/],
    ['single options beside --from', ['--from', '-'], /--from and --base-url are both given/],
    ['a date that is none', ['--expires-at', '2027-02-30'], /--expires-at must be a date such as/],
  ])('refuses %s with 64 and writes nothing', async (_, words, sentence) => {
    const { status, stderr } = await setup(...words)
    expect(stderr).toMatch(sentence)
    expect(status).toBe(64)
    expect(FILES.filter((name) => existsSync(join(directory, name)))).toEqual([])
  })

  it.runIf(uid !== undefined)('sets up an account for root alone', async () => {
    const stderr = 'Only root sets up an account: run it with sudo.\n'
    expect(await setup('--account', 'eu')).toMatchObject({ status: 77, stderr })
  })
})

describe.skipIf(lacks('script'))('kyc-tokend setup at a terminal', () => {
  const start = (...words: string[]) => startAtTerminal(['setup', ...words], place())

  it('names a configuration that is there already before it asks, whatever is in it', async () => {
    given('kyc-tokend.config.json', '')
    const { stdout, status } = await start().ended
    expect(status, stdout).toBe(78)
    expect(stdout).toContain(`There is ${directory}/kyc-tokend.config.json already: add --force`)
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
    const running = start('--kind', 'oauth2')
    await answerAll(running, [
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
      [/Address of the service[^\n]*: $/, 'api.example.com\r'],
      [/must be a whole URL[^\n]*\n[^\n]*: $/, `${sandbox.url}\r`],
      [/API key or client id \(not shown\): $/, `${sandboxCredentials.apiKey}\r`],
      [/API secret or client secret \(not shown\): $/, `${sandboxCredentials.apiSecret}\r`],
      [/such as 2027-03-01 \[not known\]: $/, 'soon\r'],
      [/must be a date[^\n]*\n[^\n]*: $/, '2099-03-01\r'],
    ])
    expect((await ended).status, screen()).toBe(0)
    expect(screen()).not.toContain(sandboxCredentials.apiKey)
    expect(screen()).not.toContain(sandboxCredentials.apiSecret)
    expect(contentOf('api-key')).toBe(`${sandboxCredentials.apiKey}\n`)
    expect(configNow()['credentials']).toMatchObject({ expiresAt: '2099-03-01' })
  })
})
