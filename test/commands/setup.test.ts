import { spawn } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'
import { createSandbox, sandboxCredentials, type Sandbox } from '../../src/sandbox/sandbox.ts'
import { PROGRAM } from '../support/daemon.ts'
import { runCli, type Ended } from '../support/run-cli.ts'
import { expectUntil } from '../support/until.ts'

const NOBODY = 65_534
/** Root would write to /etc, so root's tests act as an ordinary user. */
const uid = process.getuid!() === 0 ? NOBODY : undefined

let directory: string
let sandbox: Sandbox
let stop: AbortController
let serving: Promise<void>

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kyc-tokend-test-'))
  if (uid !== undefined) chownSync(directory, uid, uid)
  stop = new AbortController()
  sandbox = await createSandbox({
    port: 0,
    scenario: 'ok',
    tokenLifetimeMs: 60_000,
    clock: createSystemClock(),
  })
  serving = sandbox.run(stop.signal)
  given('key.txt', `${sandboxCredentials.apiKey}\n`)
  given('secret.txt', `${sandboxCredentials.apiSecret}\n`)
})
afterEach(async () => {
  stop.abort()
  await serving
  rmSync(directory, { recursive: true, force: true })
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

function setup(...more: string[]): Promise<Ended> {
  const words = ['--base-url', sandbox.url, '--api-key-file', 'key.txt', '--api-secret-file', 'secret.txt']
  return runCli(['setup', ...words, ...more], {
    cwd: directory,
    env: env(),
    ...(uid !== undefined && { uid }),
  })
}

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
    expect(configNow()).toEqual({
      baseUrl: sandbox.url,
      credentials: { apiKey: { file: 'api-key' }, apiSecret: { file: 'api-secret' } },
    })
  })

  it('changes nothing when it is run again, also beside settings of the operator', async () => {
    await setup()
    const config = join(directory, FILES[0]!)
    writeFileSync(config, JSON.stringify({ ...configNow(), refresh: { maxAge: '20m' } }))
    const before = versions()
    const { status, stdout } = await setup()
    expect(stdout).toMatch(/nothing was changed/)
    expect(status).toBe(0)
    expect(versions()).toEqual(before)
  })

  it('replaces other content only with --force, and keeps the other settings', async () => {
    await setup()
    const config = join(directory, FILES[0]!)
    writeFileSync(config, JSON.stringify({ ...configNow(), baseUrl: 'https://old.example.com', http: false }))
    writeFileSync(join(directory, 'api-key'), 'another-key\n')
    const refused = await setup()
    expect(refused.status).toBe(78)
    expect(refused.stderr).toContain(`${directory}/api-key, ${config} are there already`)
    expect(contentOf('api-key')).toBe('another-key\n')
    const forced = await setup('--force')
    expect(forced.status).toBe(0)
    expect(configNow()).toMatchObject({ baseUrl: sandbox.url, http: false })
    expect(contentOf('api-key')).toBe(`${sandboxCredentials.apiKey}\n`)
  })

  it('ends with 77 when the service refuses the account; the files stay', async () => {
    given('secret.txt', 'another-secret\n')
    const { status, stdout } = await setup()
    expect(stdout).toMatch(/service +answered with HTTP 404 \(account-not-found\)/)
    expect(status).toBe(77)
    expect(contentOf('api-secret')).toBe('another-secret\n')
  })

  it.each([
    [
      'an address in the clear',
      ['--base-url', 'http://api.example.com'],
      /--base-url: The address must begin with https/,
    ],
    [
      'the endpoint in the address',
      ['--base-url', 'https://a.example/token/external/jwt'],
      /remove "\/token/,
    ],
    ['a file that is not there', ['--api-key-file', 'none'], /--api-key-file cannot be read .*ENOENT/],
    ['an empty secret', ['--api-secret-file', '/dev/null'], /--api-secret-file: The secret is empty/],
  ])('refuses %s with 64 and writes nothing', async (_, words, sentence) => {
    const { status, stderr } = await setup(...words)
    expect(stderr).toMatch(sentence)
    expect(status).toBe(64)
    expect(FILES.filter((name) => existsSync(join(directory, name)))).toEqual([])
  })

  it('says which options it needs', async () => {
    const { status, stderr } = await runCli(['setup'], { cwd: directory, ...(uid !== undefined && { uid }) })
    expect(stderr).toMatch(/no terminal to ask at: give --base-url, --api-key-file and --api-secret-file/)
    expect(status).toBe(64)
  })
})

describe('kyc-tokend setup at a terminal', () => {
  it('asks again for what cannot be right, and shows neither key nor secret', async () => {
    const command = [...PROGRAM, 'setup'].map((word) => `'${word}'`).join(' ')
    const terminal = spawn('script', ['-qefc', `exec ${command}`, '/dev/null'], {
      cwd: directory,
      env: { ...process.env, ...env(), TERM: 'xterm' },
      ...(uid !== undefined && { uid, gid: uid }),
    })
    let screen = ''
    terminal.stdout.on('data', (chunk: Buffer) => (screen += chunk.toString()))
    const ended = new Promise<number | null>((resolve) => terminal.once('close', resolve))
    const answers: [RegExp, string][] = [
      [/Address of the service[^\n]*: $/, 'api.example.com'],
      [/must be a whole URL[^\n]*\n[^\n]*: $/, sandbox.url],
      [/API key \(not shown\): $/, sandboxCredentials.apiKey],
      [/API secret \(not shown\): $/, sandboxCredentials.apiSecret],
    ]
    for (const [question, answer] of answers) {
      await expectUntil(String(question), () =>
        question.test(screen.replaceAll(/\u001b\[[\d;?]*[A-Za-z]/g, '')),
      )
      terminal.stdin.write(`${answer}\r`)
    }
    expect(await ended, screen).toBe(0)
    terminal.stdin.end()
    expect(screen).not.toContain(sandboxCredentials.apiKey)
    expect(screen).not.toContain(sandboxCredentials.apiSecret)
    expect(contentOf('api-key')).toBe(`${sandboxCredentials.apiKey}\n`)
  })
})
