// `kyc-tokend demo`: runs the stand-in of the service and a daemon in a temporary directory, and prints commands
// to try. The daemon's log shows what happens.
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createSystemClock } from '../lib/clock.ts'
import { shellWord } from '../lib/display-text.ts'
import { errorCode, errorMessage, exitStatus, UserError } from '../lib/error.ts'
import { thisProgram } from '../host/paths.ts'
import { requireLinux } from '../host/supported-node.ts'
import { runDaemon } from '../daemon/run-daemon.ts'
import { createSandbox, sandboxCredentials, type Sandbox } from '../sandbox/sandbox.ts'
import type { RunCommand } from '../terminal/command.ts'

/** Short enough to see tokens come and go. */
const TOKEN_LIFETIME_MS = 30_000

export const run: RunCommand = async ({ env, stdout, stderr, signal }) => {
  requireLinux()
  const directory = await mkdtemp(join(tmpdir(), 'kyc-demo-')).catch(throwUnwritable)
  const stop = new AbortController()
  const ended = AbortSignal.any([signal, stop.signal])
  try {
    const sandbox = await createSandbox({
      port: 0,
      scenario: 'ok',
      tokenLifetimeMs: TOKEN_LIFETIME_MS,
      clock: createSystemClock(),
    })
    const serving = sandbox.run(ended)
    const configPath = await writeConfig(directory, sandbox.url).catch(throwUnwritable)
    const command = await writeCommand(directory).catch(throwUnwritable)
    stdout.write(introduction(directory, command, sandbox))
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
  const isFull = ['ENOSPC', 'EDQUOT'].includes(errorCode(cause) ?? '')
  const space = isFull ? `free some space in ${tmpdir()}, or ` : ''
  const problem = `The demo cannot write its directory (${errorMessage(cause)})`
  const message = `${problem}: ${space}set TMPDIR to one that you may write in.`
  throw new UserError(message, exitStatus.unavailable, { cause })
}

/** Writes a configuration for the stand-in into the directory of the sockets; returns its path. */
async function writeConfig(directory: string, baseUrl: string): Promise<string> {
  const file = join(directory, 'kyc-tokend.config.json')
  const directories = { runtimeDirectory: directory, stateDirectory: join(directory, 'state') }
  const log = { level: 'info', format: 'text' }
  const config = { baseUrl, credentials: sandboxCredentials, ...directories, log }
  await writeFile(file, JSON.stringify(config), { mode: 0o600 })
  return file
}

/** Writes a command that is this program for this daemon, whichever Node is in PATH, and returns its path. */
async function writeCommand(directory: string): Promise<string> {
  const file = join(directory, 'kyc-tokend')
  const socket = shellWord(join(directory, 'ipc.sock'))
  const line = `KYC_TOKEND_SOCKET=${socket} exec ${thisProgram().map(shellWord).join(' ')} "$@"`
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

Ctrl-C ends it and removes everything. The daemon's log:

`
}
