// kyc_token.py and KycToken.php, with a real python3 and php, against a daemon and an API that revokes tokens.
import { spawnSync } from 'node:child_process'
import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { lacks } from '../support/lacks.ts'
import { runProgram, type Ended } from '../support/run-cli.ts'
import { granting, type ArrivedRequest, type ScriptedAnswer } from '../support/service.ts'
import { clientOf } from '../support/client-world.ts'
import { startExample } from './example.ts'
import { EXAMPLES } from './manual.ts'

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

function run([program = '', ...words]: readonly string[], socket: string): Promise<Ended> {
  const env = { KYC_TOKEND_HTTP_SOCKET: socket, PYTHONDONTWRITEBYTECODE: '1', no_proxy: '*' }
  if (program !== 'php') return runProgram([program, ...words], { cwd: EXAMPLES, env })
  // PHP has its code on standard input: that of -r knows no handler of exceptions.
  const [code, ...others] = words
  return runProgram(['php', '--', ...others], { cwd: EXAMPLES, env, input: `<?php ${code}` })
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
    expect(ran).toMatchObject({ status: 0, stdout: '200\n401\n401\n200\n', stderr: '' })
    // The revocation is seen at once. The report of /bad is held for longer than the call would wait.
    expect(api.calls).toEqual(['/good', '/good', '/bad', '/bad', '/good'].map((path) => `POST ${path} body`))
    expect(api.tokens).toBe(2)
    expect((await clientOf({ path: daemon.ipcPath }).status()).token?.generation).toBe(2)
  },
)

const AWAY = /: no daemon answers at \/\S*\/http\.sock \([^\n]*\): `kyc-tokend status` says why\n/
const FOREIGN = /is not sent to/
test.for<[string[], RegExp]>([
  [python('kyc_token.get()'), AWAY],
  [python('kyc_token.urlopen("https://example.com/")'), AWAY],
  [php('KycToken::get();'), AWAY],
  [php("KycToken::request('GET', 'https://example.com/');"), AWAY],
  [python('kyc_token.urlopen("http://127.0.0.1:1/x")'), FOREIGN],
  [php("KycToken::request('GET', 'http://127.0.0.1:1/x');"), FOREIGN],
  [python('kyc_token.urlopen(sys.argv[1] + "/elsewhere")'), /another origin/],
])('%j without a daemon, or to a foreign origin, ends with a sentence: %s', async (row, { skip }) => {
  const [command, sentence] = row
  skip(lacks(command[0]!))
  const { daemon, service } = await revokingWorld()
  if (sentence === AWAY) await daemon.end()
  const { status, stdout, stderr } = await run([...command, service.url], daemon.httpPath)
  expect([status === 0, stdout]).toEqual([false, ''])
  expect(stderr).toMatch(/^kyc-tokend: [^\n]*\n$/)
  expect(stderr).toMatch(sentence)
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
