// kyc_token.py and KycToken.php, with a real python3 and php, against a daemon and an API that revokes tokens.
import { spawn, spawnSync } from 'node:child_process'
import { copyFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { lacks } from '../support/lacks.ts'
import { listening } from '../support/listening.ts'
import { granting, type ArrivedRequest, type ScriptedAnswer } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { clientOf } from '../support/client-world.ts'
import { startExample } from './example.ts'
import { PROJECT } from './manual.ts'

const EXAMPLES = join(PROJECT, 'systemd/examples')
/** One that has these modules; Debian's packages are for its own. */
const pythonWith = (modules: string): string | undefined =>
  ['python3', '/usr/bin/python3'].find(
    (program) => spawnSync(program, ['-c', `import ${modules}`], { stdio: 'ignore' }).status === 0,
  )

const python = (code: string): string[] => ['python3', '-c', `import sys, kyc_token\n${code}`]
const php = (code: string): string[] => ['php', `require 'KycToken.php'; ${code}`]

/** By the module that it needs, a program that calls `/good`, then `/bad` twice, whose 401 is its own, each with POST. */
const calls = 'for path in ("/good", "/bad", "/bad", "/good"): print(send(sys.argv[1] + path))'
const inPython = {
  urllib: 'send = lambda url: kyc_token.urlopen(url, b"body", method="POST").status',
  requests: `import requests
session = kyc_token.adapt(requests.Session())
send = lambda url: session.post(url, data="body").status_code`,
  httpx: `import httpx
client = httpx.Client(auth=kyc_token.httpx_auth())
send = lambda url: client.post(url, content=b"body").status_code`,
  'httpx, asyncio': `import asyncio, httpx
def send(url):
    async def call():
        async with httpx.AsyncClient(auth=kyc_token.httpx_auth()) as client:
            return (await client.post(url, content=b"body")).status_code
    return asyncio.run(call())`,
}
const programs: [name: string, command: string[], isMissing: boolean][] = [
  ...Object.entries(inPython).map(([modules, send]): [string, string[], boolean] => {
    const [, ...words] = python(`${send}\n${calls}`)
    const program = pythonWith(modules)
    return [modules, [program ?? 'python3', ...words], program === undefined]
  }),
  [
    'PHP',
    php(`foreach (['/good', '/bad', '/bad', '/good'] as $path)
      echo KycToken::request('POST', $argv[1] . $path, [], 'body')['status'], "\\n";`),
    lacks('php'),
  ],
]

interface Ran {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}
function run(command: readonly string[], socket: string): Promise<Ran> {
  // PHP has its code on standard input: that of -r knows no handler of exceptions.
  const isPhp = command[0] === 'php'
  const [program = '', ...words] = command
  const args = isPhp ? ['--', ...words.slice(1)] : words
  const env = { ...process.env, KYC_TOKEND_HTTP_SOCKET: socket, PYTHONDONTWRITEBYTECODE: '1', no_proxy: '*' }
  const child = spawn(program, args, { cwd: EXAMPLES, env, stdio: 'pipe' })
  child.stdin.end(isPhp ? `<?php ${words[0]}` : '')
  onTestFinished(() => void child.kill('SIGKILL'))
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  return new Promise((resolve) => child.on('close', (status) => resolve({ status, stdout, stderr })))
}

/** A daemon, and an API that takes the newest token alone, at `/bad` none. */
async function revokingWorld() {
  const api = { tokens: 0, valid: '', calls: [] as string[] }
  const answer = ({ path, method, headers, body }: ArrivedRequest): ScriptedAnswer => {
    if (path === '/token/external/jwt') {
      api.tokens += 1
      api.valid = hourToken(api.tokens)
      return granting(api.valid)
    }
    api.calls.push(`${method} ${path} ${body}`)
    if (path === '/elsewhere') return { status: 302, headers: { location: 'http://localhost:1/' } }
    return { status: path === '/good' && headers.authorization === `Bearer ${api.valid}` ? 200 : 401 }
  }
  const world = await commandWorld({ answer })
  await clientOf({ path: world.daemon.ipcPath }).get()
  return { ...world, api }
}

test.for(programs)(
  '%s: a revoked token is reported, and the call repeated once; an own 401 is its caller’s',
  async ([name, command, isMissing], { skip }) => {
    skip(isMissing, `there is no ${name}`)
    const { daemon, service, api } = await revokingWorld()
    api.valid = 'none'
    const ran = await run([...command, service.url], daemon.httpPath)
    expect(ran).toEqual({ status: 0, stdout: '200\n401\n401\n200\n', stderr: '' })
    // The revocation is seen at once. The report of /bad is held for longer than the call would wait.
    expect(api.calls).toEqual(['/good', '/good', '/bad', '/bad', '/good'].map((path) => `POST ${path} body`))
    expect(api.tokens).toBe(2)
    expect((await clientOf({ path: daemon.ipcPath }).status()).token?.generation).toBe(2)
  },
)

test.for([
  python('kyc_token.get()'),
  python('kyc_token.urlopen("https://example.com/")'),
  php('KycToken::get();'),
  php("KycToken::request('GET', 'https://example.com/');"),
])('%s without a daemon ends with a sentence, and no traceback: %s', async (command, { skip }) => {
  skip(lacks(command[0]!))
  const { status, stdout, stderr } = await run(command, join(await tempDirectory(), 'none.sock'))
  expect([status === 0, stdout]).toEqual([false, ''])
  expect(stderr).toMatch(/^kyc-tokend: no daemon answers at [^\n]*: `kyc-tokend status` says why\n$/)
})

test.for<[string[], RegExp]>([
  [python('kyc_token.urlopen("http://127.0.0.1:1/x")'), /is not sent to/],
  [php("KycToken::request('GET', 'http://127.0.0.1:1/x');"), /is not sent to/],
  [python('kyc_token.urlopen(sys.argv[1] + "/elsewhere")'), /another origin/],
])('%j sends no token to a foreign origin', async ([command, sentence], { skip }) => {
  skip(lacks(command[0]!))
  const { daemon, service } = await revokingWorld()
  const { status, stderr } = await run([...command, service.url], daemon.httpPath)
  expect(status).not.toBe(0)
  expect(stderr).toMatch(/^kyc-tokend: [^\n]*\n$/)
  expect(stderr).toMatch(sentence)
})

const TOKEN = {
  accessToken: 'token',
  fingerprint: '0123456789abcdef',
  expiresAt: '2030-01-01T00:00:00.000Z',
  header: 'Authorization',
  prefix: 'Bearer ',
  baseUrl: 'http://127.0.0.1:1',
  refusedBy: [401],
}
const VERDICT = { verdict: 'held', retryAfterSeconds: 1 }
/** JSON that is wrong for some fields. */
const ODD = ['null', '7', '[]', 'true', '"a\\r\\nb"', '"http://x:port"', '"http://["', '1e999']

/** Answers in each of which one field is odd, and some that are no objects. */
const oddOnes = (fields: object): string[] => [
  'null',
  '[]',
  '"text"',
  '['.repeat(100_000),
  ...Object.keys(fields).flatMap((name) =>
    ODD.map((odd) => JSON.stringify({ ...fields, [name]: '?' }).replace('"?"', odd)),
  ),
]
const answerWith = (body: string, status = '200 OK'): string =>
  `HTTP/1.1 ${status}\r\nContent-Length: ${body.length}\r\n\r\n${body}`
const soundOne = (fingerprint: string): string => answerWith(JSON.stringify({ ...TOKEN, fingerprint }))
const HELD = answerWith(JSON.stringify(VERDICT))
/** The answers of a hostile daemon: to the first request, and to the report. */
const HOSTILE: [string, string][] = [
  ...['', 'x\u001b[2J', answerWith('{"detail":"a\\u001b[2Jb\\nc"}', '503 X')].map(
    (text): [string, string] => [text, HELD],
  ),
  ...oddOnes(TOKEN).map((body): [string, string] => [answerWith(body), HELD]),
  ...oddOnes({ code: 'expired', detail: 'a sentence' }).map((body): [string, string] => [
    answerWith(body, '503 X'),
    HELD,
  ]),
  // A report is remembered by the fingerprint of its token.
  ...oddOnes(VERDICT).map((body, index): [string, string] => [
    soundOne(String(index).padStart(16, '0')),
    answerWith(body),
  ]),
]

test.for([
  [
    'python3',
    python(`for index in range(${HOSTILE.length}):
    try:
        kyc_token.refused(kyc_token.get(index), "GET", "http://127.0.0.1:1/")
    except kyc_token.KycTokenError as error:
        print(error)`),
  ],
  [
    'php',
    php(`for ($i = 0; $i < ${HOSTILE.length}; $i += 1) try {
      KycToken::refused(KycToken::get($i), 'GET', 'http://127.0.0.1:1/');
    } catch (KycTokenException $error) { echo $error->getMessage(), "\\n"; }`),
  ],
] as const)(
  '%s: whatever a hostile daemon answers is a sentence, and no traceback',
  async ([program, command], { skip }) => {
    skip(lacks(program))
    const path = join(await tempDirectory(), 'http.sock')
    /** The program names the answers as `minValidSeconds`, when it asks for the first token. */
    let index = 0
    const server = createServer((socket) => {
      socket.on('error', () => undefined)
      socket.once('data', (data: Buffer) => {
        const request = data.toString()
        const isFirst = request.startsWith('GET') && !request.includes('notFingerprint')
        if (isFirst) index = Number(/minValidSeconds=(\d+)/.exec(request)?.[1])
        const [first, report] = HOSTILE[index]!
        socket.end(isFirst ? first : request.startsWith('POST') ? report : soundOne(TOKEN.fingerprint))
      })
    })
    await listening(server, path)
    const { status, stdout, stderr } = await run(command, path)
    expect({ status, stderr, at: index }).toEqual({ status: 0, stderr: '', at: HOSTILE.length - 1 })
    expect(stdout).toMatch(/^([\P{Cc}]+\n)+$/u)
  },
)

test.for([
  ['python3', python('print(len(kyc_token.get().access_token), end="")')],
  ['php', php("echo strlen(KycToken::get()['accessToken']);")],
] as const)('%s survives a restart of the daemon', async ([program, command], { skip }) => {
  skip(lacks(program))
  const world = await revokingWorld()
  await world.daemon.end('SIGTERM')
  await world.again()
  expect(await run(command, world.daemon.httpPath)).toMatchObject({ status: 0, stderr: '' })
})

test.for([
  ['kyc-token-python', 'python3', 'kyc_token.py', 'example.py'],
  ['kyc-token-php', 'php', 'KycToken.php', 'example.php'],
] as const)(
  'the example %s of programs.md runs beside its file',
  async ([name, program, file, as], { skip }) => {
    skip(lacks(program))
    const example = await startExample()
    copyFileSync(join(EXAMPLES, file), join(example.daemon.directory, file))
    const output = await example.run(name, {
      with: ['env', `KYC_TOKEND_HTTP_SOCKET=${example.daemon.httpPath}`, program],
      as,
    })
    expect(output).toBe(`200\n${example.token.length} characters\n`)
  },
)
