// `kyc-tokend check` with real configurations, daemons and services; the table about the host has its own test.
import { spawnSync } from 'node:child_process'
import { chmodSync, chownSync, mkdirSync, readdirSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { run } from '../../src/check/check.ts'
import { smallConfig, useConfigFiles } from '../support/config-files.ts'
import { hourToken } from '../support/daemon-world.ts'
import { PROGRAM, startDaemon } from '../support/daemon.ts'
import { invoke } from '../support/invoke.ts'
import { jwtOf } from '../support/jwt.ts'
import { listening } from '../support/listening.ts'
import { serviceOf } from '../support/outside.ts'
import { accountInactive, accountNotFound, granting, type ScriptedAnswer } from '../support/service.ts'

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
  it('finds a good configuration good, and leaves nothing behind', async () => {
    const { status, output } = await checkConfig()
    expect(output).toMatch(/^ok +configuration +.*c\.json is valid$/m)
    expect(output).toMatch(/^(ok|warning) +host +the clock/m)
    expect(output).toMatch(/\nNo fault.*\.\n$/)
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
    expect(output).toMatch(/^FAULT +configuration +\S+c\.json: refresh\.maxAge: /m)
    expect(output).toMatch(/^FAULT +configuration +\S+c\.json: tokenFiles\[0\]\.mode: /m)
    expect(output).toMatch(/\n4 faults.*\.\n$/)
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
    let asked = 0
    const server = createServer((socket) => (asked++, socket.destroy()))
    mkdirSync(join(files.directory, 'run'))
    await listening(server, join(files.directory, 'run/ipc.sock'))
    const { status, output } = await checkConfig({}, { 'config-only': true })
    expect({ status, asked }).toEqual({ status: 0, asked: 0 })
    expect(output).not.toMatch(/sockets|host/)
    await checkConfig()
    expect(asked).toBeGreaterThan(0)
  })

  it('says what a running daemon has: its sockets, one that is opened too wide, files, another configuration', async () => {
    const service = await serviceOf(granting(hourToken()))
    const tokenFiles = [{ path: 'token' }]
    const daemon = startDaemon({ directory: files.directory, baseUrl: service.url, config: { tokenFiles } })
    await daemon.logged('token-obtained')
    const { configFile, ipcPath } = daemon
    const found = async () => check({ config: configFile })
    const good = await found()
    expect(good.output).toMatch(/^ok +sockets +\S+ipc\.sock answers$/m)
    expect(good.output).toMatch(/^ok +sockets +\S+http\.sock answers$/m)
    expect(good.status).toBe(0)
    // Until the daemon's next tick sets it back.
    chmodSync(ipcPath, 0o666)
    const open = await found()
    expect(open.output).toMatch(/^FAULT +sockets +every user may connect to \S+ipc\.sock/m)
    expect(open.status).toBe(78)
    daemon.configure({ tokenFiles, retry: { maxDelay: '7s' } })
    expect((await found()).output).toMatch(
      /^warning +configuration +the daemon runs with a former .*`kill -HUP \d+`$/m,
    )
  })
})

describe('kyc-tokend check --live', () => {
  const ended = jwtOf({ iat: 1_000, exp: 2_000 })
  it.each<[string, ScriptedAnswer | null, number, RegExp]>([
    ['a token', granting('opaque-token'), 0, /^ok +service .* does not say how long it lives \(HTTP 200\)$/m],
    ['a life', granting(hourToken()), 0, /^ok +service .* that lives (1 h|59 min.*) \(HTTP 200\)$/m],
    ['an ended token', granting(ended), 75, /^FAILED +service .* expired already \(HTTP 200\)\. \S/m],
    ['a token without life', granting(jwtOf({ iat: 4e9, exp: 4e9 })), 75, /expired already/],
    ['an inactive account', accountInactive, 77, /HTTP 500 \(account-inactive\).*kyc-tokend refresh/],
    ['an unknown account', accountNotFound, 77, /HTTP 404 \(account-not-found\)/],
    ['an outage', { status: 503 }, 75, /HTTP 503 \(server-error\)/],
    [
      'the silence',
      null,
      75,
      /service +was not reached \(network\): The connection to 127\.0\.0\.1:1 failed/,
    ],
  ])('%s of the service is shown, with the exit status for it', async (_, answer, expected, sentence) => {
    const baseUrl = answer === null ? 'http://127.0.0.1:1' : (await serviceOf(answer)).url
    const { status, output } = await checkConfig({ baseUrl }, { live: true })
    expect(output).toMatch(sentence)
    expect(output).not.toContain('opaque-token')
    expect(status).toBe(expected)
  })
})

describe.runIf(process.getuid!() === 0)('kyc-tokend check by root, as the daemon’s user', () => {
  /** In a mount namespace of its own, with another /etc/passwd. */
  const withServiceUser = (path: string): string => {
    const users = 'root:x:0:0::/:/bin/sh\nkyc-tokend:x:4242:4243::/:/bin/false\n'
    const groups = 'root:x:0:\nkyc-tokend:x:4243:\nkyc-token:x:4244:kyc-tokend\n'
    const script = 'mount --bind "$0" /etc/passwd && mount --bind "$1" /etc/group && shift && exec "$@"'
    const mounted = [files.write('passwd', users, 0o644), files.write('group', groups, 0o644)]
    const words = ['--mount', 'sh', '-c', script, ...mounted, ...PROGRAM, 'check', '--config', path]
    return spawnSync('unshare', words, { cwd: '/', env: { PATH }, encoding: 'utf8' }).stdout
  }
  it('reads the configuration with the groups of that user, and what only the daemon sees is no fault', () => {
    chmodSync(files.directory, 0o755)
    const credentials = { apiKey: 'key-1', apiSecret: { credential: 'api-secret' } }
    const path = files.write('c.json', { ...settings(), credentials }, 0o640)
    chownSync(path, 0, 4244)
    expect(withServiceUser(path)).toMatch(/^ok +configuration +\S+c\.json is valid$/m)
    chownSync(path, 0, 0)
    const output = withServiceUser(path)
    expect(output).toMatch(
      /^FAULT +configuration +\S+c\.json: the configuration file may not be read by the user kyc-tokend/m,
    )
    // Root changes nothing outside of its own directory.
    expect(output).toMatch(/use sudo: `namei -lo \S+c\.json`$/m)
    chmodSync(files.directory, 0o700)
    expect(withServiceUser(path)).toContain(`namei -lo ${path}`)
  })
  it('asks the store as that user, so that its answers meet no parser of root', async () => {
    chmodSync(files.directory, 0o755)
    const socket = join(files.directory, 'redis.sock')
    await listening(createServer(), socket)
    chmodSync(socket, 0o600)
    const share = { servers: [socket], key: 'a key of the fleet' }
    const path = files.write('c.json', { ...settings(), share }, 0o640)
    chownSync(path, 0, 4244)
    expect(withServiceUser(path)).toMatch(/^FAULT +share +cannot be used at .*EACCES/m)
  })
})
