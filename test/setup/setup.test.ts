import { chmodSync, chownSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'
import { discardStaged, planSetup } from '../../src/setup/setup-files.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createSandbox, sandboxCredentials } from '../../src/sandbox/sandbox.ts'
import { PROGRAM } from '../support/daemon.ts'
import { jwtOf } from '../support/jwt.ts'
import { lacks } from '../support/lacks.ts'
import { listening } from '../support/listening.ts'
import { runCli, startAtTerminal, startCli, startProgram, type Ended } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const STRANGER = 65_533
/** Root would write to /etc, so root's tests act as an ordinary user. */
const uid = process.getuid!() === 0 ? STRANGER : undefined

let directory: string
let sandbox: Awaited<ReturnType<typeof createSandbox>>

beforeEach(async () => {
  directory = await tempDirectory()
  if (uid !== undefined) chownSync(directory, uid, uid)
  const clock = createSystemClock()
  sandbox = await createSandbox({ port: 0, scenario: 'ok', tokenLifetimeMs: 60_000, clock })
  const stop = new AbortController()
  const serving = sandbox.run(stop.signal)
  given('key.txt', `${sandboxCredentials.apiKey}\n`)
  given('secret.txt', `${sandboxCredentials.apiSecret}\n`)
  return async () => {
    stop.abort()
    await serving
  }
})

function given(name: string, content: string): void {
  writeFileSync(join(directory, name), content)
  chmodSync(join(directory, name), 0o644)
}

/** Of a command in the directory. */
const place = () => ({
  cwd: directory,
  env: { HOME: directory, XDG_RUNTIME_DIR: directory, XDG_STATE_HOME: join(directory, 'state') },
  ...(uid !== undefined && { uid }),
})
const PAIR = ['--api-key-file', 'key.txt', '--api-secret-file', 'secret.txt']

const setupWith = (words: readonly string[], input = ''): Promise<Ended> =>
  runCli(['setup', ...words], { ...place(), input })
const setup = (...more: string[]): Promise<Ended> => setupWith(['--base-url', sandbox.url, ...PAIR, ...more])

const IN_FILES = { apiKey: { file: 'api-key' }, apiSecret: { file: 'api-secret' } }
const FILES = ['kyc-tokend.config.json', 'api-key', 'api-secret']
const contentOf = (name: string): string => readFileSync(join(directory, name), 'utf8')
const versions = (): number[] => FILES.map((name) => statSync(join(directory, name)).ino)
const configNow = (): Record<string, unknown> => JSON.parse(contentOf(FILES[0]!)) as Record<string, unknown>

describe('kyc-tokend setup without a terminal', () => {
  it('writes files that only the person reads, and tries them with the service', async () => {
    // Whatever the mask of the caller.
    const words = ['setup', '--base-url', sandbox.url, ...PAIR]
    const running = startProgram(['sh', '-c', 'umask 777; exec "$0" "$@"', ...PROGRAM, ...words], place())
    const { status, stdout, stderr } = await running.ended
    expect(stderr).toBe('')
    expect(stdout).toMatch(/gave a token that lives/)
    expect(stdout).toMatch(/Next: \S+ .*\/cli\.\w+ run\n$/)
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
    const stderr = `There is ${config} already: add --force to replace it.\n`
    expect(await setup()).toMatchObject({ status: 78, stderr })
    const same = await setup('--force')
    expect(same.status).toBe(0)
    expect(same.stdout).toMatch(/^Nothing was changed$/m)
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
      expect(configNow()).toEqual({ ...document(), credentials: IN_FILES })
      given('all.json', JSON.stringify({ ...document(), alerts: undefined }))
      expect((await setupWith(['--from', 'all.json', '--force'])).status).toBe(0)
      // It is the whole of the configuration.
      expect(configNow()).not.toHaveProperty('alerts')
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

  it.each([
    ['refused', 77, () => given('secret.txt', 'another-secret\n')],
    ['not answered', 75, () => sandbox.setScenario('outage')],
  ])('a pair that is %s leaves nothing, or what was there, unless --unverified', async (_, status, act) => {
    act()
    const fresh = await setup()
    expect(fresh.stdout).toMatch(/^FAILED .*\n+Nothing was changed: .* add --unverified/m)
    expect(fresh.status).toBe(status)
    expect(readdirSync(directory).filter((name) => !name.endsWith('.txt'))).toEqual([])
    const unverified = await setup('--unverified')
    expect(unverified.status).toBe(status)
    expect(unverified.stdout).toMatch(/Next: \S+ .*\/cli\.\w+ run\n$/)
    expect(contentOf('api-secret')).toBe(contentOf('secret.txt'))
  })

  it('runs one at a time, and replaces no file before the service has confirmed the pair', async () => {
    await setup()
    const names = readdirSync(directory)
    const seen = (): string[] => FILES.map(contentOf)
    const former = seen()
    given('secret.txt', 'another-secret\n')
    const waiting: ServerResponse[] = []
    const silent = createServer((_, response) => waiting.push(response))
    onTestFinished(() => silent.closeAllConnections())
    const address = `http://127.0.0.1:${await listening(silent)}`
    const words = ['setup', '--force', '--base-url', address, ...PAIR]
    const { child, ended } = startCli(words, place())
    await expectUntil('the request', () => waiting.length === 1)
    expect(seen()).toEqual(former)
    const config = join(directory, FILES[0]!)
    const remedy = 'wait for its end, then run this again. Nothing was changed.'
    const stderr = `Another setup runs for ${config}: ${remedy}\n`
    expect(await setup('--force', '--unverified')).toMatchObject({ status: 75, stdout: '', stderr })
    child.stdout.destroy()
    child.kill('SIGHUP')
    expect(await ended).toMatchObject({ status: null, signal: 'SIGHUP' })
    expect([seen(), readdirSync(directory)]).toEqual([former, names])
    const next = startCli(words, place())
    await expectUntil('its request', () => waiting.length === 2)
    // The pair that was checked is put in force.
    given('secret.txt', 'a-third-secret\n')
    waiting[1]!.end(JSON.stringify({ accessToken: jwtOf({ exp: Math.trunc(Date.now() / 1_000) + 600 }) }))
    expect(await next.ended).toMatchObject({ status: 0 })
    expect(configNow()).toMatchObject({ baseUrl: address })
    expect(contentOf('api-secret')).toBe('another-secret\n')
  })

  it('of an OAuth2 service it wants the address of tokens, too', async () => {
    const words = ['--kind', 'oauth2', '--expires-at', '2099-03-01', '--unverified']
    expect((await setup(...words)).stderr).toContain('no terminal to ask at: give --token-url, or --from.')
    expect((await setup(...words, '--token-url', 'oauth')).stderr).toMatch(/^The answer of --token-url must/)
    await setup(...words, '--token-url', '/oauth/token')
    expect(configNow()).toEqual({
      baseUrl: sandbox.url,
      service: { preset: 'oauth2', tokenUrl: '/oauth/token' },
      credentials: { ...IN_FILES, expiresAt: '2099-03-01' },
    })
  })

  it('builds nothing on a configuration that another user can write, and none beside one of another form', async () => {
    await setup()
    chmodSync(join(directory, FILES[0]!), 0o666)
    const open = await setup('--force')
    expect(open.stderr).toMatch(/by others than its owner: `chmod go-w .*`\. Nothing was changed\.\n$/)
    given('kyc-tokend.config.yaml', '')
    const beside = await setup('--force')
    expect(beside.stderr).toMatch(/config\.yaml already: remove it, or edit it instead\.\n$/)
    expect([open.status, beside.status]).toEqual([78, 78])
  })

  it('leaves the former pair or the new one, whole, whenever it is killed, and so does the next one', async () => {
    // This process is no stranger, and root's files would be those of /etc.
    chownSync(directory, process.getuid!(), process.getgid!())
    const [config, apiKey, apiSecret] = FILES.map((name) => join(directory, name)) as [string, string, string]
    const attributes = { mode: 0o600 }
    const files = { config, secrets: { apiKey, apiSecret }, others: [], attributes, isOfUnit: false }
    /** The steps of a setup that is killed after so many. */
    async function put(pair: string, steps: number): Promise<void> {
      const settings = { baseUrl: sandbox.url, credentials: {} }
      const secrets = { apiKey: `${pair}-key-1`, apiSecret: `${pair}-secret-1` }
      const staged = await planSetup(files, { settings, secrets, document: '{}' }).stage()
      for (const step of staged.steps.slice(0, steps)) await step()
    }
    const expectInUse = async (pair: string): Promise<void> => {
      const used = (await loadConfig({ configPath: config, env: {} })).pair
      expect([used.apiKey?.reveal(), used.apiSecret?.reveal()]).toEqual([`${pair}-key-1`, `${pair}-secret-1`])
    }
    for (let steps = 0; steps <= 4; steps += 1) {
      await put('former', 4)
      await put('next', steps)
      await expectInUse(steps === 0 ? 'former' : 'next')
      // The next setup removes no secret that is in use, and is killed, too.
      await discardStaged(files)
      await expectInUse(steps === 0 ? 'former' : 'next')
      await put('third', steps)
      await expectInUse(steps === 0 ? 'former' : 'third')
    }
    await discardStaged(files)
    expect(readdirSync(directory).filter((name) => name.startsWith('.setup-'))).toEqual([])
  })

  it.each<[string, string[], RegExp]>([
    ['an address in the clear', ['--base-url', 'http://api.example.com'], /must be an https URL/],
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
})

describe.skipIf(lacks('script'))('kyc-tokend setup at a terminal', () => {
  it('asks again for what cannot be right, and shows neither key nor secret', async () => {
    const { child, stdout: screen, ended } = startAtTerminal(['setup'], place())
    // Each answer is given once the screen ends with its question.
    for (const [question, answer] of [
      [/Address of the service[^\n]*: $/, 'api.example.com'],
      [/must be an https URL[^\n]*\n[^\n]*: $/, sandbox.url],
      [/API key or client id \(not shown\): $/, sandboxCredentials.apiKey],
      [/API secret or client secret \(not shown\): $/, sandboxCredentials.apiSecret],
      [/such as 2027-03-01 \[not known\]: $/, 'soon'],
      [/must be a date[^\n]*\n[^\n]*: $/, '2099-03-01'],
    ] as const) {
      const text = (): string => screen().replaceAll(/\u001b\[[\d;?]*[A-Za-z]/g, '')
      await expectUntil(String(question), () => question.test(text()))
      child.stdin.write(`${answer}\r`)
    }
    expect((await ended).status, screen()).toBe(0)
    expect(screen()).not.toContain(sandboxCredentials.apiKey)
    expect(screen()).not.toContain(sandboxCredentials.apiSecret)
    expect(contentOf('api-key')).toBe(`${sandboxCredentials.apiKey}\n`)
    expect(configNow()['credentials']).toMatchObject({ expiresAt: '2099-03-01' })
  })
})
