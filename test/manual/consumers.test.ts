// The examples of the clients' page in every language that this machine has, run as they stand there.
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { PROGRAM } from '../support/daemon.ts'
import { jwtOf } from '../support/jwt.ts'
import { lacks } from '../support/lacks.ts'
import { granting } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'
import { installClient, startExample, type Example } from './example.ts'
import { block } from './manual.ts'

const sh = ['sh', '-euc']
function calls({ service }: Example): { authorization: string | undefined; body: string }[] {
  return service.requests
    .filter(({ path }) => path === '/some/path')
    .map(({ headers, body }) => ({ authorization: headers.authorization, body }))
}

const languages: Record<string, { needs: string; with: readonly string[]; as: string }> = {
  php: { needs: 'php', with: ['php'], as: 'example.php' },
  ruby: { needs: 'ruby', with: ['ruby', '-W'], as: 'example.rb' },
  perl: { needs: 'perl', with: ['perl'], as: 'example.pl' },
  java: { needs: 'javac', with: ['java'], as: 'Example.java' },
  c: {
    needs: 'gcc',
    with: [...sh, 'gcc -Wall -Wextra -Werror -o example "$0" && ./example'],
    as: 'example.c',
  },
}
describe('other languages', () => {
  const present = Object.entries(languages).filter(([, { needs }]) => !lacks(needs))
  test.each(present)('%s', { timeout: 60_000 }, async (name, how) => {
    const example = await startExample()
    expect(await example.run(name, how)).toBe(`${example.token.length} characters\n`)
  })
})
// The names of the blocks above, for the test that every block is run: 'php', 'ruby', 'perl', 'java', 'c'.

describe('without an answer every example fails with a message, and sends nothing to the service', () => {
  const node = { needs: 'node', with: [process.execPath], as: 'example.mjs' }
  const others: typeof languages = {
    ...languages,
    python: { needs: 'python3', with: ['python3'], as: 'example.py' },
    go: { needs: 'go', with: ['go', 'run'], as: 'example.go' },
    'node-ipc': node,
  }
  const shells = Object.fromEntries(
    ['header-file', 'env-file'].map((name) => [name, { needs: 'curl', with: sh, as: 'example.sh' }]),
  )
  const asCron = ['sh', '-euc', 'sh -c "$(cut -d" " -f6- "$0")"']
  const away: typeof languages = {
    ...others,
    ...shells,
    'token-client': node,
    crontab: { needs: 'curl', with: asCron, as: 'crontab' },
  }

  async function exampleWithoutDaemon(): Promise<Example> {
    const example = await startExample()
    await example.daemon.end('SIGTERM')
    installClient(example, ['node-ipc'])
    return example
  }
  const runnable = (all: typeof languages): [string, (typeof languages)[string]][] =>
    Object.entries(all).filter(([, { needs }]) => needs === 'node' || !lacks(needs))

  test.each(runnable(away))(
    '%s, with no daemon',
    { timeout: 60_000 },
    async (name, { with: command, as }) => {
      const example = await exampleWithoutDaemon()
      const short = (code: string): string => code.replace('--wait 20s ', '')
      const withFile = command === sh ? ['sh', '-eu'] : command
      await expect(example.run(name, { with: withFile, as, edit: short })).rejects.toThrow(
        /ended with \d+: \S/,
      )
      expect(calls(example)).toEqual([])
    },
  )

  test.each(runnable(others))('%s, with one that does not answer', { timeout: 60_000 }, async (name, how) => {
    const example = await exampleWithoutDaemon()
    const sockets = ['ipc.sock', 'http.sock'].map((file) => join(example.daemon.directory, 'run', file))
    for (const path of sockets) {
      const silent = createServer(() => undefined)
      await new Promise<void>((resolve) => silent.listen(path, resolve))
      onTestFinished(() => void silent.close())
    }
    const patient = (code: string): string => code.replaceAll(/\b30(?=\b|_000\b)/g, '1')
    await expect(example.run(name, { ...how, edit: patient })).rejects.toThrow(/ended with \d+: \S/)
  })
})

describe('files and schedules', () => {
  async function exampleWithEnvFile(): Promise<Example & { envFile: string }> {
    const files = ['raw', 'env'].map((format) => ({ path: format === 'raw' ? 'token' : 'token.env', format }))
    const example = await startExample({ tokenFiles: files })
    const envFile = join(example.daemon.directory, 'run/token.env')
    await expectUntil('the file', () => existsSync(envFile))
    return { ...example, envFile }
  }

  test.skipIf(lacks('curl'))('the time in a file of JSON says whether its token has expired', async () => {
    const example = await startExample({
      tokenFiles: [
        { path: 'token', format: 'raw' },
        { path: 'token.json', format: 'json' },
      ],
    })
    expect(await example.run('expired-file', { with: sh })).toBe('')
    await example.daemon.end('SIGKILL')
    const file = join(example.daemon.directory, 'run/token.json')
    const past = readFileSync(file, 'utf8').replace(/"expiresAt":"\d{4}/, '"expiresAt":"2020')
    writeFileSync(file, past)
    expect(await example.run('expired-file', { with: sh })).toBe('the token has expired\n')
  })

  test.skipIf(lacks('python3'))('set -a', async () => {
    const example = await exampleWithEnvFile()
    expect(await example.run('set-a', { with: sh })).toBe(`${example.token.length} characters\n`)
  })

  test('EnvironmentFile=', async () => {
    const example = await exampleWithEnvFile()
    const [, path = ''] = /^EnvironmentFile=(\S+)$/m.exec(block('environment-file').code) ?? []
    expect(path.replace('/run/kyc-tokend', join(example.daemon.directory, 'run'))).toBe(example.envFile)
    // systemd.exec(5): assignments without quotes and without spaces are taken as they are.
    expect(readFileSync(example.envFile, 'utf8')).toBe(`KYC_ACCESS_TOKEN=${example.token}\n`)
    expect(example.token).toMatch(/^[\w.~+/=-]+$/)
  })

  test.skipIf(lacks('curl'))('crontab', async () => {
    const example = await startExample()
    expect(block('crontab').code).toMatch(/^\S+( \S+){4} [^%]+$/)
    const output = await example.run('crontab', {
      with: [...sh, 'sh -c "$(cut -d" " -f6- "$0")"'],
      as: 'crontab',
    })
    expect(output).toBe('/some/path is answered\n')
    expect(calls(example)).toEqual([{ authorization: `Bearer ${example.token}`, body: '' }])
  })
})

describe('Node', () => {
  /** A service that accepts only the token after the first. */
  async function strictExample(): Promise<Example & { second: string }> {
    const example = await startExample()
    const second = jwtOf({ exp: Date.now() / 1000 + 3_600 }, 2)
    example.service.answer(({ path, headers }) => {
      if (path === '/token/external/jwt') return granting(second)
      return headers.authorization === `Bearer ${second}` ? { body: 'accepted' } : { status: 401 }
    })
    installClient(example, ['axios', 'ky', 'got'])
    return { ...example, second }
  }

  // 'axios', 'ky' and 'got' are the blocks.
  test.each(['axios', 'ky', 'got'])('%s sends the token, and after a 401 another', async (name) => {
    const example = await strictExample()
    expect(await example.run(name, { with: [process.execPath], as: 'example.mjs' })).toBe('accepted\n')
    const body = '{"externalId":"4711"}'
    expect(calls(example)).toEqual([
      { authorization: `Bearer ${example.token}`, body },
      { authorization: `Bearer ${example.second}`, body },
    ])
  })

  test('tests with a fake client', async () => {
    const example = await startExample()
    installClient(example)
    const output = await example.run('testing', {
      with: [process.execPath, '--test'],
      as: 'example.test.mjs',
    })
    expect(output).toMatch(/pass 2\b/)
  })
})

const canMount = spawnSync('unshare', ['-m', 'true']).status === 0
if (!canMount)
  process.stderr.write('Mounting the directory in a container is skipped: mounts are not allowed\n')
describe.skipIf(!canMount)('a container', () => {
  test('sees the socket of a daemon that was restarted, through the directory', async () => {
    const example = await startExample()
    const { directory, ipcPath } = example.daemon
    const [, from = '', to = ''] = /-v (\S+):(\S+):ro/.exec(block('container').code) ?? []
    expect(from).toBe('/run/kyc-tokend')
    const run = from.replace('/run/kyc-tokend', join(directory, 'run'))
    const target = join(directory, 'container', to)
    mkdirSync(target, { recursive: true })
    writeFileSync(join(directory, 'socket'), '')
    const script = `mount --bind ${run} ${target}
      mount -o remount,bind,ro ${target}
      mount --bind ${ipcPath} ${join(directory, 'socket')}
      touch ${join(directory, 'mounted')}
      until [ -e ${join(directory, 'restarted')} ]; do sleep 0.05; done
      cat ${target}/token; echo
      ${PROGRAM.join(' ')} token --socket ${target}/ipc.sock
      ${PROGRAM.join(' ')} token --socket ${join(directory, 'socket')} 2>/dev/null || echo $?`
    const container = spawn('unshare', ['-m', 'sh', '-euc', script], { stdio: ['ignore', 'pipe', 'inherit'] })
    onTestFinished(() => void container.kill('SIGKILL'))
    let output = ''
    container.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
    const ended = new Promise((resolve) => container.on('close', resolve))
    await expectUntil('the mounts', () => spawnSync('test', ['-e', join(directory, 'mounted')]).status === 0)
    await example.daemon.end('SIGTERM')
    await example.restart()
    writeFileSync(join(directory, 'restarted'), '')
    await ended
    expect(output).toBe(`${example.token}\n${example.token}\n69\n`)
  })
})

test.skipIf(lacks('nginx'))('nginx', async () => {
  const example = await startExample()
  const { directory } = example.daemon
  const port = await freePort()
  const server = block('nginx')
    .code.replaceAll('/run/kyc-tokend', join(directory, 'run'))
    .replace('api.example.com:443', new URL(example.service.url).host)
    .replace('https://kyc_api', 'http://kyc_api')
    .replace('127.0.0.1:8080', `127.0.0.1:${port}`)
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${directory}/nginx-${name};`)
    .join(' ')
  const user = process.getuid?.() === 0 ? 'user root;' : ''
  const config = `daemon off; pid ${directory}/nginx.pid; error_log stderr; ${user}
    events {} http { access_log off; ${paths} ${server} }`
  writeFileSync(join(directory, 'nginx.conf'), config)
  const nginx = spawn('nginx', ['-c', join(directory, 'nginx.conf'), '-e', 'stderr'], { stdio: 'ignore' })
  onTestFinished(() => void nginx.kill('SIGTERM'))
  await expectTokens('nginx', { example, port })
})

test.skipIf(lacks('caddy', 'caddy'))('caddy, which listens on loopback only', async () => {
  const example = await startExample()
  const { directory } = example.daemon
  const port = await freePort()
  const site = block('caddy')
    .code.replaceAll('/run/kyc-tokend', join(directory, 'run'))
    .replaceAll('https://api.example.com', example.service.url)
    .replaceAll('127.0.0.1:8080', `127.0.0.1:${port}`)
  const file = join(directory, 'Caddyfile')
  writeFileSync(file, `{\n\tadmin off\n}\n${site}\n`)
  const caddy = spawn('caddy', ['run', '--config', file, '--adapter', 'caddyfile'], {
    stdio: 'ignore',
    env: { ...process.env, HOME: directory, XDG_CONFIG_HOME: directory, XDG_DATA_HOME: directory },
  })
  onTestFinished(() => void caddy.kill('SIGTERM'))
  await expectTokens('caddy', { example, port })
  // 0100007F is 127.0.0.1.
  const listening = readFileSync('/proc/net/tcp', 'utf8') + readFileSync('/proc/net/tcp6', 'utf8')
  const local = new RegExp(`: (\\w+):${port.toString(16).toUpperCase().padStart(4, '0')} \\w+:0000 0A`, 'g')
  expect([...listening.matchAll(local)].map(([, address]) => address)).toEqual(['0100007F'])
})

/** Requests through a proxy have the daemon's token, whatever they bring. */
async function expectTokens(
  name: string,
  { example, port }: { example: Example; port: number },
): Promise<void> {
  const call = async (headers: Record<string, string>): Promise<string | undefined> =>
    fetch(`http://127.0.0.1:${port}/some/path`, { headers }).then(
      (response) => response.text(),
      () => undefined,
    )
  await expectUntil(name, () => call({}))
  expect(await call({ authorization: 'Bearer mine', origin: 'https://example.com' })).toBe(
    '/some/path is answered\n',
  )
  expect(new Set(calls(example).map(({ authorization }) => authorization))).toEqual(
    new Set([`Bearer ${example.token}`]),
  )
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  await new Promise((resolve) => server.close(resolve))
  return port
}
