// `kyc-tokend demo`: runs the stand-in of the service and a daemon in a temporary directory. At a terminal it shows the status
// as it changes, with keys for outages; elsewhere it prints what to try, and a line for each event.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ReadStream } from 'node:tty'
import { TokenClient } from '../client/index.ts'
import { createSystemClock } from '../lib/clock.ts'
import { errorMessage, exitStatus, UserError } from '../lib/error.ts'
import { shellWord } from '../lib/remedy.ts'
import { requireLinux } from '../lib/supported-node.ts'
import { createSandbox, writeSandboxConfig, type Sandbox } from '../sandbox/sandbox.ts'
import type { ScenarioName } from '../sandbox/scenarios.ts'
import type { RunCommand } from './command.ts'
import { isTerminal } from './prompt.ts'
import { canPaint, watchStatus, type Event } from './watch-status.ts'

/** Short enough to see tokens come and go. */
const TOKEN_LIFETIME_MS = 30_000
const START_LOOK_MS = 50
const KEYS = ['o outage', 'i inactive account', 'k all well', 'r refresh', 'q end']
const SCENARIOS: Readonly<Record<string, ScenarioName>> = { o: 'outage', i: 'account-inactive', k: 'ok' }
const CTRL_C = '\u0003'
/** Runs a program until it ends, or until the standard input does: then the demo has ended, however it did. */
const UNTIL_INPUT_ENDS = `exec 3<&0
"$@" 3<&- </dev/null & program=$!
{ cat <&3 >/dev/null; kill "$program" 2>/dev/null; } &
wait "$program"`

export const run: RunCommand = async (invocation) => {
  requireLinux()
  const { env, stdin, stdout, signal } = invocation
  const directory = await mkdtemp(join(tmpdir(), 'kyc-demo-')).catch((cause: unknown) => {
    const message = `The demo cannot make its directory (${errorMessage(cause)}): set TMPDIR to one that you may write in.`
    throw new UserError(message, exitStatus.unavailable, { cause })
  })
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
    const file = await writeSandboxConfig(directory, sandbox.url)
    const command = await writeCommand(directory, socket)
    const isShown = isTerminal(stdin) && canPaint(invocation)
    const daemon = runDaemon(file, { env, signal: ended, isShown })
    const notes: Event[] = []
    const footer = (columns: number): string[] => [
      ...packed(KEYS, columns),
      ...packed(['A token, in another terminal:', `${command} token`], columns),
    ]
    const onKey = (key: string): void => {
      if (key === 'q' || key === CTRL_C) stop.abort()
      const scenario = SCENARIOS[key]
      if (scenario === undefined && key !== 'r') return
      if (scenario !== undefined) {
        sandbox.setScenario(scenario)
        notes.push({ text: `the service from now on: ${scenario}`, at: new Date().toISOString() })
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

/**
 * Runs the daemon as a process of its own, which ends with this one. Resolves when the signal has ended it; rejects if it
 * ends by itself.
 */
async function runDaemon(
  configFile: string,
  { env, signal, isShown }: { env: NodeJS.ProcessEnv; signal: AbortSignal; isShown: boolean },
): Promise<void> {
  const daemon = spawn('sh', ['-c', UNTIL_INPUT_ENDS, 'sh', ...program(), 'run', '--config', configFile], {
    env,
    // The picture has the events; the log would run through it.
    stdio: ['pipe', 'ignore', isShown ? 'ignore' : 'inherit'],
    detached: true,
  })
  signal.addEventListener('abort', () => daemon.stdin.end())
  const [code] = (await once(daemon, 'exit')) as [number | null]
  if (!signal.aborted)
    throw new UserError(`The daemon of the demo has ended (status ${String(code)}).`, exitStatus.internal)
}

/** Until the signal is aborted. */
async function show(client: TokenClient, options: Parameters<typeof watchStatus>[1]): Promise<void> {
  const { signal } = options
  const isThere = (): Promise<boolean> =>
    client.status().then(
      () => true,
      () => false,
    )
  while (!signal.aborted && !(await isThere()))
    await sleep(START_LOOK_MS, undefined, { signal }).catch(() => undefined)
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

/** The program of this process, as words. */
const program = (): string[] => [process.execPath, ...process.execArgv, resolve(process.argv[1] ?? '')]

/** Writes a command that is this program for this daemon, whichever Node is in PATH, and returns its path. */
async function writeCommand(directory: string, socket: string): Promise<string> {
  const file = join(directory, 'kyc-tokend')
  const line = `KYC_TOKEND_SOCKET=${shellWord(socket)} exec ${program().map(shellWord).join(' ')} "$@"`
  await writeFile(file, `#!/bin/sh\n${line}\n`, { mode: 0o755 })
  return file
}

/** The texts in as few lines of at most so many columns as they take; a longer text is a line. */
function packed(texts: readonly string[], columns: number): string[] {
  const [first = '', ...others] = texts
  const lines = [first]
  for (const text of others) {
    const line = `${lines.at(-1)}  ${text}`
    if (line.length > columns) lines.push(text)
    else lines[lines.length - 1] = line
  }
  return lines
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
