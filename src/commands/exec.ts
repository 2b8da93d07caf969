// exec: becomes another command, or stays as its parent, with the token in its environment.
import { accessSync, constants, statSync } from 'node:fs'
import { join } from 'node:path'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorCode, errorMessage, UsageError } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'
import { askToken } from './ask.ts'
import type { RunCommand } from './command.ts'

/** Exit statuses of a shell for a command that is there but cannot be run, and for one that is not there (POSIX, 2.8.2). */
const CANNOT_RUN = 126
const NOT_FOUND = 127
/** The search path if PATH is unset, as in execvp(3). */
const DEFAULT_PATH = '/bin:/usr/bin'

export const run: RunCommand = async (invocation) => {
  const [command, ...args] = invocation.positionals
  if (command === undefined || command === '')
    throw new UsageError('exec needs a command: kyc-tokend exec -- CMD …')
  const parent = invocation.options['on-change'] === undefined ? undefined : await import('./exec-parent.ts')
  const settings = parent?.settingsOf(invocation)
  const found = findCommand(command, invocation.env)
  if (typeof found !== 'string') {
    invocation.stderr.write(`kyc-tokend: ${escapeUnsafe(command)}: ${found.why}\n`)
    return found.status
  }
  try {
    if (parent !== undefined && settings !== undefined)
      return await parent.superviseCommand(invocation, { path: found, argv: [command, ...args], settings })
    const { accessToken } = await askToken(invocation)
    become(found, [command, ...args], { ...invocation.env, KYC_ACCESS_TOKEN: accessToken })
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    const message = escapeUnsafe(`${command} cannot be run (${errorMessage(error)})`)
    invocation.stderr.write(`kyc-tokend: ${message}.\n`)
  }
  return CANNOT_RUN
}

function become(path: string, argv: string[], env: NodeJS.ProcessEnv): void {
  try {
    loadLibc().replaceProcess(path, argv, env)
  } catch (error) {
    if (errorCode(error) !== 'ENOEXEC') throw error
    // A script without a first line that says what runs it is the shell's, as with execvp(3).
    loadLibc().replaceProcess('/bin/sh', ['sh', path, ...argv.slice(1)], env)
  }
}

/** The file that a command means, found before there is a token to wait for. */
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
