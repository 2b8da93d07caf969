import { spawnSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { run } from '../../src/check/check.ts'
import { memberFindings } from '../../src/check/check-members.ts'
import { hourToken } from '../support/daemon-world.ts'
import { PROGRAM, startDaemon } from '../support/daemon.ts'
import { invoke } from '../support/invoke.ts'
import { listening } from '../support/listening.ts'
import { runCli } from '../support/run-cli.ts'
import { smallConfig, useConfigFiles } from '../support/config-files.ts'
import { jwtOf } from '../support/jwt.ts'
import {
  accountInactive,
  accountNotFound,
  granting,
  startService,
  type ScriptedAnswer,
} from '../support/service.ts'

const files = useConfigFiles()
/** A check in this process sets another one. */
const { PATH } = process.env

const directories = { runtimeDirectory: 'run', stateDirectory: 'state' }
const settings = (): object => ({ ...smallConfig(), baseUrl: 'http://127.0.0.1:9', ...directories })

async function check(options: Record<string, string | boolean>): Promise<{ status: number; output: string }> {
  const { status, output } = invoke(run, options)
  return { status: await status, output: `${output()}\n` }
}
const checkConfig = (more: object = {}, options = {}): ReturnType<typeof check> =>
  check({ config: files.write('c.json', { ...settings(), ...more }), ...options })

describe('kyc-tokend check', () => {
  it('finds a good installation good, and leaves nothing behind', async () => {
    const { status, output } = await checkConfig()
    for (const line of [
      /^ok +configuration +.*c\.json is valid$/m,
      /^ok +directories +the runtime directory .*run will be made$/m,
      /^ok +sockets +the node-ipc socket .*ipc\.sock is free$/m,
      /^(ok|warning) +host +the clock/m,
      /\nNo fault.*\.\n$/,
    ])
      expect(output).toMatch(line)
    expect(output).not.toContain('\u001b')
    expect(status).toBe(0)
    expect(readdirSync(files.directory)).toEqual(['c.json'])
  })

  it('prints every fault on a line of its own, with 78, and no control character of a name', async () => {
    const { status, output } = await checkConfig({
      refresh: { maxAge: 5 },
      reqest: {},
      'a\u001b[31m\n<0>b': 1,
      tokenFiles: [{ path: 't', mode: 640 }],
    })
    expect(status).toBe(78)
    for (const line of [
      /^FAULT +configuration +\S+c\.json: refresh\.maxAge: /m,
      /^FAULT +configuration +\S+c\.json: reqest: is an unknown key: did you mean "request"\?$/m,
      /^FAULT +configuration +\S+c\.json: tokenFiles\[0\]\.mode: /m,
    ])
      expect(output).toMatch(line)
    expect(output).toMatch(/\n4 faults\.\n$/)
    expect(output).not.toMatch(/secret-1|\u001b|^<0>/m)
  })

  it('says when key and secret end, and warns of it from 30 days before', async () => {
    const at = (days: number): string => new Date(Date.now() + days * 86_400_000).toISOString()
    const said = async (expiresAt: string): Promise<string> =>
      (await checkConfig({ credentials: { apiKey: 'key-0815', apiSecret: 'secret-1', expiresAt } })).output
    expect(await said(at(40))).toMatch(/^ok +credentials +key and secret: good until 20/m)
    expect(await said(at(20))).toMatch(
      /^warning +credentials +key and secret: good until 20\S+ \(for 20 more days\)\. Make another pair/m,
    )
    expect(await said(at(-1))).toMatch(/^warning +credentials +key and secret: ended at 20/m)
  })

  it('examines nothing but the configuration with --config-only, and asks no daemon', async () => {
    files.write('run', 'a file where the directory should be')
    let asked = 0
    const server = createServer((socket) => (asked++, socket.destroy()))
    await listening(server, join(files.directory, 'ipc.sock'))
    const ipc = { path: '../ipc.sock' }
    const { status, output } = await checkConfig({ ipc }, { 'config-only': true })
    expect({ status, asked }).toEqual({ status: 0, asked: 0 })
    expect(output).not.toMatch(/directories|sockets|host/)
    await checkConfig({ ipc })
    expect(asked).toBeGreaterThan(0)
  })

  it('warns of what is unwise, and ends with 0', async () => {
    const { status, output } = await checkConfig({ tokenFiles: [{ path: 't', mode: '0644' }], http: false })
    expect(output).toMatch(/^warning +configuration +\S+c\.json: tokenFiles\[0\]\.mode: lets every user/m)
    expect(output).not.toMatch(/the HTTP socket|http\.path/)
    expect(status).toBe(0)
  })

  it.each([
    ['a file as a directory', () => files.write('run', ''), /runtime directory .*run is not a directory/],
    [
      'a token file’s directory that does not exist',
      () => undefined,
      /the directory .*nowhere does not exist: `install -d -m 0750 -o \S+ \S+nowhere`$/m,
    ],
    [
      'a directory where a token file should be',
      () => mkdirSync(join(files.directory, 'nowhere/token'), { recursive: true }),
      /files +\S+c\.json: tokenFiles\[0\]\.path: Cannot write \S+token: it is a directory, which is never replaced; clear the path: `mv -T --backup=numbered \S+token \S+token\.old`/,
    ],
    [
      'a directory that everybody can write',
      () => {
        mkdirSync(join(files.directory, 'state'))
        chmodSync(join(files.directory, 'state'), 0o777)
      },
      /the state directory .* is not safe: every user could exchange/,
    ],
    [
      'a link where a directory should be',
      () => {
        mkdirSync(join(files.directory, 'elsewhere'))
        symlinkSync('elsewhere', join(files.directory, 'state'))
      },
      /the state directory .* is a symbolic link, which another could replace: name the directory itself$/m,
    ],
    [
      'a directory that its group can write, which is unwise only',
      () => {
        mkdirSync(join(files.directory, 'state'))
        chmodSync(join(files.directory, 'state'), 0o770)
      },
      /^warning +directories +the state directory \S+ can be written, but the group \w+ could exchange what/m,
    ],
    ['a directory in which no file can be made', () => undefined, /the directory \/proc takes no files: set/],
  ])('finds %s', async (_, prepare, sentence) => {
    prepare()
    const tokenFiles = [{ path: '../nowhere/token' }, { path: '/proc/token' }]
    const { status, output } = await checkConfig({ tokenFiles })
    expect(output).toMatch(sentence)
    expect(status).toBe(78)
  })

  it.each([
    ['another socket', { ipc: { path: 'other.sock' } }, 'ipc.path can be'],
    ['another socket elsewhere', { ipc: { path: '../other.sock' } }, 'ipc.path can be'],
    ['no HTTP', { http: false }, 'http can be'],
  ])(
    'finds that the daemon runs with a former configuration, where the file has %s',
    async (_, more, why) => {
      const daemon = startDaemon({ directory: files.directory, baseUrl: 'http://127.0.0.1:9' })
      await daemon.listening()
      daemon.configure(more)
      const { status, output } = await check({ config: daemon.configFile })
      expect(output).toContain(
        `configuration  the daemon runs with a former configuration, because ${why} changed by a restart alone: ` +
          `\`kill -TERM ${daemon.process.pid}\`\n`,
      )
      expect(status).toBe(0)
      // One with another file is none of this one's.
      const other = files.write('other.json', readFileSync(daemon.configFile, 'utf8'))
      expect((await check({ config: other })).output).not.toContain('former configuration')
    },
  )

  it('has the remedy of the daemon that runs, to the restart of it', async () => {
    mkdirSync(join(files.directory, 'run/alert.json'), { recursive: true })
    const daemon = startDaemon({ directory: files.directory, baseUrl: 'http://127.0.0.1:9' })
    const { error } = await daemon.logged('path-problem')
    expect(String(error)).toContain(` && kill -TERM ${daemon.process.pid}\``)
    expect((await check({ config: daemon.configFile })).output).toContain(`paths          ${String(error)}\n`)
  })

  it('distinguishes a daemon that answers from one that is gone', async () => {
    mkdirSync(join(files.directory, 'run'))
    const path = join(files.directory, 'run', 'ipc.sock')
    const server = createServer((socket) => socket.resume().end())
    await listening(server, path)
    expect((await checkConfig()).output).toMatch(/ipc\.sock is answered: a daemon runs/)
    server.close()
    const dead = `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`
    spawnSync(process.execPath, ['-e', dead])
    expect(existsSync(path)).toBe(true)
    const { status, output } = await checkConfig()
    expect(output).toMatch(/ipc\.sock is free/)
    expect(status).toBe(0)
  })
})

it('waits for the store of a fleet, and reports it', async () => {
  const { output } = await checkConfig({ share: { servers: ['127.0.0.1:1'], tls: false } })
  expect(output).toMatch(/^\w+ +share +.*127\.0\.0\.1:1.*$/m)
})

describe('kyc-tokend check --live', () => {
  const given = (aheadMs = 0): ScriptedAnswer => ({
    ...granting('opaque-token'),
    headers: { date: new Date(Date.now() + aheadMs).toUTCString() },
  })
  async function checkLive(answer: ScriptedAnswer, more: object = {}): ReturnType<typeof check> {
    const service = await startService({ answer })
    onTestFinished(() => service.stop())
    return checkConfig({ baseUrl: service.url, ...more }, { live: true, 'config-only': true })
  }
  it.each<[string, ScriptedAnswer, number, RegExp]>([
    ['a token', given(), 0, /^ok +service +gave a token that does not say how long it lives \(HTTP 200\)$/m],
    [
      'a token that says its life',
      granting(hourToken()),
      0,
      /is sent POST http\S+\/jwt with JSON of "apiKey", "apiSecret"$[^]* gave a token that lives (1 h|59 min.*) \(/m,
    ],
    [
      'a token that has expired',
      granting(jwtOf({ iat: 1_000, exp: 2_000 })),
      75,
      /^FAILED +service +gave a token that has expired already \(HTTP 200\)\. \S/m,
    ],
    ['a clock ahead', given(7_260_000), 0, /^warning +service +the clock is 2 h.* behind the service's:/m],
    ['a clock behind', given(-7_260_000), 0, /^warning +service +the clock is 2 h.* ahead of the service/m],
    ['an inactive account', accountInactive, 77, /account-inactive.*not active.*/],
    ['an unknown account', accountNotFound, 77, /account-not-found/],
    ['an outage', { status: 503 }, 75, /server-error/],
  ])('%s of the service is shown, with the exit status for it', async (_, answer, expected, sentence) => {
    const { status, output } = await checkLive(answer)
    expect(output).toMatch(sentence)
    const last = sentence.source.startsWith('^warning') ? 'No fault, 1 warning' : 'No fault'
    expect(output.split('\n').at(-2)).toBe(expected === 0 ? `${last}.` : 'The service gave no token.')
    expect(output).not.toContain('opaque-token')
    expect(status).toBe(expected)
  })
  it('says what is sent and what comes back, and never a value', async () => {
    const service = {
      tokenUrl: '/login?tenant=tenant-7',
      send: 'form',
      parameters: { realm: 'partners' },
      headers: { 'X-Client': 'c-1' },
      token: 'data.token',
    }
    const { status, output } = await checkLive(given(), { service })
    expect(status).toBe(75)
    expect(output).toMatch(
      /is sent POST http\S+\/login with a form of "apiKey", "apiSecret", "realm", and the headers "X-Client"/,
    )
    expect(output).toMatch(/answers with HTTP 200[^]*but it has no data\.token/)
    expect(output).not.toMatch(/partners|c-1|tenant-7|opaque-token/)
    const oauth2 = { preset: 'oauth2', tokenUrl: '/token' }
    expect((await checkLive({ status: 401 }, { service: oauth2 })).output).toMatch(
      /is sent POST http\S+\/token with a form of "grant_type", key and secret as HTTP Basic$[^]* may not decode them: try "send": "basic-plain" in `service`\./m,
    )
    const echo = { status: 400, json: { detail: 'no such X-Api-Key: header-hush' } }
    const written = { service: { headers: { 'X-Api-Key': 'header-hush' } } }
    expect((await checkLive(echo, written)).output).toMatch(/no such X-Api-Key: \[secret\]/)
  })
  it('says whether the life is where the configuration looks for it', async () => {
    const service = { lifetime: 'expires_in' }
    expect((await checkLive(given(), { service })).output).toMatch(
      /^warning +service +gave no life at "expires_in"/m,
    )
    const answer = { ...given(), json: { accessToken: 'opaque-token', expires_in: 600 } }
    expect((await checkLive(answer, { service })).output).toMatch(
      /gave a token that lives 10 min \(HTTP 200\)\n\nNo fault\.\n$/,
    )
  })
  it('says that a service was not reached', async () => {
    const { output } = await checkConfig(
      { baseUrl: 'http://127.0.0.1:1' },
      { live: true, 'config-only': true },
    )
    expect(output).toMatch(/service +was not reached \(network\): 127\.0\.0\.1:1 refused the connection/)
  })
  it('sends no request if the configuration is faulty', async () => {
    const { status, output } = await checkLive(given(), { wrong: 1 })
    expect(status).toBe(78)
    expect(output).not.toMatch(/ service /)
  })
})

describe.runIf(process.getuid!() === 0)('kyc-tokend check, as another user', () => {
  /** By root where there is a user kyc-tokend: in a mount namespace of its own, with another /etc/passwd. */
  const withServiceUser = (path: string, more: string[] = [], env: NodeJS.ProcessEnv = {}): string => {
    const users = 'root:x:0:0::/:/bin/sh\nkyc-tokend:x:4242:4243::/:/bin/false\n'
    const groups = 'root:x:0:\nkyc-tokend:x:4243:\nkyc-token:x:4244:kyc-tokend\n'
    const script = 'mount --bind "$0" /etc/passwd && mount --bind "$1" /etc/group && shift && exec "$@"'
    const mounted = [files.write('passwd', users, 0o644), files.write('group', groups, 0o644)]
    const words = ['--mount', 'sh', '-c', script, ...mounted, ...PROGRAM, 'check', '--config', path, ...more]
    const how = { cwd: '/', env: { PATH, ...env }, encoding: 'utf8' } as const
    return spawnSync('unshare', words, how).stdout
  }
  /** A configuration that a group of the service reads. */
  const readable = (more: object = {}, gid = 4243): string => {
    const path = files.write('c.json', { ...settings(), ...more }, 0o640)
    chownSync(path, 0, gid)
    return path
  }
  beforeEach(() => {
    chmodSync(files.directory, 0o755)
  })
  it('tries what an ordinary user may do', async () => {
    const outside = ['/root/of', '/var/lib', '/usr/share', '/opt', '', '/var/lib/dpkg']
    const tokenFiles = [...outside, '../shared'].map((directory) => ({ path: `${directory}/token` }))
    const ipc = { path: '../sockets/ipc.sock' }
    const http = { path: '../state/http.sock' }
    const path = files.write('c.json', { ...settings(), tokenFiles, ipc, http })
    chownSync(path, 65_533, 65_533)
    mkdirSync(join(files.directory, 'state'), { mode: 0o700 })
    // Another user's, as the group directory of an application is.
    for (const name of ['shared', 'sockets']) {
      mkdirSync(join(files.directory, name))
      chmodSync(join(files.directory, name), 0o1777)
      chownSync(join(files.directory, name), 65_532, 65_532)
    }
    await listening(createServer(), join(files.directory, 'sockets/ipc.sock'))
    chmodSync(join(files.directory, 'sockets/ipc.sock'), 0o600)
    const { stdout } = await runCli(['check', '--config', path], { uid: 65_533, cwd: '/' })
    for (const line of [
      /^FAULT +directories +the runtime directory .*run does not exist: `sudo install -d -m 0750 -o /m,
      /^FAULT +directories +the state directory .*state cannot be written, .*: `sudo chown -h \w+ \S+state`$/m,
      /: the directory \/root\/of cannot be seen by the daemon$/m,
      /^ok +directories +\S+ tokenFiles\[6\]\.path: the directory .*shared can be written$/m,
      /^FAULT +directories +\S+ ipc\.path: the directory .*sockets is not safe: the user/m,
      /^warning +sockets +the node-ipc socket .* cannot be tried \(.*EACCES/m,
      /\n9 faults/,
    ])
      expect(stdout).toMatch(line)
    // No remedy changes the owner of what serves the whole system.
    for (const directory of outside.slice(1)) {
      const line = stdout
        .split('\n')
        .find((each) => each.includes(`: the directory ${directory || '/'} cannot`))
      expect(line).toMatch(/ cannot be written, .* make a directory of its own and set that$/)
    }
  })
  it('warns where no member can be asked, because other users cannot run its Node', async () => {
    const { execPath } = process
    onTestFinished(() => void (process.execPath = execPath))
    process.execPath = '/nowhere/node'
    const place = { account: undefined, isUnit: false }
    const asked = [{ path: '/a', use: 'reach', gid: 65_533 }] as const
    expect(await memberFindings(asked, { place, different: [] })).toEqual([
      {
        level: 'warning',
        sentence:
          'a member of 65533 cannot be asked about /a (spawn /nowhere/node ENOENT): ' +
          'see that every user can run /nowhere/node',
      },
    ])
  })
  it('runs no program that the PATH of the caller names', () => {
    const isRun = join(files.directory, 'is-run')
    for (const name of ['timedatectl', 'ip']) files.write(`bin/${name}`, `#!/bin/sh\ntouch ${isRun}\n`, 0o755)
    const path = readable({ baseUrl: 'https://api.example.com' })
    const output = withServiceUser(path, [], { PATH: `${join(files.directory, 'bin')}:/usr/bin:/bin` })
    expect(output).toMatch(/^\w+ +host/m)
    expect(existsSync(isRun)).toBe(false)
  })
  it('checks as that user', () => {
    const output = withServiceUser(files.write('c.json', settings()))
    expect(output).toMatch(/^ok +user +checked as the user kyc-tokend$/m)
    expect(output).toMatch(
      /^FAULT +configuration +\S+c\.json: the configuration file may not be read by the user kyc-tokend: .*chgrp/m,
    )
  })
  it('with the groups of that user, and what only the daemon sees is no fault', () => {
    const credentials = { apiKey: { credential: 'api-key' }, apiSecret: { env: 'SECRET' } }
    const share = { servers: ['127.0.0.1:1'], password: { credential: 'redis' } }
    const output = withServiceUser(readable({ credentials, share }, 4244), ['--live'])
    for (const line of [
      /^warning +configuration +\S+c\.json: credentials\.apiKey: cannot be checked from here/m,
      /^warning +configuration +\S+c\.json: credentials\.apiSecret: cannot be checked from here/m,
      /^ok +configuration +.* is valid$/m,
      /^warning +share +cannot be tried from here, because only the daemon sees share\.password: see/m,
      /^warning +service +.* because only the daemon sees credentials\.apiKey and credentials\.apiSecret: ask with `kyc-tokend refresh --socket \S+ipc\.sock`$/m,
      /^FAULT +directories +the runtime directory .* does not exist: `install -d/m,
    ])
      expect(output).toMatch(line)
  })
})
