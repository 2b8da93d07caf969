// `kyc-tokend demo`: runs the stand-in of the service and a daemon in a temporary directory. At a terminal it shows the status
// as it changes, with keys for outages; elsewhere it prints what to try, and a line for each event.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ReadStream } from 'node:tty'
import { TokenClient } from '../client/index.ts'
import { createSystemClock } from '../lib/clock.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { requireLinux } from '../lib/supported-node.ts'
import { createSandbox, writeSandboxConfig, type Sandbox } from '../sandbox/sandbox.ts'
import type { ScenarioName } from '../sandbox/scenarios.ts'
import type { RunCommand } from './command.ts'
import { isTerminal } from './prompt.ts'
import { watchStatus } from './status.ts'

/** Short enough to see tokens come and go. */
const TOKEN_LIFETIME_MS = 30_000
const START_SECONDS = 30
const KEYS = 'o outage  i inactive account  k all well  r refresh  q end'
const SCENARIOS: Readonly<Record<string, ScenarioName>> = { o: 'outage', i: 'account-inactive', k: 'ok' }
const CTRL_C = '\u0003'

export const run: RunCommand = async (invocation) => {
  requireLinux()
  const { env, stdin, stdout, signal } = invocation
  const directory = await mkdtemp(join(tmpdir(), 'kyc-tokend-demo-'))
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
    const isShown = isTerminal(stdin) && isTerminal(stdout)
    const daemon = runDaemon(file, { env, signal: ended, isShown })
    const notes: string[] = []
    const footer = [KEYS, `All of it is in ${directory}`]
    const onKey = (key: string): void => {
      if (key === 'q' || key === CTRL_C) stop.abort()
      const scenario = SCENARIOS[key]
      if (scenario === undefined && key !== 'r') return
      if (scenario !== undefined) {
        sandbox.setScenario(scenario)
        notes.push(`the service from now on: ${scenario}`)
      }
      // The picture shows its result.
      client.refresh({ signal: ended }).catch(() => undefined)
    }
    if (isShown) listenToKeys(stdin as ReadStream, stop.signal, onKey)
    else stdout.write(introduction(directory, sandbox))
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

/** Runs the daemon as a process of its own. Resolves when the signal has ended it; rejects if it ends by itself. */
async function runDaemon(
  configFile: string,
  { env, signal, isShown }: { env: NodeJS.ProcessEnv; signal: AbortSignal; isShown: boolean },
): Promise<void> {
  const daemon = spawn(
    process.execPath,
    [...process.execArgv, process.argv[1] ?? '', 'run', '--config', configFile],
    // The picture has the events; the log would run through it.
    { env, stdio: ['ignore', 'ignore', isShown ? 'ignore' : 'inherit'], detached: true },
  )
  signal.addEventListener('abort', () => daemon.kill('SIGTERM'))
  const [code] = (await once(daemon, 'exit')) as [number | null]
  if (!signal.aborted)
    throw new UserError(`The daemon of the demo has ended (status ${String(code)}).`, exitStatus.internal)
}

/** Until the signal is aborted. */
async function show(client: TokenClient, options: Parameters<typeof watchStatus>[1]): Promise<void> {
  const { signal } = options
  // The daemon is just starting. The status says what keeps it from a token.
  await client.get({ waitSeconds: START_SECONDS, signal }).catch(() => undefined)
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

function introduction(directory: string, { url }: Sandbox): string {
  // The command as it is typed for the package, or in a checkout.
  const program = process.argv[1]?.startsWith('/usr/') === true ? 'kyc-tokend' : 'npx kyc-tokend'
  const socket = join(directory, 'ipc.sock')
  return `kyc-tokend is running against a stand-in of the service, both in ${directory}.
Tokens live ${TOKEN_LIFETIME_MS / 1000} s here, so that you see them come and go. In another terminal:

  the token file      cat ${join(directory, 'token')}
  over ipc.sock       printf '{"type":"token.get","data":{"id":"1"}}\\f' | socat -t2 - UNIX-CONNECT:${socket}
  over http.sock      curl --unix-socket ${join(directory, 'http.sock')} http://localhost/v1/token
  how it is           ${program} status --socket ${socket}
  a token to use      ${program} token --socket ${socket}
  an outage           curl -X PUT -d outage ${url}/scenario
  an inactive account curl -X PUT -d account-inactive ${url}/scenario
  all well again      curl -X PUT -d ok ${url}/scenario; ${program} refresh --socket ${socket}

Ctrl-C ends it and removes everything. Events as they come:

`
}
