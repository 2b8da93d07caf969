import { spawnSync } from 'node:child_process'
import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:net'
import { uptime } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { canMount } from '../support/small-disk.ts'
import { tempDirectory } from '../support/temp-directory.ts'

// The front with the runtime directory elsewhere, and with a program that says "full" in work of the full one.
const now = Math.floor(uptime())
const good = `${now - 100} ${now + 1000} abc.DEF-_~+/09==\n`
let work: string
let front: string
let socket: Server

beforeEach(async () => {
  work = await tempDirectory()
  await chmod(work, 0o755)
  await mkdir(path.join(work, 'accounts'))
  front = path.join(work, 'kyc-tokend')
  const script = await readFile(new URL('../../systemd/kyc-tokend.sh', import.meta.url), 'utf8')
  const full = path.join(work, 'full')
  await writeFile(full, '#!/bin/sh\necho "full $*"; env | grep -c SECRET\nexit 7\n', { mode: 0o755 })
  await writeFile(
    front,
    script.replaceAll('/run/kyc-tokend', work).replaceAll(/\/usr\/lib\/kyc-tokend\/node \S+cli\.cjs/g, full),
    { mode: 0o755 },
  )
  socket = createServer()
  await new Promise<void>((resolve) => socket.listen(path.join(work, 'ipc.sock'), resolve))
})
afterEach(async () => {
  await new Promise((resolve) => socket.close(resolve))
})

interface Call {
  readonly args?: readonly string[]
  readonly env?: NodeJS.ProcessEnv
  readonly line?: string | Buffer | null
}

async function call({ args = ['token'], env = {}, line = good }: Call = {}): Promise<string> {
  if (line !== null) await writeFile(path.join(work, 'token.front'), line)
  const { stdout, stderr, status } = spawnSync(front, args, { env, encoding: 'utf8' })
  return status === 7 ? `${stdout.split('\n')[0]}${stderr}` : `${status} ${stdout}${stderr}`
}

describe('kyc-tokend token, answered by the shell', () => {
  it('prints the token that the daemon keeps ready', async () => {
    expect(await call()).toBe('0 abc.DEF-_~+/09==\n')
    expect(await call({ args: ['token', '--format', 'raw'] })).toBe('0 abc.DEF-_~+/09==\n')
    expect(await call({ args: ['token', '--format=raw'] })).toBe('0 abc.DEF-_~+/09==\n')
    const header = '0 Authorization: Bearer abc.DEF-_~+/09==\n'
    expect(await call({ args: ['token', '--format', 'header'] })).toBe(header)
    expect(await call({ args: ['token', '--format=header'] })).toBe(header)
  })

  it('prints the token of an account, of the option before that of the variable', async () => {
    const accounts = path.join(work, 'accounts')
    for (const [name, token] of [
      ['eu', 'token-of-eu'],
      ['us', 'token-of-us'],
    ] as const) {
      await mkdir(path.join(accounts, name), { recursive: true })
      await writeFile(path.join(accounts, name, 'token.front'), `${now - 100} ${now + 1000} ${token}\n`)
      const server = createServer()
      await new Promise<void>((resolve) => server.listen(path.join(accounts, name, 'ipc.sock'), resolve))
      onTestFinished(async () => void (await new Promise((resolve) => server.close(resolve))))
    }
    const env = { KYC_TOKEND_ACCOUNT: 'us' }
    expect(await call({ args: ['token', '--account', 'eu'] })).toBe('0 token-of-eu\n')
    expect(await call({ args: ['token', '--account=eu'], env })).toBe('0 token-of-eu\n')
    expect(await call({ env })).toBe('0 token-of-us\n')
    expect(await call({ args: ['token', '--format', 'raw'], env })).toBe('0 token-of-us\n')
  })

  /** Runs a command of the front with these descriptors alone. */
  const execWith = (descriptors: readonly number[], ...words: string[]): string => {
    const others =
      'for fd in set(range(4096)) - set(map(int, sys.argv[1].split())):\n  try: os.close(fd)\n  except OSError: pass'
    const script = `import os, sys\nos.dup2(1, 9)\n${others}\nos.environ["SELF"] = str(os.getpid())\nos.execv(sys.argv[2], sys.argv[2:])`
    const args = ['-c', script, descriptors.join(' '), front, 'exec', '--', ...words]
    const { stdout, stderr } = spawnSync('python3', args, { encoding: 'utf8' })
    return stdout + stderr
  }

  it('gives the token to a command that it becomes, and no other descriptor', async () => {
    await writeFile(path.join(work, 'token.front'), good)
    const state = 'ls /proc/self/fd; [ $$ = $SELF ] && echo "$KYC_ACCESS_TOKEN" "$@"'
    const stdout = execWith([0, 1, 2], 'sh', '-c', state, 'sh', '--', 'a b')
    expect(stdout).toBe('0\n1\n2\n3\nabc.DEF-_~+/09== -- a b\n')
    for (const descriptors of [
      [0, 1, 2, 9],
      [1, 2],
    ])
      expect(execWith(descriptors, '/bin/true')).toMatch(/^full exec -- .bin.true\n/)
    await rm(path.join(work, 'token.front'))
    expect(execWith([0, 1, 2], '/bin/true')).toBe('full exec -- /bin/true\n0\n')
  })

  it('needs no other program', async () => {
    await writeFile(path.join(work, 'token.front'), good)
    const limited = spawnSync('sh', ['-c', `PATH=/nowhere; exec ${front} token`], { encoding: 'utf8' })
    expect(limited.stdout).toBe('abc.DEF-_~+/09==\n')
  })

  it.each([
    ['another command', { args: ['status'] }],
    ['a command that does not exist', { args: ['exec', '--', 'no-such-command'] }],
    ['a file that may not be run', { args: ['exec', '--', '/etc/passwd'] }],
    ['a directory as a command', { args: ['exec', '--', '/etc'] }],
    ['no command', { args: ['exec', '--'] }],
    ['a command with options for us', { args: ['exec', '--wait', '1s', '--', 'true'] }],
    ['a command without a token', { args: ['exec', '--', 'true'], line: null }],
    ['another format', { args: ['token', '--format', 'json'] }],
    ['one option more', { args: ['token', '--wait', '0s'] }],
    ['an argument of blanks', { args: ['token', ''] }],
    ['no argument', { args: [] }],
    ['another socket', { env: { KYC_TOKEND_SOCKET: '/elsewhere' } }],
    ['another account', { env: { KYC_TOKEND_ACCOUNT: 'us' } }],
    ['another socket without a name', { env: { KYC_TOKEND_SOCKET: '' } }],
    ['an account that is not there', { args: ['token', '--account', 'de'] }],
    ['an account without a name', { args: ['token', '--account='] }],
    // It leads to the default account.
    ['an account that is a path', { args: ['token', '--account', '..'] }],
    ['an account of the environment without a name', { env: { KYC_TOKEND_ACCOUNT: '' } }],
    [
      'an account and a socket',
      { args: ['token', '--account', 'eu'], env: { KYC_TOKEND_SOCKET: '/elsewhere' } },
    ],
    ['an account and a format', { args: ['token', '--account', 'eu', '--format', 'raw'] }],
    ['no line', { line: null }],
    ['an empty file', { line: '' }],
    ['an empty line', { line: '\n' }],
    ['half a line', { line: good.trimEnd() }],
    ['half a token', { line: `${now - 100} ${now + 1000}\n` }],
    ['a token that is over', { line: `${now - 100} ${now - 1} abc\n` }],
    ['a token of another boot', { line: `${now + 100} ${now + 1000} abc\n` }],
    ['times that are none', { line: `now then abc\n` }],
    ['negative times', { line: `-5 ${now + 1000} abc\n` }],
    ['times beyond what a shell can count', { line: `1 99999999999999999999 abc\n` }],
    ['a word too many', { line: `${now - 100} ${now + 1000} abc def\n` }],
    ['a token with other characters', { line: `${now - 100} ${now + 1000} abc,id\n` }],
    ['a token with a backslash', { line: `${now - 100} ${now + 1000} a\\bc\n` }],
    ['a token of letters of another language', { line: `${now - 100} ${now + 1000} ä\n` }],
    ['bytes that are no text', { line: Buffer.from([0xff, 0x20, 0xfe, 0x0a]) }],
  ] satisfies [string, Call][])('leaves %s to the full program', async (_, options) => {
    expect(await call(options)).toBe(`full ${(options as Call).args?.join(' ') ?? 'token'}`)
  })

  it('leaves it to the full program in the very second of the expiry', async () => {
    const uptimeNow = async (): Promise<number> =>
      Number((await readFile('/proc/uptime', 'utf8')).split(' ')[0])
    // Tried again where the second was over before the front had looked.
    for (;;) {
      const second = Math.floor(await uptimeNow())
      const answer = await call({ line: `${second - 100} ${second} abc\n` })
      if (Math.floor(await uptimeNow()) > second) continue
      expect(answer).toBe('full token')
      // The second in which it was obtained may be over by now: it is good from then on.
      expect(await call({ line: `${second} ${second + 30} abc\n` })).toBe('0 abc\n')
      break
    }
    expect(await call({ line: `${now - 100} ${Math.floor(await uptimeNow()) + 30} abc\n` })).toBe('0 abc\n')
  })

  it('leaves it to the full program where there is no socket', async () => {
    await rm(path.join(work, 'ipc.sock'))
    expect(await call()).toBe('full token')
    await writeFile(path.join(work, 'ipc.sock'), 'a file')
    expect(await call()).toBe('full token')
  })

  it.runIf(process.getuid?.() === 0)(
    'leaves it to the full program where the caller may not use the socket',
    async () => {
      await chmod(path.join(work, 'ipc.sock'), 0o600)
      await writeFile(path.join(work, 'token.front'), good)
      const stranger = spawnSync('setpriv', ['--reuid', '65533', '--clear-groups', front, 'token'], {
        encoding: 'utf8',
      })
      expect(stranger.stdout.split('\n')[0]).toBe('full token')
    },
  )

  it.runIf(canMount)('leaves it to the full program where a container shows its own uptime', async () => {
    await writeFile(path.join(work, 'token.front'), good)
    await writeFile(path.join(work, 'uptime'), `${now}.00 1.00\n`)
    const script = 'mount --bind "$1/uptime" /proc/uptime; exec "$2" token'
    const inside = ['--mount', 'sh', '-euc', script, 'sh', work, front]
    expect(spawnSync('unshare', inside, { encoding: 'utf8' }).stdout.split('\n')[0]).toBe('full token')
  })

  it('does not care what the caller has in the environment', async () => {
    const env = {
      IFS: '0123456789',
      ENV: front,
      LC_ALL: 'tr_TR.UTF-8',
      from: 'x',
      until: '0',
      PS4: '$(id)',
      POSIXLY_CORRECT: '1',
    }
    expect(await call({ env })).toBe('0 abc.DEF-_~+/09==\n')
  })

  it('does not put the token into the environment of the full program', async () => {
    await writeFile(path.join(work, 'token.front'), `${now - 100} ${now - 1} SECRET\n`)
    const { stdout } = spawnSync(front, ['token'], {
      env: { token: '', bare: '', PATH: process.env['PATH'] },
      encoding: 'utf8',
    })
    expect(stdout).toBe('full token\n0\n')
  })

  it.each(['>&-', '>/dev/full'])(
    'leaves it to the full program where the output is %s',
    async (redirection) => {
      await writeFile(path.join(work, 'token.front'), good)
      const { status, stderr } = spawnSync('sh', ['-c', `${front} token ${redirection}`], {
        encoding: 'utf8',
      })
      expect(status).toBe(7)
      expect(stderr).not.toContain('printf')
    },
  )

  it('leaves it to the full program without a reader', async () => {
    await writeFile(path.join(work, 'token.front'), good)
    const script = `{ sleep 0.2; ${front} token; echo $? >&2; } | true`
    expect(spawnSync('sh', ['-c', script], { encoding: 'utf8' }).stderr).toMatch(/7\n$/)
  })
})
