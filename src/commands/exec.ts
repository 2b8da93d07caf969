// exec: becomes another command that has the token in its environment.
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorCode, errorMessage, UsageError } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'
import { askToken } from '../terminal/ask.ts'
import type { RunCommand } from '../terminal/command.ts'

/** Exit statuses of a shell for a command that cannot be run, and for one that is not there (POSIX). */
const CANNOT_RUN = 126
const NOT_FOUND = 127
/** A name that a shell can read (POSIX, 3.216). */
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/
/** Before the names of Node's settings, which /usr/bin/kyc-tokend takes away from this program. */
const OF_CALLER = 'KYC_TOKEND_CALLER_'

export const exec: RunCommand = async (invocation) => {
  const { positionals, options, env, stderr } = invocation
  const [command, ...args] = positionals
  if (command === undefined || command === '')
    throw new UsageError('exec needs a command: kyc-tokend exec -- CMD …')
  const variable = String(options['env'] ?? 'KYC_ACCESS_TOKEN')
  if (!VARIABLE.test(variable))
    throw new UsageError(
      '--env takes the name of a variable: letters, digits and _, and no digit at its beginning.',
    )
  const { accessToken } = await askToken(invocation)
  try {
    return loadLibc().replaceProcess([command, ...args], { ...callersOwn(env), [variable]: accessToken })
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
