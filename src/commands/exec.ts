// exec: becomes another command that has the token in its environment, or supervises it (--on-change).
import { accessSync, constants, statSync } from 'node:fs'
import { join } from 'node:path'
import { constants as os } from 'node:os'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorCode, errorMessage, UsageError } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'
import { countListenFds } from '../lib/socket-activation.ts'
import { askToken, secondsOf } from './ask.ts'
import type { RunCommand, Invocation } from './command.ts'
import { supervise, type Changes } from './supervise.ts'

/** Exit statuses of a shell for a command that cannot be run, and for one that is not there (POSIX). */
const CANNOT_RUN = 126
const NOT_FOUND = 127
/** The search path if PATH is unset, as in execvp(3). */
const DEFAULT_PATH = '/bin:/usr/bin'
/** A name that a shell can read (POSIX, 3.216). */
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/
const MAX_SECONDS = 86_400

export const run: RunCommand = async (invocation) => {
  const [command, ...args] = invocation.positionals
  if (command === undefined || command === '')
    throw new UsageError('exec needs a command: kyc-tokend exec -- CMD …')
  const changes = changesOf(invocation)
  const variable = String(invocation.options['env'] ?? 'KYC_ACCESS_TOKEN')
  if (!VARIABLE.test(variable))
    throw new UsageError(
      '--env takes the name of a variable: letters, digits and _, and no digit at its beginning.',
    )
  const found = findCommand(command, invocation.env)
  if (typeof found !== 'string') {
    invocation.stderr.write(`kyc-tokend: ${escapeUnsafe(command)}: ${found.why}\n`)
    return found.status
  }
  try {
    const argv = [command, ...args] as const
    if (changes !== undefined) return await supervise(invocation, { path: found, argv, variable }, changes)
    const { accessToken } = await askToken(invocation)
    become(found, argv, { ...invocation.env, [variable]: accessToken })
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    const message = escapeUnsafe(`${command} cannot be run (${errorMessage(error)})`)
    invocation.stderr.write(`kyc-tokend: ${message}.\n`)
    // The interpreter of a script does not exist.
    if (errorCode(error) === 'ENOENT') return NOT_FOUND
  }
  return CANNOT_RUN
}

function become(path: string, argv: readonly string[], env: NodeJS.ProcessEnv): void {
  try {
    loadLibc().replaceProcess(path, argv, env)
  } catch (error) {
    if (errorCode(error) !== 'ENOEXEC') throw error
    // The shell runs a script without a first line that says what runs it, and refuses other files.
    loadLibc().replaceProcess('/bin/sh', ['sh', '-c', 'exec "$0" "$@"', path, ...argv.slice(1)], env)
  }
}

/** The file of a command, or why it cannot be run: found out before the token is awaited. */
function findCommand(command: string, env: NodeJS.ProcessEnv): string | { status: number; why: string } {
  const candidates = command.includes('/')
    ? [command]
    : (env['PATH'] ?? DEFAULT_PATH).split(':').map((directory) => join(directory, command))
  const reasons = candidates.map(whyNotRun)
  const runnable = candidates[reasons.indexOf(undefined)]
  if (runnable !== undefined) return runnable
  return reasons.includes('EACCES')
    ? { status: CANNOT_RUN, why: 'may not be run; give it the permission with chmod +x.' }
    : { status: NOT_FOUND, why: 'not found; check its name and PATH.' }
}

function whyNotRun(path: string): string | undefined {
  try {
    if (!statSync(path).isFile()) return 'EACCES'
    accessSync(path, constants.X_OK)
    return undefined
  } catch (error) {
    return errorCode(error)
  }
}

/** The options of --on-change; undefined: this process becomes the command. Throws UsageError (64). */
function changesOf(invocation: Invocation): Changes | undefined {
  const { options, env } = invocation
  const onChange = options['on-change']
  const msOf = (option: string, otherwise: number): number =>
    (secondsOf(invocation, option, MAX_SECONDS) ?? otherwise) * 1_000
  const times = {
    stopSignal: signalOf('stop-signal', options['stop-signal'] ?? 'TERM', ''),
    splayMs: msOf('splay', 0),
    stopTimeoutMs: msOf('stop-timeout', 10),
    minBetweenMs: msOf('min-between', 30),
  }
  if (onChange === undefined || onChange === 'none') return undefined
  if (countListenFds(env, process.pid) > 0)
    throw new UsageError(
      'exec cannot hand over the sockets of LISTEN_FDS with --on-change: leave the option out, or ' +
        'run the command without socket activation.',
    )
  const action = onChange === 'restart' ? 'restart' : signalOf('on-change', onChange, 'none, restart or ')
  return { action, ...times }
}

function signalOf(option: string, name: string | boolean, others: string): NodeJS.Signals {
  const signal = [`SIG${name}`, String(name)].find((known) => Object.hasOwn(os.signals, known))
  if (signal !== undefined) return signal as NodeJS.Signals
  throw new UsageError(`--${option} takes ${others}the name of a signal, such as HUP or TERM.`)
}
