// exec: becomes another command; or, with --on-change, runs the command and restarts or signals it when the token changes.
import { accessSync, constants, statSync } from 'node:fs'
import { join } from 'node:path'
import { spawn, type ChildProcess } from 'node:child_process'
import { constants as os } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorCode, errorMessage, UsageError } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'
import type { TokenResult } from '../client/index.ts'
import { countListenFds } from '../lib/socket-activation.ts'
import { monotonicMs } from '../lib/clock.ts'
import { afterFiles, askToken, openClient, secondsOf, withReason } from './ask.ts'
import type { RunCommand, Invocation } from './command.ts'

/** Exit statuses of a shell for a command that cannot be run, and for one that does not exist (POSIX, 2.8.2). */
const CANNOT_RUN = 126
const NOT_FOUND = 127
/** The search path if PATH is unset, as in execvp(3). */
const DEFAULT_PATH = '/bin:/usr/bin'

export const run: RunCommand = async (invocation) => {
  const [command, ...args] = invocation.positionals
  if (command === undefined || command === '')
    throw new UsageError('exec needs a command: kyc-tokend exec -- CMD …')
  const settings = settingsOf(invocation)
  const found = findCommand(command, invocation.env)
  if (typeof found !== 'string') {
    invocation.stderr.write(`kyc-tokend: ${escapeUnsafe(command)}: ${found.why}\n`)
    return found.status
  }
  try {
    const argv = [command, ...args] as const
    if (settings !== undefined) return await superviseCommand(invocation, { path: found, argv, settings })
    const { accessToken } = await askToken(invocation)
    become(found, argv, { ...invocation.env, KYC_ACCESS_TOKEN: accessToken })
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

interface Command {
  readonly path: string
  readonly argv: readonly [name: string, ...args: string[]]
  readonly settings: Settings
}

/** Added to the number of a signal, as a shell does. */
const SIGNALLED = 128
const FORWARDED = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR1', 'SIGUSR2', 'SIGWINCH'] as const
const MAX_SECONDS = 86_400
const POLL_MS = 50

type Settings = NonNullable<ReturnType<typeof settingsOf>>

/** The options of --on-change; undefined: this process becomes the command. Throws UsageError (64). */
function settingsOf(invocation: Invocation) {
  const { options, env } = invocation
  const onChange = options['on-change']
  if (onChange === undefined || onChange === 'none') return undefined
  if (countListenFds(env, process.pid) > 0)
    throw new UsageError(
      'exec cannot hand over the sockets of LISTEN_FDS with --on-change: leave the option out, or run the command without socket activation.',
    )
  const msOf = (option: string, otherwise: number): number =>
    secondsOf(invocation, option, { otherwise, max: MAX_SECONDS }) * 1_000
  return {
    /** `restart`, or the signal that the command gets instead. */
    onChange:
      onChange === 'restart' ? ('restart' as const) : signalOf('on-change', onChange, 'none, restart or '),
    stopSignal: signalOf('stop-signal', options['stop-signal'] ?? 'TERM', ''),
    splayMs: msOf('splay', 0),
    stopTimeoutMs: msOf('stop-timeout', 10),
    /** The shortest time from a start or a signal to the next one. */
    minBetweenMs: msOf('min-between', 30),
  }
}

function signalOf(option: string, name: string | boolean | undefined, others: string): NodeJS.Signals {
  const signal = [`SIG${name}`, String(name)].find((known) => Object.hasOwn(os.signals, known))
  if (signal !== undefined) return signal as NodeJS.Signals
  throw new UsageError(`--${option} takes ${others}the name of a signal, such as HUP or TERM.`)
}

/** Runs the command until it ends by itself or is ended, and resolves with the status for this process. */
async function superviseCommand(invocation: Invocation, command: Command): Promise<number> {
  process.title = 'kyc-tokend'
  let onSignal = (name: NodeJS.Signals): void => {
    if (name === 'SIGTERM' || name === 'SIGINT' || name === 'SIGHUP') waiting.abort(name)
  }
  for (const name of FORWARDED) process.on(name, () => onSignal(name))
  const waiting = new AbortController()
  let newest: TokenResult
  try {
    newest = await askToken(invocation, waiting.signal)
  } catch (error) {
    if (!waiting.signal.aborted) throw error
    return SIGNALLED + os.signals[waiting.signal.reason as NodeJS.Signals]
  }
  using client = openClient(invocation)
  const { ended, onToken, forward } = supervise(invocation, command, newest)
  onSignal = forward
  const onFault = async (fault: Error): Promise<void> => {
    const message = errorMessage(await withReason(fault, invocation))
    invocation.stderr.write(`kyc-tokend: ${escapeUnsafe(message)} The command keeps the token that it has.\n`)
  }
  client.subscribe(
    (token) => {
      newest = token
      if (command.settings.onChange === 'restart') onToken(token)
      else void afterFiles(client, token.obtainedAt).then(() => newest === token && onToken(token))
    },
    { onFault: (fault) => void (fault !== null && onFault(fault)) },
  )
  return await ended
}

/** Starts the command, and signals or restarts it for other tokens. */
function supervise({ env, stderr }: Invocation, { path, argv, settings }: Command, token: TokenResult) {
  const { promise: ended, resolve, reject } = Promise.withResolvers<number>()
  const libc = loadLibc()
  let child: ChildProcess | undefined
  /** `stopping`: to be started again; `ending`: not to be started again. */
  let phase: 'running' | 'stopping' | 'ending' = 'running'
  let newest = token
  /** Fingerprint of the token with which the command was started or signalled, and the time of that. */
  let known: string
  let actedAtMs: number
  /** The timer until the command is signalled or stopped; while it stops, until it is killed. */
  let timer: NodeJS.Timeout | undefined

  function onToken(next: TokenResult): void {
    newest = next
    if (phase !== 'running') return
    // The former token is back, and the command still has it.
    if (next.fingerprint === known) return cancel()
    const waitMs = Math.max(
      settings.splayMs * Math.random(),
      actedAtMs + settings.minBetweenMs - monotonicMs(),
    )
    timer ??= setTimeout(act, waitMs)
  }

  function act(): void {
    timer = undefined
    if (settings.onChange === 'restart') {
      phase = 'stopping'
      timer = setTimeout(() => {
        timer = undefined
        send('SIGKILL')
      }, settings.stopTimeoutMs)
      send(settings.stopSignal)
    } else {
      noteAct()
      send(settings.onChange)
    }
  }

  function cancel(): void {
    clearTimeout(timer)
    timer = undefined
  }

  function noteAct(): void {
    known = newest.fingerprint
    actedAtMs = monotonicMs()
  }

  function start(): void {
    phase = 'running'
    noteAct()
    const [argv0, ...args] = argv
    child = spawn(path, args, {
      argv0,
      env: { ...env, KYC_ACCESS_TOKEN: newest.accessToken },
      stdio: 'inherit',
      // A process group of its own.
      detached: true,
    })
    child.once('error', reject)
    child.once('exit', (code, signal) => {
      onExit(code ?? SIGNALLED + os.signals[signal!]).catch(reject)
    })
  }

  async function onExit(status: number): Promise<void> {
    reapOrphans()
    // When a command is stopped, its other processes have the same time to end.
    const isWaiting = (): boolean => phase === 'stopping' && timer !== undefined && send(0)
    while (isWaiting()) await sleep(POLL_MS)
    cancel()
    if (phase === 'stopping') start()
    else resolve(status)
  }

  /** The command is not started again. A stop that has begun keeps its timeout. */
  function end(): void {
    if (phase === 'running') cancel()
    phase = 'ending'
  }

  /** Sends the signal to the process group of the command; false if that has no process left. */
  function send(signal: NodeJS.Signals | 0): boolean {
    if (child?.pid === undefined) return false
    try {
      return process.kill(-child.pid, signal)
    } catch (error) {
      if (errorCode(error) === 'ESRCH') return false
      const sentence = `${argv[0]} does not get ${signal} (${errorMessage(error)})`
      if (signal !== 0) stderr.write(`kyc-tokend: ${escapeUnsafe(sentence)}.\n`)
      return true
    }
  }

  /** PID 1 inherits the orphans of its container; Node reaps the command alone. */
  function reapOrphans(): void {
    if (process.pid !== 1) return
    const isRunning = child?.exitCode === null && child.signalCode === null
    libc.reapOrphans(isRunning ? child?.pid : undefined)
  }

  libc.closeOnExec()
  process.on('SIGCHLD', reapOrphans)
  start()
  return {
    /** Resolves with the status of the command when it has ended; rejects if it cannot be run. */
    ended,
    onToken,
    /** Passes a signal for this process on. */
    forward: (name: NodeJS.Signals): void => {
      send(name)
      if (name === 'SIGTERM' || (name === 'SIGINT' && phase === 'stopping')) end()
    },
  }
}
