// exec --on-change: runs a command, and restarts or signals it at each new token, until it ends by itself.
import { spawn, type ChildProcess } from 'node:child_process'
import { constants as os } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { TokenResult } from '../client/index.ts'
import { monotonicMs } from '../lib/clock.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorCode, errorMessage } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'
import { afterFiles, askToken, openClient } from '../terminal/ask.ts'
import type { Invocation } from '../terminal/command.ts'

export interface Command {
  readonly argv: readonly [name: string, ...args: string[]]
  /** Its environment, but for the variable that has the token. */
  readonly env: NodeJS.ProcessEnv
  readonly variable: string
}
/** What to do at a change of the token. */
export interface Changes {
  /** `restart`, or the signal that the command gets instead. */
  readonly action: 'restart' | NodeJS.Signals
  readonly stopSignal: NodeJS.Signals
  /** Waits a random part of this time. */
  readonly splayMs: number
  /** From the stop signal to SIGKILL. */
  readonly stopTimeoutMs: number
  /** The shortest time from a start or a signal to the next one. */
  readonly minBetweenMs: number
}

/** Added to the number of a signal, as a shell does. */
const SIGNALLED = 128
const FORWARDED = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR1', 'SIGUSR2', 'SIGWINCH'] as const
/** Those that end the wait for the first token. */
const ENDING: ReadonlySet<NodeJS.Signals> = new Set(['SIGTERM', 'SIGINT', 'SIGHUP'])
const POLL_MS = 50

/** Resolves with the status for this process when the command has ended; rejects if it cannot be run. */
export async function supervise(invocation: Invocation, command: Command, changes: Changes): Promise<number> {
  process.title = 'kyc-tokend'
  const waiting = new AbortController()
  let onSignal = (name: NodeJS.Signals): void => {
    if (ENDING.has(name)) waiting.abort(name)
  }
  for (const name of FORWARDED) process.on(name, () => onSignal(name))
  let newest: TokenResult
  try {
    newest = await askToken(invocation, waiting.signal)
  } catch (error) {
    if (!waiting.signal.aborted) throw error
    return SIGNALLED + os.signals[waiting.signal.reason as NodeJS.Signals]
  }
  using client = openClient(invocation)
  const { ended, start, onToken, forward } = createSupervisor(invocation, { command, changes, token: newest })
  onSignal = forward
  start()
  client.subscribe(
    (token) => {
      newest = token
      if (changes.action === 'restart') onToken(token)
      else void afterFiles(client, token.obtainedAt).then(() => newest === token && onToken(token))
    },
    {
      onFault(fault) {
        const sentence = `${fault?.message} The command keeps the token that it has.`
        if (fault !== null) invocation.stderr.write(`kyc-tokend: ${escapeUnsafe(sentence)}\n`)
      },
    },
  )
  return await ended
}

/** Starts the command, and signals or restarts it for other tokens. This process has no other child. */
function createSupervisor(
  { stderr }: Invocation,
  { command, changes, token }: { command: Command; changes: Changes; token: TokenResult },
) {
  const { promise: ended, resolve, reject } = Promise.withResolvers<number>()
  const { argv, env, variable } = command
  const libc = loadLibc()
  let child: ChildProcess | undefined
  /** `stopping`: it has the stop signal; `killed`: and SIGKILL, after the stop timeout. */
  let phase: 'running' | 'stopping' | 'killed' = 'running'
  /** The command is not to be started again. */
  let isEnding = false
  let newest = token
  /** Fingerprint of the token with which the command was started or signalled, and the time of that. */
  let known: string
  let actedAtMs: number
  /** While it runs, the timer until it is signalled or stopped; while it stops, until it is killed. */
  let timer: NodeJS.Timeout | undefined

  function onToken(next: TokenResult): void {
    newest = next
    if (phase !== 'running' || isEnding) return
    // The former token is back, and the command still has it.
    if (next.fingerprint === known) return cancel()
    const untilAllowedMs = actedAtMs + changes.minBetweenMs - monotonicMs()
    timer ??= setTimeout(act, Math.max(changes.splayMs * Math.random(), untilAllowedMs))
  }

  function act(): void {
    timer = undefined
    if (changes.action === 'restart') stop()
    else {
      noteAct()
      send(changes.action)
    }
  }

  function stop(): void {
    phase = 'stopping'
    timer = setTimeout(() => {
      phase = 'killed'
      send('SIGKILL')
    }, changes.stopTimeoutMs)
    send(changes.stopSignal)
  }

  function cancel(): void {
    clearTimeout(timer)
    timer = undefined
  }

  function noteAct(): void {
    known = newest.fingerprint
    actedAtMs = monotonicMs()
  }

  function startCommand(): void {
    phase = 'running'
    noteAct()
    const [file, ...args] = argv
    child = spawn(file, args, {
      env: { ...env, [variable]: newest.accessToken },
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
    const othersMayEnd = (): boolean => phase === 'stopping' && !isEnding && send(0)
    while (othersMayEnd()) await sleep(POLL_MS)
    cancel()
    if (phase === 'running' || isEnding) resolve(status)
    else startCommand()
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

  function reapOrphans(): void {
    const isRunning = child?.exitCode === null && child.signalCode === null
    libc.reapOrphans(isRunning ? child?.pid : undefined)
  }

  return {
    ended,
    /** Call it once. */
    start: (): void => {
      libc.closeOnExec()
      // An ended process counts to its group until it is reaped, and PID 1 of a container may never do that.
      libc.adoptOrphans()
      process.on('SIGCHLD', reapOrphans)
      startCommand()
    },
    onToken,
    /** Passes a signal on. After TERM, and after INT while it stops, the command is not started again. */
    forward: (name: NodeJS.Signals): void => {
      send(name)
      if (name !== 'SIGTERM' && (name !== 'SIGINT' || phase === 'running')) return
      isEnding = true
      // A stop that has begun keeps its timeout.
      if (phase === 'running') cancel()
    },
  }
}
