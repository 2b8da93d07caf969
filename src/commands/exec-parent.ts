// exec with --on-change: stays as the parent of the command, and restarts or signals it when the token changes.
import { spawn, type ChildProcess } from 'node:child_process'
import { constants } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { TokenClient, TokenResult } from '../client/index.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorCode, errorMessage, UsageError } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'
import { countListenFds } from '../lib/listen-fds.ts'
import { askToken, openClient, secondsOf } from './ask.ts'
import type { Invocation } from './command.ts'
import { monotonicMs } from '../lib/monotonic.ts'

export interface Command {
  readonly path: string
  readonly argv: readonly [name: string, ...args: string[]]
  readonly settings: SupervisionSettings
}

const CANNOT_RUN = 126
/** Added to the number of a signal, as a shell does. */
const SIGNALLED = 128
const FORWARDED = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR1', 'SIGUSR2', 'SIGWINCH'] as const
const MAX_SECONDS = 86_400
/** The longest wait for the token files before a signal, in ms. */
const FILES_MS = 5_000
const POLL_MS = 50

/** The options of a parent; undefined where none is wanted. Throws UsageError (64). */
export function settingsOf(invocation: Invocation): SupervisionSettings | undefined {
  const { options, env } = invocation
  const onChange = options['on-change']
  if (onChange === 'none') return undefined
  if (countListenFds(env, process.pid) > 0)
    throw new UsageError(
      'exec cannot hand over the sockets of LISTEN_FDS with --on-change: leave the option out, or run the command without socket activation.',
    )
  const msOf = (option: string, seconds: number): number =>
    secondsOf(invocation, { option, otherwise: seconds, max: MAX_SECONDS }) * 1_000
  return {
    onChange: onChange === 'restart' ? onChange : signalOf('on-change', onChange, 'none, restart or '),
    stopSignal: signalOf('stop-signal', options['stop-signal'] ?? 'TERM', ''),
    splayMs: msOf('splay', 0),
    stopTimeoutMs: msOf('stop-timeout', 10),
    minBetweenMs: msOf('min-between', 30),
  }
}

function signalOf(option: string, name: string | boolean | undefined, others: string): NodeJS.Signals {
  const signal = `SIG${String(name).replace(/^SIG/, '')}`
  if (Object.hasOwn(constants.signals, signal)) return signal as NodeJS.Signals
  throw new UsageError(`--${option} takes ${others}the name of a signal, such as HUP or TERM.`)
}

/** Runs the command until it ends by itself or is ended, and resolves with the status for this process. */
export async function superviseCommand(invocation: Invocation, command: Command): Promise<number> {
  process.title = 'kyc-tokend'
  let onSignal = (name: NodeJS.Signals): void => {
    if (name === 'SIGTERM' || name === 'SIGINT' || name === 'SIGHUP') waiting.abort(name)
  }
  for (const name of FORWARDED) process.on(name, () => onSignal(name))
  const waiting = new AbortController()
  let token: TokenResult
  try {
    token = await askToken(invocation, waiting.signal)
  } catch (error) {
    if (!waiting.signal.aborted) throw error
    return SIGNALLED + constants.signals[waiting.signal.reason as NodeJS.Signals]
  }
  const client = openClient(invocation)
  try {
    return await new Promise<number>((resolve) => {
      const supervisor = createSupervisor(invocation, { command, token, resolve })
      onSignal = supervisor.forward
      subscribe(client, { invocation, command, onToken: supervisor.onToken })
    })
  } finally {
    client.close()
  }
}

/** Passes tokens on; for a signal, each of them once the token files hold it. */
function subscribe(
  client: TokenClient,
  {
    invocation,
    command,
    onToken,
  }: { invocation: Invocation; command: Command; onToken: (token: TokenResult) => void },
): void {
  const isRestarted = command.settings.onChange === 'restart'
  let newest: TokenResult | undefined
  client.subscribe(
    (token) => {
      newest = token
      if (isRestarted) onToken(token)
      else void afterFiles(client, token).then(() => newest === token && onToken(token))
    },
    {
      onFault: ({ message }) =>
        invocation.stderr.write(
          `kyc-tokend: ${escapeUnsafe(message)} The command goes on with the token that it has.\n`,
        ),
    },
  )
}

/** Resolves once the daemon has written the token to its files, at the latest after 5 s; never rejects. */
async function afterFiles(client: TokenClient, { obtainedAt }: TokenResult): Promise<void> {
  const end = monotonicMs() + FILES_MS
  while (monotonicMs() < end) {
    try {
      const { files } = await client.status()
      const isWritten = files.every(
        ({ ok, writtenAt }) => !ok || (writtenAt !== null && Date.parse(writtenAt) >= Date.parse(obtainedAt)),
      )
      if (isWritten) return
    } catch {
      // The subscription reports that the daemon is away.
      return
    }
    await sleep(POLL_MS)
  }
}

interface Supervisor {
  readonly onToken: (token: TokenResult) => void
  /** Passes a signal to the command. */
  readonly forward: (name: NodeJS.Signals) => void
}

function createSupervisor(
  { env, stderr }: Invocation,
  {
    command: { path, argv, settings },
    token: first,
    resolve,
  }: { command: Command; token: TokenResult; resolve: (status: number) => void },
): Supervisor {
  const libc = loadLibc()
  let newest = first
  let state = startedWith(first.fingerprint, monotonicMs())
  let child: ChildProcess | undefined
  let status = 0
  let timer: NodeJS.Timeout | undefined

  function apply(event: SupervisionEvent): void {
    const nowMs = monotonicMs()
    const { state: next, action } = nextSupervision(state, event, {
      settings,
      nowMs,
      randomUnit: Math.random(),
    })
    state = next
    clearTimeout(timer)
    if (next.wakeAtMs !== undefined) timer = setTimeout(() => apply({ type: 'wake' }), next.wakeAtMs - nowMs)
    if (action !== undefined) actions[action]()
  }

  const actions: Readonly<Record<SupervisionAction, () => void>> = {
    start,
    signal: () => settings.onChange !== 'restart' && send(settings.onChange),
    stop: () => send(settings.stopSignal),
    kill: () => send('SIGKILL'),
    exit: () => resolve(status),
  }

  function start(): void {
    try {
      const [argv0, ...args] = argv
      child = spawn(path, args, {
        argv0,
        env: { ...env, KYC_ACCESS_TOKEN: newest.accessToken },
        stdio: 'inherit',
        // A process group of its own.
        detached: true,
      })
      child.once('error', cannotRun)
      child.once('exit', (code, signal) => {
        status = code ?? SIGNALLED + constants.signals[signal ?? 'SIGKILL']
        reapOrphans()
        void afterGroup().then(() => apply({ type: 'exited' }))
      })
    } catch (error) {
      cannotRun(error)
    }
  }

  function cannotRun(error: unknown): void {
    stderr.write(`kyc-tokend: ${escapeUnsafe(`${argv[0]} cannot be run (${errorMessage(error)})`)}.\n`)
    status = CANNOT_RUN
    apply({ type: 'end' })
    apply({ type: 'exited' })
  }

  /** Sends the signal to the process group of the command; false where that has no process left. */
  function send(signal: NodeJS.Signals | 0): boolean {
    if (child?.pid === undefined) return false
    try {
      return process.kill(-child.pid, signal)
    } catch (error) {
      if (errorCode(error) === 'ESRCH') return false
      if (signal !== 0)
        stderr.write(
          `kyc-tokend: ${escapeUnsafe(argv[0])} does not get ${signal} (${errorMessage(error)}).\n`,
        )
      return signal === 0
    }
  }

  /** While the command is stopped, also its other processes are waited for, until they are killed. */
  async function afterGroup(): Promise<void> {
    while (state.phase === 'stopping' && state.wakeAtMs !== undefined && send(0)) await sleep(POLL_MS)
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
    onToken(token) {
      newest = token
      apply({ type: 'token', fingerprint: token.fingerprint })
    },
    forward(name) {
      send(name)
      if (name === 'SIGTERM' || (name === 'SIGINT' && state.phase === 'stopping')) apply({ type: 'end' })
    },
  }
}

// ---- The decisions, without I/O: when the command is signalled, stopped, killed and started again. ----

export interface SupervisionSettings {
  readonly stopSignal: NodeJS.Signals
  /** `restart`, or the signal that the command gets instead. */
  readonly onChange: 'restart' | NodeJS.Signals
  readonly splayMs: number
  readonly stopTimeoutMs: number
  /** Shortest time from a start or a signal to the next one. */
  readonly minBetweenMs: number
}
export interface Supervision {
  /** `due`: the token has changed, and the command is signalled or stopped at `wakeAtMs`. `ending`: for good. */
  readonly phase: 'running' | 'due' | 'stopping' | 'ending' | 'ended'
  /** Fingerprint of the token with which the command was started or signalled. */
  readonly known: string
  readonly newest: string
  /** Time of the last start or signal. */
  readonly actedAtMs: number
  /** Time at which `wake` is to be sent. */
  readonly wakeAtMs?: number
}
export type SupervisionEvent =
  { readonly type: 'token'; readonly fingerprint: string } | { readonly type: 'wake' | 'exited' | 'end' }
export type SupervisionAction = 'signal' | 'stop' | 'kill' | 'start' | 'exit'
interface SupervisionStep {
  readonly state: Supervision
  readonly action?: SupervisionAction
}
interface Context {
  readonly settings: SupervisionSettings
  readonly nowMs: number
  /** A random number in [0, 1). */
  readonly randomUnit: number
}

/** The command was started with the token of this fingerprint. */
export function startedWith(fingerprint: string, nowMs: number): Supervision {
  return { phase: 'running', known: fingerprint, newest: fingerprint, actedAtMs: nowMs }
}

export function nextSupervision(
  state: Supervision,
  event: SupervisionEvent,
  context: Context,
): SupervisionStep {
  if (state.phase === 'ended') return { state }
  if (event.type === 'token') return { state: afterToken(state, event.fingerprint, context) }
  if (event.type === 'wake') return afterWake(state, context)
  if (event.type === 'end') return { state: ending(state) }
  return state.phase === 'stopping'
    ? { state: startedWith(state.newest, context.nowMs), action: 'start' }
    : { state: { ...withoutWake(state), phase: 'ended' }, action: 'exit' }
}

function afterToken(
  state: Supervision,
  newest: string,
  { settings, nowMs, randomUnit }: Context,
): Supervision {
  if (state.phase !== 'running' && state.phase !== 'due') return { ...state, newest }
  // The former token is back before anything was done.
  if (newest === state.known) return { ...withoutWake(state), phase: 'running', newest }
  if (state.phase === 'due') return { ...state, newest }
  const wakeAtMs = Math.max(nowMs + settings.splayMs * randomUnit, state.actedAtMs + settings.minBetweenMs)
  return { ...state, phase: 'due', newest, wakeAtMs }
}

function afterWake(state: Supervision, { settings, nowMs }: Context): SupervisionStep {
  // The stop timeout is over, also of a stop that became one for good.
  if (state.phase !== 'due') return { state: withoutWake(state), action: 'kill' }
  return settings.onChange === 'restart'
    ? { state: { ...state, phase: 'stopping', wakeAtMs: nowMs + settings.stopTimeoutMs }, action: 'stop' }
    : { state: startedWith(state.newest, nowMs), action: 'signal' }
}

/** A stop that has begun keeps its timeout. */
function ending(state: Supervision): Supervision {
  return { ...(state.phase === 'stopping' ? state : withoutWake(state)), phase: 'ending' }
}

function withoutWake({ phase, known, newest, actedAtMs }: Supervision): Supervision {
  return { phase, known, newest, actedAtMs }
}
