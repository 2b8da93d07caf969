// argv → one command → exit status.
import { write } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { CommandSpec, Invocation } from '../terminal/command.ts'
import { helpOf, parseCommandLine } from './command-line.ts'
import { FileError } from '../files/file-error.ts'
import { capitalized, escapeUnsafe } from '../lib/display-text.ts'
import { errorCode, errorMessage, exitStatus, UserError } from '../lib/error.ts'
import type { DaemonSignals } from '../daemon/daemon-signals.ts'
import { decideProgramName } from '../host/paths.ts'
import { stackOf } from '../lib/internal-fault.ts'
import { requireSupportedNode } from '../host/supported-node.ts'

const STDERR = 2
/** The longest wait for stderr to take the error sentence, in ms. */
const LINGER_MS = 1_000

const stop = new AbortController()
/** The signal that stopped us, if one did. */
let stoppedBy: NodeJS.Signals | undefined
let isOutputUsed = false
let isOutputFailed = false
let isReaderGone = false
/** Resolves once the sentence about an output that failed is written. */
let isReported = Promise.resolve()
/** Undefined: the command is not `run`. */
let daemonSignals: DaemonSignals | undefined

/** Runs the command that the arguments name, and sets the exit status. */
export async function start(commands: readonly CommandSpec[], early?: DaemonSignals): Promise<void> {
  daemonSignals = early
  process.on('uncaughtException', (thrown) => void crash(thrown))
  try {
    const status = await main(commands)
    process.exitCode ??= status
  } catch (error) {
    const isStopped = stoppedBy !== undefined && error === stop.signal.reason
    if (isStopped) process.kill(process.pid, stoppedBy)
    else if (!isReaderGone) await fail(error)
  }
  await outputWritten()
  await isReported
  await endIfStuck()
}

async function main(commands: readonly CommandSpec[]): Promise<number> {
  requireSupportedNode()
  const words = process.argv.slice(2)
  // Whoever names no command is helped; a script learns from the status and the sentence that it is wrong.
  if (words.length === 0) guardOutput().write(helpOf(undefined, commands))
  const parsed = parseCommandLine(words, commands)
  if (parsed.wants === 'command') {
    decideProgramName(process.env)
    const { run } = await parsed.spec.load()
    return run(invocationOf(parsed.options, parsed.positionals))
  }
  const stdout = guardOutput()
  if (parsed.wants === 'help') stdout.write(helpOf(parsed.spec, commands))
  else {
    const { default: program } = await import('../../package.json', { with: { type: 'json' } })
    const { node, openssl } = process.versions
    stdout.write(`kyc-tokend ${program.version} (Node ${node}, OpenSSL ${openssl})\n`)
  }
  return exitStatus.ok
}

/** The arguments of a command. Streams are opened and signals caught at the first use: that takes time. */
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

/** A reader that has seen enough is no error (`kyc-tokend watch | head -1`): the command's status counts. */
function guardOutput(): NodeJS.WriteStream {
  if (!isOutputUsed) process.stdout.on('error', onOutputError)
  isOutputUsed = true
  return process.stdout
}

/** Resolves when stdout has been written, or cannot be: then its error is known. */
async function outputWritten(): Promise<void> {
  if (isOutputUsed) await new Promise<void>((resolve) => process.stdout.write('', () => resolve()))
}

function onOutputError(error: Error): void {
  if (isOutputFailed) return
  isOutputFailed = true
  if (errorCode(error) === 'EPIPE') isReaderGone = true
  else
    isReported = fail(
      new UserError(`The output cannot be written (${errorMessage(error)}).`, exitStatus.internal),
    )
  stop.abort()
}

/**
 * One sentence on stderr, and the status; after that of an internal fault its stack. Resolves when it is written,
 * or after 1 s.
 */
async function fail(failure: unknown): Promise<void> {
  const thrown = failure instanceof FileError ? await inWords(failure) : failure
  const sentence = `kyc-tokend failed, and the fault is its own (${errorMessage(thrown)}): please report it.`
  const { status, lines } =
    thrown instanceof UserError
      ? thrown
      : { status: exitStatus.internal, lines: [sentence, ...stackOf(thrown).split('\n')] }
  process.exitCode = status
  const text = `${lines.map(escapeUnsafe).join('\n')}\n`
  // Not by process.stderr: to a file it would block if its disk hangs. That nobody reads it is no error.
  const written = new Promise<void>((resolve) => write(STDERR, text, () => resolve()))
  await Promise.race([written, sleep(LINGER_MS, undefined, { ref: false })])
}

/** Loaded for an error alone: the small program has no other use for it. */
async function inWords(error: FileError): Promise<UserError> {
  const { asUserError, fileRemedy } = await import('../host/file-remedy.ts')
  const { placeOf, rendered } = await import('../host/place-commands.ts')
  return asUserError(error, `${capitalized(rendered(fileRemedy(error, placeOf(process.env))))}.`)
}

/** An error outside of the command's promise ends the program, too, even if its sentence is not read. */
async function crash(thrown: unknown): Promise<void> {
  await fail(thrown)
  await outputWritten()
  await endIfStuck()
  process.exit()
}

/**
 * Ends the process with `process.exitCode` if name look-ups or calls to a disk are still under way after
 * the command: look-ups take half a minute if no DNS server answers, a disk that hangs takes for ever, and
 * Node waits for both, even in `process.exit`. The daemon is ended in any case, because koffi would sync
 * stderr, which may be on a disk that hangs. Without koffi the process ends as soon as nothing is under
 * way.
 */
async function endIfStuck(): Promise<void> {
  const isUncancellable = (type: string): boolean => type === 'GetAddrInfoReqWrap' || type.startsWith('FSReq')
  if (daemonSignals === undefined && !process.getActiveResourcesInfo().some(isUncancellable)) return
  const { loadLibc } = await import('../lib/libc.ts')
  try {
    loadLibc().exitNow(Number(process.exitCode ?? 0))
  } catch (error) {
    if (!(error instanceof UserError)) throw error
  }
}
