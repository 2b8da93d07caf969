// The paths of this program, by user and environment: a daemon's directories, the candidates for its socket and its
// configuration, and the program itself, as a word that works where commands are pasted.
import { realpathSync } from 'node:fs'
import { userInfo } from 'node:os'
import { dirname, isAbsolute, join } from 'node:path'
import { shellWord } from '../lib/display-text.ts'
import { withSystemFallback } from '../lib/error.ts'

/** Identity of a process: the effective uid and the environment. */
export interface ProcessIdentity {
  readonly env: NodeJS.ProcessEnv
  readonly uid: number
}

export const SYSTEM_RUNTIME_DIRECTORY = '/run/kyc-tokend'
export const SYSTEM_STATE_DIRECTORY = '/var/lib/kyc-tokend'
export const SYSTEM_CONFIG_DIRECTORY = '/etc/kyc-tokend'
/** Files that the daemon writes into its directories, beside sockets and token files. */
export const OWN_FILES = {
  runtimeDirectory: { state: 'state.json', alert: 'alert.json' },
  stateDirectory: { state: 'state.json', key: 'key' },
} as const
/** The operator's command for alerts of all accounts. */
export const ALERT_COMMAND = join(SYSTEM_CONFIG_DIRECTORY, 'alert-command')
/** The user as whom the units run the daemon. */
export const SERVICE_USER = 'kyc-tokend'
/** Its members may use the sockets and read the token file. */
export const CLIENTS_GROUP = 'kyc-token'

/** The runtime directory of a daemon: systemd's, `/run/kyc-tokend` for root, the person's own otherwise. */
export function runtimeDirectoryOf({ env, uid }: ProcessIdentity): string {
  return firstOf(env['RUNTIME_DIRECTORY']) ?? ownRuntimeDirectory({ env, uid })
}

/** The state directory of a daemon: systemd's, `/var/lib/kyc-tokend` for root, the person's own otherwise. */
export function stateDirectoryOf({ env, uid }: ProcessIdentity): string {
  const ofSystemd = firstOf(env['STATE_DIRECTORY'])
  if (ofSystemd !== undefined) return ofSystemd
  if (uid === 0) return SYSTEM_STATE_DIRECTORY
  // A user without an entry in passwd has no home.
  const home = absolute(env['HOME']) ?? withSystemFallback('/', () => userInfo().homedir)
  return join(absolute(env['XDG_STATE_HOME']) ?? join(home, '.local', 'state'), 'kyc-tokend')
}

/** The sockets that a daemon opens itself, where systemd hands none over. */
export function ownSockets(runtimeDirectory: string): Readonly<Record<'ipc' | 'http', string>> {
  return { ipc: join(runtimeDirectory, 'ipc.sock'), http: join(runtimeDirectory, 'http.sock') }
}

/**
 * Paths at which a client tries the daemon's socket, in this order, without systemd's
 * `$RUNTIME_DIRECTORY`: in a client's unit it is the client's own.
 */
export function socketCandidates({ env, uid }: ProcessIdentity): string[] {
  const directories = new Set([SYSTEM_RUNTIME_DIRECTORY, ownRuntimeDirectory({ env, uid })])
  return [...directories].map((directory) => join(directory, 'ipc.sock'))
}

/**
 * Directories in which a configuration is searched for, in this order. A unit, and root, use only what root
 * installed.
 */
export function configDirectories({ env, uid }: ProcessIdentity, workingDirectory: string): string[] {
  const isService = firstOf(env['RUNTIME_DIRECTORY']) !== undefined
  return isService || uid === 0 ? [SYSTEM_CONFIG_DIRECTORY] : [workingDirectory, SYSTEM_CONFIG_DIRECTORY]
}

function ownRuntimeDirectory({ env, uid }: ProcessIdentity): string {
  if (uid === 0) return SYSTEM_RUNTIME_DIRECTORY
  const ofPerson = absolute(env['XDG_RUNTIME_DIR'])
  if (ofPerson !== undefined) return join(ofPerson, 'kyc-tokend')
  return join(absolute(env['TMPDIR']) ?? '/tmp', `kyc-tokend-${uid}`)
}

/** systemd gives several directories joined by colons; the first is the one named after the unit. */
function firstOf(list: string | undefined): string | undefined {
  return absolute(list?.split(':')[0])
}

/** The path, if it is absolute: relative ones in these variables are to be ignored (XDG Base Directory). */
function absolute(path: string | undefined): string | undefined {
  return path !== undefined && isAbsolute(path) ? path : undefined
}

let word = 'kyc-tokend'

/** The word for this program in commands that are printed. */
export const programName = (): string => word

/** It is called once, where the program starts: outside of the package its name is its file after that of its Node. */
export function decideProgramName(): void {
  const program = thisProgram()
  // The package's /usr/bin/kyc-tokend starts the program that is here.
  if (dirname(program.at(-1)!) !== '/usr/lib/kyc-tokend') word = program.map(shellWord).join(' ')
}

/** The program of this process, as words that work in each directory and with each PATH. */
export function thisProgram(): string[] {
  const [, file = ''] = process.argv
  return [process.execPath, ...process.execArgv, withSystemFallback(file, () => realpathSync(file))]
}
