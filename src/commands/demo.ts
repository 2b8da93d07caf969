// `kyc-tokend demo`: the stand-in of the service and a daemon together in a temporary directory, with what to try.
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import type { ReadStream } from 'node:tty'
import { TokenClient } from '../client/index.ts'
import { untilAborted } from '../lib/abort.ts'
import { createSystemClock } from '../lib/clock.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { createSandbox, type Sandbox } from '../sandbox/sandbox.ts'
import { writeSandboxConfig } from '../sandbox/sandbox-config.ts'
import { requireLinux } from '../lib/require-linux.ts'
import type { RunCommand } from './command.ts'
import { showDemo } from './demo-screen.ts'
import { isTerminal } from './prompt.ts'

/** Short enough to see tokens come and go. */
const TOKEN_LIFETIME_MS = 30_000

export const run: RunCommand = async ({ env, stdin, stdout, signal }) => {
  requireLinux()
  const directory = await mkdtemp(join(tmpdir(), 'kyc-tokend-demo-'))
  const stop = new AbortController()
  const onAbort = (): void => stop.abort()
  signal.addEventListener('abort', onAbort)
  try {
    const sandbox = await createSandbox({
      port: 0,
      scenario: 'ok',
      tokenLifetimeMs: TOKEN_LIFETIME_MS,
      clock: createSystemClock(),
    })
    const serving = sandbox.run(stop.signal)
    const file = await writeSandboxConfig(directory, { url: sandbox.url, logLevel: 'warning' })
    const isShown = isTerminal(stdin) && isTerminal(stdout)
    const daemon = startDaemon(file, { env, signal: stop.signal, isShown })
    const socketPath = join(directory, 'ipc.sock')
    if (!isShown) stdout.write(introduction(directory, sandbox))
    const showing = isShown
      ? showDemo({ socketPath, sandbox, directory, stdin: stdin as ReadStream, stdout, env }, stop)
      : printTokens(socketPath, { stdout, signal: stop.signal })
    await Promise.race([showing, daemon])
    stop.abort()
    await Promise.all([serving, daemon])
    return exitStatus.ok
  } finally {
    stop.abort()
    await rm(directory, { recursive: true, force: true })
  }
}

/** A process of its own, as in real life. Resolves when it has ended in order; rejects where it ends otherwise. */
async function startDaemon(
  configFile: string,
  { env, signal, isShown }: { env: NodeJS.ProcessEnv; signal: AbortSignal; isShown: boolean },
): Promise<void> {
  const daemon: ChildProcess = spawn(
    process.execPath,
    [...process.execArgv, process.argv[1] ?? '', 'run', '--config', configFile],
    // The picture has the events; the log would run through it.
    { env, stdio: ['ignore', 'ignore', isShown ? 'ignore' : 'inherit'], detached: true },
  )
  const stopDaemon = (): void => void daemon.kill('SIGTERM')
  signal.addEventListener('abort', stopDaemon)
  const [code] = (await once(daemon, 'exit')) as [number | null]
  signal.removeEventListener('abort', stopDaemon)
  if (!signal.aborted) {
    throw new UserError(`The daemon of the demo has ended (status ${String(code)}).`, exitStatus.internal)
  }
}

/** Prints each new token: its name and its times, never the token itself. */
async function printTokens(
  socketPath: string,
  { stdout, signal }: { stdout: NodeJS.WritableStream; signal: AbortSignal },
): Promise<void> {
  const client = new TokenClient({ socketPath, name: 'demo' })
  const end = client.subscribe(({ generation, fingerprint, state, expiresAt }) => {
    const clock = (instant: Date): string => instant.toTimeString().slice(0, 8)
    stdout.write(
      `${clock(new Date())}  token ${generation} (${fingerprint}) is good until ${clock(new Date(expiresAt))}, state ${state}\n`,
    )
  })
  await untilAborted(signal)
  end()
  client.close()
}

function introduction(directory: string, { url }: Sandbox): string {
  const program = programWords()
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

Ctrl-C ends it and removes everything. Tokens as they come:

`
}

/** The command line of the program. Only the Node of this process runs the source; it may not be the first in the PATH. */
function programWords(): string {
  const file = process.argv[1] ?? ''
  if (file.endsWith('.ts'))
    return [process.execPath, file].map((path) => relative(process.cwd(), path)).join(' ')
  return file.startsWith('/usr/') ? 'kyc-tokend' : 'npx kyc-tokend'
}
