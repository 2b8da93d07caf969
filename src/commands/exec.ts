// exec: becomes another command that has the token in its environment, or supervises it (--on-change).
import { constants as os } from 'node:os'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorCode, errorMessage, UsageError } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'
import { countListenFds } from '../lib/socket-activation.ts'
import { askToken, secondsOf } from '../terminal/ask.ts'
import type { RunCommand, Invocation } from '../terminal/command.ts'
import { supervise, type Changes } from './supervise.ts'

/** Exit statuses of a shell for a command that cannot be run, and for one that is not there (POSIX). */
const CANNOT_RUN = 126
const NOT_FOUND = 127
/** A name that a shell can read (POSIX, 3.216). */
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/
const MAX_SECONDS = 86_400
/** Before the names of Node's settings, which /usr/bin/kyc-tokend takes away from this program. */
const OF_CALLER = 'KYC_TOKEND_CALLER_'

export const run: RunCommand = async (invocation) => {
  const { positionals, options, env, stderr } = invocation
  const [command, ...args] = positionals
  if (command === undefined || command === '')
    throw new UsageError('exec needs a command: kyc-tokend exec -- CMD …')
  const changes = changesOf(invocation)
  const variable = String(options['env'] ?? 'KYC_ACCESS_TOKEN')
  if (!VARIABLE.test(variable))
    throw new UsageError(
      '--env takes the name of a variable: letters, digits and _, and no digit at its beginning.',
    )
  const argv = [command, ...args] as const
  try {
    const executed = { argv, variable, env: callersOwn(env) }
    if (changes !== undefined) return await supervise(invocation, executed, changes)
    const { accessToken } = await askToken(invocation)
    return loadLibc().replaceProcess(argv, { ...executed.env, [variable]: accessToken })
  } catch (error) {
    const code = errorCode(error)
    if (code === undefined) throw error
    stderr.write(`kyc-tokend: ${escapeUnsafe(`${command} cannot be run (${errorMessage(error)})`)}.\n`)
    // Or the interpreter of a script does not exist.
    return code === 'ENOENT' ? NOT_FOUND : CANNOT_RUN
  }
}

/** The environment as the caller has made it. */
function callersOwn(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const settings = Object.entries(env).map(([name, value]) => [
    name.startsWith(OF_CALLER) ? name.slice(OF_CALLER.length) : name,
    value,
  ])
  return Object.fromEntries(settings) as NodeJS.ProcessEnv
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
