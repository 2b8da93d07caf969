import { chmodSync, chownSync, cpSync, mkdirSync, statSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { spawnSync } from 'node:child_process'
import { expect, onTestFinished, test } from 'vitest'
import { commandWorld, hourToken } from '../support/command-world.ts'
import { PROGRAM } from '../support/daemon.ts'
import { runCli } from '../support/run-cli.ts'
import { startScriptedDaemon, tokenFields } from '../support/scripted-daemon.ts'
import { accountInactive, granting } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'

test('prints the token in the format that is asked for, and nothing else', async () => {
  const token = hourToken()
  const { cli } = await commandWorld({ answer: granting(token) })
  const ended = await Promise.all(
    [[], ['--format', 'raw'], ['--format=header'], ['--format', 'env'], ['--format', 'json']].map((args) =>
      cli(['token', ...args]),
    ),
  )
  for (const { status, stderr } of ended) expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  expect(ended.slice(0, 4).map(({ stdout }) => stdout)).toEqual([
    `${token}\n`,
    `${token}\n`,
    `Authorization: Bearer ${token}\n`,
    `KYC_ACCESS_TOKEN=${token}\n`,
  ])
  expect(JSON.parse(ended[4]?.stdout ?? '')).toMatchObject({
    accessToken: token,
    generation: 1,
    state: 'ready',
  })
})

test('waits for the first token', async () => {
  const token = hourToken()
  let release = (): void => undefined
  const released = new Promise<void>((resolve) => {
    release = resolve
  })
  const { cli, service } = await commandWorld({
    answer: async () => {
      await released
      return granting(token)
    },
  })
  const ended = cli(['token', '--wait', '20s'])
  await service.arrived(1)
  setTimeout(release, 300)
  expect(await ended).toMatchObject({ status: 0, stdout: `${token}\n` })
})

test('waits for a token that lives long enough, and prints the freshest there is when there is none', async () => {
  const tokens = [hourToken(1), hourToken(2)]
  const { cli, service } = await commandWorld({
    answer: (_, { number }) => granting(tokens[number - 1] ?? 'none'),
  })
  await service.arrived(1)
  expect(await cli(['token', '--min-valid', '30m'])).toMatchObject({ status: 0, stdout: `${tokens[0]}\n` })
  // More than any token has.
  expect(await cli(['token', '--min-valid', '24h', '--wait', '0s'])).toMatchObject({ status: 0 })
})

test('without a token it ends with 75 and says why', async () => {
  const { cli, daemon } = await commandWorld({ answer: { status: 503 } })
  await daemon.logged('fetch-failed')
  const { status, stdout, stderr } = await cli(['token', '--wait', '0s'])
  expect({ status, stdout }).toEqual({ status: 75, stdout: '' })
  expect(stderr).toMatch(/^There is no token yet.*\n$/)
})

test('of a refused account it ends with 77 and says what to do', async () => {
  const { cli, service } = await commandWorld({ answer: accountInactive })
  await service.arrived(1)
  const { status, stdout, stderr } = await cli(['token'])
  expect({ status, stdout }).toEqual({ status: 77, stdout: '' })
  expect(stderr).toMatch(/Your account is not active.*support.*\n$/)
})

test('without a daemon it ends with 69 at once and says how to start one', async () => {
  const directory = await tempDirectory()
  for (const args of [['--socket', join(directory, 'none.sock')], []]) {
    const { status, stdout, stderr } = await runCli(['token', ...args], {
      env: { XDG_RUNTIME_DIR: directory },
    })
    expect({ status, stdout }).toEqual({ status: 69, stdout: '' })
    expect(stderr).toMatch(/systemctl start kyc-tokend.*kyc-tokend run/)
  }
})

test('the socket named on the command line counts more than that of the environment', async () => {
  const { daemon } = await commandWorld()
  const ended = await runCli(['token', '--socket', daemon.ipcPath], {
    env: { KYC_TOKEND_SOCKET: '/nonexistent' },
  })
  expect(ended.status).toBe(0)
})

const STRANGER = ['--reuid=65534', '--regid=65534', '--clear-groups', '--']
const canBeStranger =
  spawnSync('setpriv', [...STRANGER, process.execPath, '--version'], { cwd: '/' }).status === 0
const isSystemSocketThere = statSync('/run/kyc-tokend', { throwIfNoEntry: false }) !== undefined

test.skipIf(!canBeStranger)('a socket that may not be opened is 77 and is not passed over', async () => {
  const { daemon, directory } = await commandWorld()
  chmodSync(directory, 0o755)
  chmodSync(daemon.ipcPath, 0o600)
  const { status, stderr } = await asStranger(['token', '--socket', daemon.ipcPath], {})
  expect(status).toBe(77)
  expect(stderr).toMatch(/may not be opened by this user.*kyc-token/)
})

test.skipIf(!canBeStranger || isSystemSocketThere)(
  'a person’s own socket is found in XDG_RUNTIME_DIR',
  async () => {
    const runtime = await tempDirectory()
    chmodSync(runtime, 0o755)
    mkdirSync(join(runtime, 'kyc-tokend'), { mode: 0o755 })
    const { cli } = await commandWorld({
      config: { ipc: { path: join(runtime, 'kyc-tokend/ipc.sock'), mode: '0666' } },
    })
    expect((await cli(['token', '--socket', join(runtime, 'kyc-tokend/ipc.sock')])).status).toBe(0)
    expect(await asStranger(['token'], { XDG_RUNTIME_DIR: runtime })).toMatchObject({ status: 0 })
  },
)

test.skipIf(!canBeStranger || isSystemSocketThere)(
  'in the place of a person, a socket of another user is asked nothing: 77, with the reason',
  async () => {
    const temp = await tempDirectory()
    chmodSync(temp, 0o1777)
    const directory = join(temp, 'kyc-tokend-65534')
    mkdirSync(directory)
    chmodSync(directory, 0o755)
    chownSync(directory, 1_000, 1_000)
    const thief = await startScriptedDaemon(join(directory, 'ipc.sock'), ({ answer }) => {
      answer('token.result', tokenFields('EVIL'))
    })
    onTestFinished(() => thief.stop())
    chmodSync(thief.path, 0o777)
    for (const args of [['token'], ['watch'], ['status'], ['exec', '--', 'true']]) {
      const { status, stdout, stderr } = await asStranger(args, { TMPDIR: temp })
      expect({ args, status, stdout }).toEqual({ args, status: 77, stdout: '' })
      expect(stderr).toMatch(
        /^The socket \S+ is not trusted, because \S+ belongs to another user \(uid 1000\).*\n$/,
      )
    }
    expect(thief.connections.made).toBe(0)
  },
)

/** Runs the command line, where anybody may read it, as a user who is nobody in particular. */
async function asStranger(
  args: string[],
  env: NodeJS.ProcessEnv,
): Promise<{ status: number | null; stdout: string; stderr: string }> {
  const [node, program] = PROGRAM
  const directory = await tempDirectory()
  cpSync(dirname(program), directory, { recursive: true })
  writeFileSync(join(directory, 'package.json'), '{"type":"module"}')
  chmodSync(directory, 0o755)
  return spawnSync('setpriv', [...STRANGER, node, join(directory, basename(program)), ...args], {
    encoding: 'utf8',
    cwd: '/',
    timeout: 20_000,
    env: { PATH: process.env['PATH'], ...env },
  })
}
