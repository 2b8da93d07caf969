// argv → one command → exit status.
import { fstatSync, write } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { CommandSpec, Invocation } from './command.ts'
import { helpOf, parseCommandLine } from './command-line.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import {
  errorCode,
  errorMessage,
  exitStatus,
  UsageError,
  UserError,
  withSystemFallback,
} from '../lib/error.ts'
import type { DaemonSignals } from '../lib/daemon-signals.ts'
import { requireSupportedNode } from '../lib/supported-node.ts'

const STDERR = 2
/** The longest wait for stderr to take the error sentence, in ms. */
const LINGER_MS = 1_000
/** The interval in which it is checked whether the process ends by itself, in ms. */
const GRACE_MS = 500

const stop = new AbortController()
/** The signal that stopped us, if one did. */
let stoppedBy: NodeJS.Signals | undefined
let isReaderGone = false
/** Undefined: the command is not `run`. */
let daemonSignals: DaemonSignals | undefined

async function main(commands: readonly CommandSpec[]): Promise<number> {
  requireSupportedNode()
  const parsed = parseCommandLine(process.argv.slice(2), commands)
  if (parsed.wants === 'command') {
    const { run } = await parsed.spec.load()
    return run(invocationOf(parsed.options, parsed.positionals))
  }
  guardOutput()
  if (parsed.wants === 'help') process.stdout.write(helpOf(parsed.spec, commands))
  else {
    const { default: program } = await import('../../package.json', { with: { type: 'json' } })
    const { node, openssl } = process.versions
    process.stdout.write(`kyc-tokend ${program.version} (Node ${node}, OpenSSL ${openssl})\n`)
  }
  return exitStatus.ok
}

/** The arguments of a command. Streams are opened and signals caught at the first use, because that takes time. */
function invocationOf(options: Record<string, string | boolean>, positionals: readonly string[]): Invocation {
  let isListening = false
  return {
    options,
    positionals,
    env: process.env,
    get stdin() {
      return process.stdin
    },
    get stdout() {
      return guardOutput()
    },
    get stderr() {
      return process.stderr
    },
    get signal() {
      if (!isListening)
        for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(name, onSignal)
      isListening = true
      return stop.signal
    },
    daemonSignals,
  }
}

function onSignal(name: NodeJS.Signals): void {
  stoppedBy = name
  stop.abort()
}

/** A reader that has seen enough is no error: `kyc-tokend watch | head -1`. What the command then returns counts. */
function guardOutput(): NodeJS.WriteStream {
  if (process.stdout.listenerCount('error') === 0) process.stdout.on('error', onOutputError)
  return process.stdout
}

function onOutputError(error: Error): void {
  if (errorCode(error) === 'EPIPE') isReaderGone = true
  else void fail(new UserError(`The output cannot be written (${errorMessage(error)}).`, exitStatus.internal))
  stop.abort()
}

/** One sentence on stderr, and the status; never a stack trace. Resolves when it is written, or after 1 s. */
async function fail(thrown: unknown): Promise<void> {
  const own = `kyc-tokend failed, and the fault is its own (${errorMessage(thrown)}): please report it.`
  const { status, lines } =
    thrown instanceof UserError ? thrown : { status: exitStatus.internal, lines: [own] }
  process.exitCode = status
  const written = say(`${lines.map(escapeUnsafe).join('\n')}\n`)
  await Promise.race([written, sleep(LINGER_MS, undefined, { ref: false })])
}

/** Resolves when stderr has taken the text, or cannot. */
function say(text: string): Promise<void> {
  return new Promise((resolve) => {
    // Node's own stream to a file would block if its disk hangs.
    if (withSystemFallback(false, () => fstatSync(STDERR).isFile()))
      return write(STDERR, text, () => resolve())
    process.stderr.on('error', () => resolve())
    process.stderr.write(text, () => resolve())
  })
}

/** The error with the name that was probably meant, or with the command that lists the names. */
async function withNearest(error: UsageError): Promise<UsageError> {
  const { mistake } = error
  if (mistake === undefined) return error
  const { nearestName } = await import('../config/nearest.ts')
  const nearest = nearestName(mistake.typed, mistake.names)
  const help = `\`kyc-tokend ${mistake.of === undefined ? '' : `${mistake.of} `}--help\` lists them.`
  const remedy = nearest === undefined ? help : `did you mean ${nearest}?`
  return new UsageError(`${error.message}: ${remedy}`)
}

/** An error outside of the command's promise ends the program, too, even if its sentence is not read. */
async function crash(thrown: unknown): Promise<void> {
  await fail(thrown)
  await endDaemon()
  process.exit()
}
process.on('uncaughtException', (thrown) => void crash(thrown))

/** The daemon has written all it has to say. At an ordinary end koffi would sync stderr, which may be on a disk that hangs. */
async function endDaemon(): Promise<void> {
  if (daemonSignals !== undefined) await endNow()
}

/**
 * Ends the process if only name look-ups or calls to a disk are still under way after the command. Look-ups take half a minute
 * if no DNS server answers, and a disk that hangs takes for ever; Node waits for both, even in `process.exit`.
 */
async function endIfOnlyUncancellable(): Promise<void> {
  const isUncancellable = (type: string): boolean => type === 'GetAddrInfoReqWrap' || type.startsWith('FSReq')
  if (!process.getActiveResourcesInfo().some(isUncancellable)) return
  if (process.stdout.writableLength > 0 || process.stderr.writableLength > 0) return
  await endNow()
}

/** Ends the process at once, with `process.exitCode`. Without koffi it ends as soon as nothing is under way. */
async function endNow(): Promise<void> {
  const { loadLibc } = await import('../lib/libc.ts')
  try {
    loadLibc().exitNow(Number(process.exitCode ?? 0))
  } catch (error) {
    if (!(error instanceof UserError)) throw error
  }
}

/** Runs the command that the arguments name, and sets the exit status. */
export async function start(commands: readonly CommandSpec[], early?: DaemonSignals): Promise<void> {
  daemonSignals = early
  try {
    const status = await main(commands)
    process.exitCode ??= status
  } catch (error) {
    const isStopped = stoppedBy !== undefined && error === stop.signal.reason
    if (isStopped) process.kill(process.pid, stoppedBy)
    else if (!isReaderGone) await fail(error instanceof UsageError ? await withNearest(error) : error)
  }
  await endDaemon()
  setInterval(() => void endIfOnlyUncancellable(), GRACE_MS).unref()
}
