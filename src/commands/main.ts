// argv → one command → exit status.
import { write } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Commands, Invocation } from '../terminal/command.ts'
import { helpOf, parseCommandLine } from './command-line.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorCode, errorMessage, exitStatus, UserError } from '../lib/error.ts'
import { decideProgramName } from '../host/paths.ts'
import { stackOf } from '../lib/log.ts'
import { requireSupportedNode } from '../host/system.ts'

const STDERR = 2
/** The longest wait for stderr to take the error sentence, in ms. */
const LINGER_MS = 1_000

const stop = new AbortController()
/** The signal that stopped this process, if one did. */
let stoppedBy: NodeJS.Signals | undefined
let isReaderGone = false
/** The report of an output that cannot be written. */
let failing: Promise<void> | undefined
/** Opened at its first use: that takes time, and the daemon has no use for it. */
let stdout: NodeJS.WriteStream | undefined

/** Runs the command that the arguments name, and ends the process with its exit status. */
export async function start(commands: Commands): Promise<void> {
  // An error outside of the command's promise ends the program, too.
  process.on('uncaughtException', (thrown) => void fail(thrown).then(() => process.exit()))
  try {
    const status = await main(commands)
    process.exitCode ??= status
  } catch (error) {
    if (stoppedBy !== undefined && error === stop.signal.reason) process.kill(process.pid, stoppedBy)
    else if (!isReaderGone) await fail(error)
  }
  await new Promise<void>((resolve) => (stdout === undefined ? resolve() : stdout.write('', () => resolve())))
  // An error of the output is an event of its own, after that.
  await sleep(0)
  await failing
  process.exit()
}

async function main(commands: Commands): Promise<number> {
  requireSupportedNode()
  const words = process.argv.slice(2)
  // A person who names no command gets the help; a script learns from the status that it is wrong.
  if (words.length === 0) output().write(helpOf(undefined, commands))
  const parsed = parseCommandLine(words, commands)
  if (parsed.wants === 'command') {
    decideProgramName()
    const run = await parsed.spec.load()
    return run(invocationOf(parsed))
  }
  if (parsed.wants === 'help') output().write(helpOf(parsed.name, commands))
  else {
    const { default: program } = await import('../../package.json', { with: { type: 'json' } })
    const { node, openssl } = process.versions
    output().write(`kyc-tokend ${program.version} (Node ${node}, OpenSSL ${openssl})\n`)
  }
  return exitStatus.ok
}

/** The arguments of a command. Streams are opened and signals caught at the first use: that takes time. */
function invocationOf({ options, positionals }: Pick<Invocation, 'options' | 'positionals'>): Invocation {
  let isListening = false
  return {
    options,
    positionals,
    env: process.env,
    get stdin() {
      return process.stdin
    },
    get stdout() {
      return output()
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
  }
}

function onSignal(name: NodeJS.Signals): void {
  stoppedBy = name
  stop.abort()
}

function output(): NodeJS.WriteStream {
  stdout ??= process.stdout.on('error', onOutputError)
  return stdout
}

/** A reader that has seen enough is no error (`kyc-tokend watch | head -1`): the command's status counts. */
function onOutputError(error: Error): void {
  if (stop.signal.aborted) return
  if (errorCode(error) === 'EPIPE') isReaderGone = true
  else
    failing = fail(
      new UserError(`The output cannot be written (${errorMessage(error)}).`, exitStatus.internal),
    )
  stop.abort()
}

/**
 * One sentence on stderr, and the status; after that of an internal fault its stack. Resolves when it is written,
 * or after 1 s.
 */
async function fail(thrown: unknown): Promise<void> {
  const sentence = `kyc-tokend failed, and the fault is its own (${errorMessage(thrown)}): please report it.`
  const { status, message } =
    thrown instanceof UserError
      ? thrown
      : { status: exitStatus.internal, message: `${sentence}\n${stackOf(thrown)}` }
  process.exitCode = status
  const text = `${message.split('\n').map(escapeUnsafe).join('\n')}\n`
  // Not by process.stderr, which would block if it is a file on a disk that hangs.
  const written = new Promise<void>((resolve) => write(STDERR, text, () => resolve()))
  await Promise.race([written, sleep(LINGER_MS, undefined, { ref: false })])
}
