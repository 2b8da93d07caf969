// The commands run, sandbox and demo: the daemon and the stand-in of the service, in the foreground.
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ServiceConfig } from '../config/config.ts'
import { loadService } from '../config/load.ts'
import { standardService } from '../config/resolve.ts'
import { earlySignals } from '../daemon/daemon-signals.ts'
import { runDaemon } from '../daemon/run-daemon.ts'
import { thisProgram } from '../host/paths.ts'
import { createSystemClock } from '../lib/clock.ts'
import { escapeUnsafe, shellWord } from '../lib/display-text.ts'
import { parseDuration } from '../lib/duration.ts'
import { errorMessage, exitStatus, UsageError, UserError } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'
import { createSandbox, sandboxCredentials } from '../sandbox/sandbox.ts'
import { scenarioNames, summaryOf, type ScenarioName } from '../sandbox/scenarios.ts'
import { configurationOf } from '../terminal/ask.ts'
import type { RunCommand } from '../terminal/command.ts'

const MAX_TOKEN_LIFETIME_MS = 366 * 86_400_000
/** Short enough to see tokens come and go. */
const DEMO_LIFETIME_MS = 30_000

export const run: RunCommand = async ({ options, env, stderr }) => {
  const libc = loadLibc()
  // Node would wait for a name look-up or a disk that does not answer.
  process.once('exit', (status) => libc.exitNow(status))
  const configuration = configurationOf({ options, env })
  // In the process list `node` would not say which program runs.
  process.title = 'kyc-tokend'
  await runDaemon({ ...configuration, stderr, signals: earlySignals! })
  return exitStatus.ok
}

/** Prints a line for each request. */
export const sandbox: RunCommand = async ({ options, env, stdout, signal }) => {
  const tokenLifetimeMs = lifetimeOf(options['token-lifetime'] ?? '60s')
  const configPath = options['config']
  const plan = typeof configPath === 'string' ? await loadService({ configPath, env }) : standardService()
  const initial = (options['scenario'] ?? 'ok') as ScenarioName
  const standIn = await createSandbox({
    port: portOf(options['port'] ?? '0'),
    scenario: initial,
    tokenLifetimeMs,
    plan,
    clock: createSystemClock(),
    onRequest: (line) => void stdout.write(`${escapeUnsafe(line)}\n`),
  })
  stdout.write(introduction(standIn.url, initial, plan.service))
  await standIn.run(signal)
  return exitStatus.ok
}

function introduction(url: string, scenario: ScenarioName, service: ServiceConfig): string {
  const { apiKey, apiSecret } = sandboxCredentials
  const { pathname, search } = new URL(service.tokenUrl)
  const isElsewhere = !service.tokenUrl.startsWith(`${service.baseUrl}/`)
  const tokenUrl = isElsewhere ? `,\n  "service": { "tokenUrl": "${url}${pathname}${search}", … }` : ''
  const names = scenarioNames.map((name) => `  ${name.padEnd(18)} ${escapeUnsafe(summaryOf(name, service))}`)
  return `A stand-in of the service is at ${url}. In a configuration:

  "baseUrl": "${url}${new URL(service.baseUrl).pathname.replace(/\/$/, '')}",
  "credentials": { "apiKey": "${apiKey}", "apiSecret": "${apiSecret}" }${tokenUrl}

Scenarios (now ${scenario}; another one: curl -X PUT -d NAME ${url}/scenario):

${names.join('\n')}

Ctrl-C ends it. Requests:
`
}

function portOf(option: string | boolean): number {
  if (/^\d{1,5}$/.test(String(option)) && Number(option) <= 65_535) return Number(option)
  throw new UsageError('--port takes a number from 0 to 65535; 0 is a free port.')
}

function lifetimeOf(option: string | boolean): number {
  const ms = parseDuration(String(option))
  if (ms !== undefined && ms >= 1_000 && ms <= MAX_TOKEN_LIFETIME_MS) return ms
  throw new UsageError('--token-lifetime takes a duration of at least 1s, such as 60s or 15m.')
}

/** The daemon's log shows what happens; all is in one directory, which goes with it. */
export const demo: RunCommand = async ({ env, stdout, stderr, signal }) => {
  const stop = new AbortController()
  const ended = AbortSignal.any([signal, stop.signal])
  const directory = await mkdtemp(join(tmpdir(), 'kyc-demo-')).catch(throwUnwritable)
  try {
    const clock = createSystemClock()
    const options = { port: 0, scenario: 'ok', tokenLifetimeMs: DEMO_LIFETIME_MS, clock } as const
    const standIn = await createSandbox(options)
    const serving = standIn.run(ended)
    const configPath = await writeDemo(directory, standIn.url).catch(throwUnwritable)
    stdout.write(demoIntroduction(directory, standIn.url))
    const signals = { stop: ended, onReload: () => undefined, onRefresh: () => undefined }
    await runDaemon({ configPath, env, stderr, signals })
    stop.abort()
    await serving
    return exitStatus.ok
  } finally {
    stop.abort()
    await rm(directory, { recursive: true, force: true })
  }
}

function throwUnwritable(cause: unknown): never {
  const problem = `The demo cannot write its directory (${errorMessage(cause)})`
  const message = `${problem}: set TMPDIR to one that you may write in and that has space.`
  throw new UserError(message, exitStatus.unavailable, { cause })
}

/** Writes a configuration, whose path it returns, and a command that is this program for this daemon. */
async function writeDemo(directory: string, baseUrl: string): Promise<string> {
  const file = join(directory, 'kyc-tokend.config.json')
  const directories = { runtimeDirectory: directory, stateDirectory: join(directory, 'state') }
  const config = { baseUrl, credentials: sandboxCredentials, ...directories, log: { format: 'text' } }
  await writeFile(file, JSON.stringify(config), { mode: 0o600 })
  const socket = shellWord(join(directory, 'ipc.sock'))
  const line = `KYC_TOKEND_SOCKET=${socket} exec ${thisProgram().map(shellWord).join(' ')} "$@"`
  await writeFile(join(directory, 'kyc-tokend'), `#!/bin/sh\n${line}\n`, { mode: 0o755 })
  return file
}

function demoIntroduction(directory: string, url: string): string {
  const command = join(directory, 'kyc-tokend')
  return `kyc-tokend is running against a stand-in of the service, both in ${directory}.
Tokens live ${DEMO_LIFETIME_MS / 1000} s here, so that you see them come and go. In another terminal:

  a token to use      ${command} token
  how it is           ${command} status
  the token file      cat ${join(directory, 'token')}
  over ipc.sock       printf '{"type":"token.get","data":{"id":"1"}}\\f' | socat -t2 - UNIX-CONNECT:${join(directory, 'ipc.sock')}
  over http.sock      curl --unix-socket ${join(directory, 'http.sock')} http://localhost/v1/token
  an outage           curl -X PUT -d outage ${url}/scenario
  an inactive account curl -X PUT -d account-inactive ${url}/scenario
  all well again      curl -X PUT -d ok ${url}/scenario; ${command} refresh

Ctrl-C ends it and removes everything. The daemon's log:

`
}
