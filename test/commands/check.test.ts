import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync } from 'node:fs'
import { createServer } from 'node:net'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

import { run } from '../../src/commands/check.ts'
import { createConfigFiles, smallConfig, type ConfigFiles } from '../support/config-files.ts'

let files: ConfigFiles
beforeEach(() => {
  files = createConfigFiles()
})
afterEach(() => {
  files.remove()
})

const settings = (): object => ({
  ...smallConfig(),
  baseUrl: 'http://127.0.0.1:9',
  runtimeDirectory: 'run',
  stateDirectory: 'state',
})

async function check(
  options: Record<string, string | boolean>,
  env: NodeJS.ProcessEnv = {},
): Promise<{ status: number; told: string }> {
  const stdout = new PassThrough()
  const told = text(stdout)
  const status = await run({
    options,
    positionals: [],
    env,
    stdin: new PassThrough(),
    stdout,
    stderr: new PassThrough(),
    signal: new AbortController().signal,
  })
  stdout.end()
  return { status, told: await told }
}
const checkConfig = (more: object = {}, options = {}): ReturnType<typeof check> =>
  check({ config: files.write('c.json', { ...settings(), ...more }), ...options })

describe('kyc-tokend check', () => {
  it('finds a good installation good, and leaves nothing behind', async () => {
    const { status, told } = await checkConfig()
    expect(told).toMatch(/^ok +configuration +.*c\.json is valid$/m)
    expect(told).toMatch(/^ok +directories +the runtime directory .*run will be made$/m)
    expect(told).toMatch(/^ok +sockets +the node-ipc socket .*ipc\.sock is free$/m)
    expect(told).toMatch(/^(ok|warning) +host +the clock/m)
    expect(told).toMatch(/\nNo fault.*\.\n$/)
    expect(told).not.toContain('\u001b')
    expect(status).toBe(0)
    expect(readdirSync(files.directory)).toEqual(['c.json'])
  })

  it('tells every fault on a line of its own, with 78', async () => {
    const { status, told } = await checkConfig({
      refresh: { maxAge: 5 },
      reqest: {},
      tokenFiles: [{ path: 't', group: 'no-such' }],
    })
    expect(status).toBe(78)
    expect(told).toMatch(/^FAULT +configuration +refresh\.maxAge: /m)
    expect(told).toMatch(/^FAULT +configuration +reqest: is an unknown key: did you mean "request"\?$/m)
    expect(told).toMatch(/^FAULT +configuration +tokenFiles\[0\]\.group: there is no group no-such/m)
    expect(told).toMatch(/\n3 faults\.\n$/)
    expect(told).not.toContain('secret-1')
  })

  it('looks at nothing but the configuration with --config-only', async () => {
    files.write('run', 'a file where the directory should be')
    const { status, told } = await checkConfig({}, { 'config-only': true })
    expect(status).toBe(0)
    expect(told).not.toMatch(/directories|sockets|host/)
  })

  it('tells what is unwise, and ends with 0', async () => {
    const { status, told } = await checkConfig({ tokenFiles: [{ path: 't', mode: '0644' }] })
    expect(told).toMatch(/^warning +configuration +tokenFiles\[0\]\.mode: lets every user/m)
    expect(status).toBe(0)
  })

  it.each([
    [
      'a file where a directory should be',
      () => files.write('run', ''),
      /the runtime directory .*run is not a directory/,
    ],
    [
      'a token file’s directory that is not there',
      () => undefined,
      /the directory .*nowhere is not there: make it \(mkdir/,
    ],
    [
      'a file where a socket should be',
      () => files.write('run/ipc.sock', ''),
      /the node-ipc socket .* is taken by something that is not a socket: remove it/,
    ],
    [
      'a directory that everybody can write',
      () => {
        mkdirSync(join(files.directory, 'state'))
        chmodSync(join(files.directory, 'state'), 0o777)
      },
      /the state directory .* can be written by everybody/,
    ],
  ])('finds %s', async (_, prepare, sentence) => {
    prepare()
    const { status, told } = await checkConfig({ tokenFiles: [{ path: '../nowhere/token' }] })
    expect(told).toMatch(sentence)
    expect(status).toBe(78)
  })

  it('tells a daemon that answers from one that is gone', async () => {
    mkdirSync(join(files.directory, 'run'))
    const path = join(files.directory, 'run', 'ipc.sock')
    const server = createServer((socket) => socket.end()).listen(path)
    await new Promise((resolve) => server.once('listening', resolve))
    expect((await checkConfig()).told).toMatch(/ipc\.sock is answered: a daemon runs/)
    await new Promise((resolve) => server.close(resolve))
    const dead = `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`
    spawnSync(process.execPath, ['-e', dead])
    expect(existsSync(path)).toBe(true)
    const { status, told } = await checkConfig()
    expect(told).toMatch(/ipc\.sock was left behind by a daemon that is gone/)
    expect(status).toBe(0)
  })
})

describe('kyc-tokend check --live', () => {
  /** The stand-in of the service, in a process of its own. */
  async function withSandbox(scenario: string, act: (baseUrl: string) => Promise<void>): Promise<void> {
    const { createServer: createHttpServer } = await import('node:http')
    const answers: Record<string, [number, object]> = {
      ok: [200, { accessToken: 'opaque-token' }],
      inactive: [500, { detail: 'Your account is not active' }],
      unknown: [404, { detail: 'Account not found' }],
      outage: [503, {}],
    }
    const [status, body] = answers[scenario]!
    const server = createHttpServer((request, response) => {
      request.resume()
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
    }).listen(0, '127.0.0.1')
    await new Promise((resolve) => server.once('listening', resolve))
    const address = server.address() as { port: number }
    try {
      await act(`http://127.0.0.1:${address.port}`)
    } finally {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    }
  }
  it.each([
    ['ok', 0, /^ok +service +gave a token/m],
    ['inactive', 77, /account-inactive.*not active.*/],
    ['unknown', 77, /account-not-found/],
    ['outage', 75, /server-error/],
  ])('%s: ends with %i', async (scenario, expected, sentence) => {
    await withSandbox(scenario, async (baseUrl) => {
      const { status, told } = await checkConfig({ baseUrl }, { live: true, 'config-only': true })
      expect(told).toMatch(sentence)
      expect(told).not.toContain('opaque-token')
      expect(status).toBe(expected)
    })
  })
  it('asks nobody where the configuration is faulty', async () => {
    await withSandbox('ok', async (baseUrl) => {
      const { status, told } = await checkConfig({ baseUrl, wrong: 1 }, { live: true })
      expect(status).toBe(78)
      expect(told).not.toMatch(/ service /)
    })
  })
})

describe.runIf(process.getuid!() === 0)('kyc-tokend check, by a user', () => {
  const program = new URL('../support/run-check.ts', import.meta.url).pathname
  it('tries what that user may do', async () => {
    chmodSync(files.directory, 0o755)
    const path = files.write('c.json', settings())
    chownSync(path, 65_534, 65_534)
    mkdirSync(join(files.directory, 'state'), { mode: 0o700 })
    const child = spawn(process.execPath, [program, path], { uid: 65_534, gid: 65_534, cwd: '/', env: {} })
    const told = await text(child.stdout)
    expect(told).toMatch(
      /^FAULT +directories +the runtime directory .*run is not there and cannot be made: .*install -d/m,
    )
    expect(told).toMatch(
      /^FAULT +directories +the state directory .*state may not be written by uid 65534: give it/m,
    )
    expect(told).toMatch(/\n2 faults/)
  })
})

describe.runIf(process.getuid!() === 0)('kyc-tokend check, by root where there is a user kyc-tokend', () => {
  const program = new URL('../support/run-check.ts', import.meta.url).pathname
  /** Runs the command in a mount namespace of its own, with another /etc/passwd. */
  const withServiceUser = (path: string): string => {
    const passwd = files.write(
      'passwd',
      'root:x:0:0::/:/bin/sh\nkyc-tokend:x:4242:4243::/:/bin/false\n',
      0o644,
    )
    const group = files.write('group', 'root:x:0:\nkyc-tokend:x:4243:\nkyc-token:x:4244:kyc-tokend\n', 0o644)
    const script = 'mount --bind "$1" /etc/passwd && mount --bind "$2" /etc/group && shift 2 && exec "$@"'
    const words = ['--mount', 'sh', '-c', script, 'sh', passwd, group, process.execPath, program, path]
    return spawnSync('unshare', words, { encoding: 'utf8', cwd: '/', env: { PATH: process.env['PATH'] } })
      .stdout
  }
  beforeEach(() => {
    chmodSync(files.directory, 0o755)
  })
  it('judges as that user', () => {
    const told = withServiceUser(files.write('c.json', settings()))
    expect(told).toMatch(/^ok +judge +judged as the user kyc-tokend$/m)
    expect(told).toMatch(
      /^FAULT +configuration +the configuration file .* may not be read by uid 4242: .*chgrp/m,
    )
  })
  it('with the groups of that user, and what only the service sees is no fault', () => {
    const credentials = { apiKey: { credential: 'api-key' }, apiSecret: { env: 'SECRET' } }
    const path = files.write('c.json', { ...settings(), credentials }, 0o640)
    chownSync(path, 0, 4244)
    const told = withServiceUser(path)
    expect(told).toMatch(/^warning +configuration +credentials\.apiKey: cannot be judged from here/m)
    expect(told).toMatch(/^warning +configuration +credentials\.apiSecret: cannot be judged from here/m)
    expect(told).toMatch(/^ok +configuration +.* is valid$/m)
    expect(told).toMatch(/^FAULT +directories +the runtime directory .* cannot be made/m)
  })
})
