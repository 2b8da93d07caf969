// `kyc-tokend demo`: runs the stand-in of the service and a daemon in a temporary directory. At a terminal
// it shows the status as it changes, with keys for outages; elsewhere it prints what to try, and a line for
// each event.
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ReadStream } from 'node:tty'
import { TokenClient } from '../client/index.ts'
import { createSystemClock } from '../lib/clock.ts'
import { wrap } from '../lib/display-text.ts'
import { errorCode, errorMessage, exitStatus, UserError } from '../lib/error.ts'
import { shellWord } from '../lib/display-text.ts'
import { thisProgram } from '../host/paths.ts'
import { requireLinux } from '../host/supported-node.ts'
import { runDaemon } from '../daemon/run-daemon.ts'
import { createSandbox, sandboxCredentials, type Sandbox } from '../sandbox/sandbox.ts'
import type { ScenarioName } from '../sandbox/scenarios.ts'
import type { RunCommand } from '../terminal/command.ts'
import { isTerminal } from '../terminal/prompt.ts'
import { canPaint, watchStatus, type Event } from './watch-status.ts'

/** Short enough to see tokens come and go. */
const TOKEN_LIFETIME_MS = 30_000
const START_POLL_MS = 50
const KEYS = 'o outage  i inactive account  k all well  r refresh  q end'
const SCENARIOS: Readonly<Record<string, ScenarioName>> = { o: 'outage', i: 'account-inactive', k: 'ok' }
const CTRL_C = '\u0003'

export const run: RunCommand = async (invocation) => {
  requireLinux()
  const { env, stdin, stdout, stderr, signal } = invocation
  const directory = await mkdtemp(join(tmpdir(), 'kyc-demo-')).catch(throwUnwritable)
  const stop = new AbortController()
  const ended = AbortSignal.any([signal, stop.signal])
  const socket = join(directory, 'ipc.sock')
  using client = new TokenClient({ socketPath: socket, name: 'demo' })
  try {
    const sandbox = await createSandbox({
      port: 0,
      scenario: 'ok',
      tokenLifetimeMs: TOKEN_LIFETIME_MS,
      clock: createSystemClock(),
    })
    const serving = sandbox.run(ended)
    const configPath = await writeConfig(directory, sandbox.url).catch(throwUnwritable)
    const command = await writeCommand(directory, socket).catch(throwUnwritable)
    const isShown = isTerminal(stdin) && canPaint(invocation)
    // The picture has the events; the log would run through it.
    const log = isShown ? new Writable({ write: (_chunk, _encoding, done) => done() }) : stderr
    const signals = { stop: ended, onReload: () => undefined, onRefresh: () => undefined }
    const daemon = runDaemon({ configPath, env, stderr: log, signals })
    const notes: Event[] = []
    const footer = (columns: number): string[] => [
      ...wrap(KEYS, columns),
      'A token, in another terminal:',
      `${command} token`,
    ]
    const onKey = (key: string): void => {
      if (key === 'q' || key === CTRL_C) stop.abort()
      const scenario = SCENARIOS[key]
      if (scenario === undefined && key !== 'r') return
      if (scenario !== undefined) {
        sandbox.setScenario(scenario)
        notes.push({ text: `the service from now on: ${scenario}`, happenedAt: new Date().toISOString() })
      }
      // The picture shows its result.
      client.refresh({ signal: ended }).catch(() => undefined)
    }
    if (isShown) listenToKeys(stdin as ReadStream, stop.signal, onKey)
    stdout.write(isShown ? 'Starting …\n' : introduction(directory, command, sandbox))
    const shown = { options: { socket }, stdout, env, signal: ended, notes, footer }
    await Promise.race([show(client, shown), daemon])
    stop.abort()
    await Promise.all([serving, daemon])
    return exitStatus.ok
  } finally {
    stop.abort()
    await rm(directory, { recursive: true, force: true })
  }
}

function throwUnwritable(cause: unknown): never {
  const isFull = ['ENOSPC', 'EDQUOT'].includes(errorCode(cause) ?? '')
  const space = isFull ? `free some space in ${tmpdir()}, or ` : ''
  const problem = `The demo cannot write its directory (${errorMessage(cause)})`
  const message = `${problem}: ${space}set TMPDIR to one that you may write in.`
  throw new UserError(message, exitStatus.unavailable, { cause })
}

/** Until the signal is aborted. */
async function show(client: TokenClient, options: Parameters<typeof watchStatus>[1]): Promise<void> {
  const { signal } = options
  while (!signal.aborted && (await client.status().catch(() => null)) === null)
    await sleep(START_POLL_MS, undefined, { signal }).catch(() => undefined)
  await watchStatus(client, options)
}

/** Until the signal is aborted. */
function listenToKeys(stdin: ReadStream, signal: AbortSignal, onKey: (key: string) => void): void {
  // The terminal was closed.
  stdin.once('error', () => onKey(CTRL_C))
  stdin.setRawMode(true)
  stdin.on('data', (keys: Buffer) => keys.toString().split('').forEach(onKey))
  signal.addEventListener('abort', () => stdin.setRawMode(false).pause())
}

/** Writes a configuration for the stand-in into the directory of the sockets; returns its path. */
async function writeConfig(directory: string, baseUrl: string): Promise<string> {
  const file = join(directory, 'kyc-tokend.config.json')
  const directories = { runtimeDirectory: directory, stateDirectory: join(directory, 'state') }
  const config = { baseUrl, credentials: sandboxCredentials, ...directories, log: { level: 'warning' } }
  await writeFile(file, JSON.stringify(config), { mode: 0o600 })
  return file
}

/** Writes a command that is this program for this daemon, whichever Node is in PATH, and returns its path. */
async function writeCommand(directory: string, socket: string): Promise<string> {
  const file = join(directory, 'kyc-tokend')
  const line = `KYC_TOKEND_SOCKET=${shellWord(socket)} exec ${thisProgram().map(shellWord).join(' ')} "$@"`
  await writeFile(file, `#!/bin/sh\n${line}\n`, { mode: 0o755 })
  return file
}

function introduction(directory: string, command: string, { url }: Sandbox): string {
  const socket = join(directory, 'ipc.sock')
  return `kyc-tokend is running against a stand-in of the service, both in ${directory}.
Tokens live ${TOKEN_LIFETIME_MS / 1000} s here, so that you see them come and go. In another terminal:

  a token to use      ${command} token
  how it is           ${command} status
  the token file      cat ${join(directory, 'token')}
  over ipc.sock       printf '{"type":"token.get","data":{"id":"1"}}\\f' | socat -t2 - UNIX-CONNECT:${socket}
  over http.sock      curl --unix-socket ${join(directory, 'http.sock')} http://localhost/v1/token
  an outage           curl -X PUT -d outage ${url}/scenario
  an inactive account curl -X PUT -d account-inactive ${url}/scenario
  all well again      curl -X PUT -d ok ${url}/scenario; ${command} refresh

Ctrl-C ends it and removes everything. Events as they come:

`
}
