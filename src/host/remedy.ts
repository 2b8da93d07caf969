// The one table of remedies: a fault, and the place of the daemon, give one sentence and at most three commands.
import { dirname } from 'node:path'
import { asFileError, FileError } from '../files/file-error.ts'
import { shellWord } from '../lib/display-text.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import type { Log } from '../lib/log.ts'
import type { AlertReason, PostponedReason, Reason } from '../protocol.ts'
import { ACCOUNT_VARIABLE, installationOf, isAccountName } from './account.ts'
import { nameOf } from './ids.ts'
import { programName, SERVICE_USER, SYSTEM_CONFIG_DIRECTORY } from './paths.ts'

/** The daemon that commands are for. It is given once, at the top. */
export interface Place {
  /** Left out: the default account. */
  readonly account?: string | undefined
  /** systemd runs it. */
  readonly isUnit: boolean
  /** Of a daemon that runs. */
  readonly pid?: number | undefined
  /** Its `ipc.sock`; left out: where commands look for it. */
  readonly socket?: string | undefined
  /** Its configuration; left out: where commands look for it. */
  readonly configFile?: string | undefined
}

/** Of the daemon that runs in this environment: that of the unit has the unit's runtime directory, from systemd. */
export function placeOf(env: NodeJS.ProcessEnv): Place {
  const { [ACCOUNT_VARIABLE]: name = '' } = env
  const account = isAccountName(name) ? name : undefined
  const { RUNTIME_DIRECTORY } = installationOf(account).environment
  const isUnit = env['RUNTIME_DIRECTORY'] === RUNTIME_DIRECTORY && env['INVOCATION_ID'] !== undefined
  return { account, isUnit }
}

export type FaultName = keyof typeof rows
/** A fault as data: its row, with the path or the account that it is about, or a file that cannot be written. */
export type Fault =
  | FaultName
  | FileError
  | { readonly fault: FaultName; readonly path?: string | undefined; readonly account?: string | undefined }

/** The remedy as one line for people, without a full stop: the sentence, then its commands as one that can be pasted. */
export type RemedyOf = (fault: Fault) => string
export type Remedies = ReturnType<typeof createRemedies>

/** Without a place there is no command about a daemon. */
export function createRemedies(place?: Place) {
  const commands: Commands = place === undefined ? {} : commandsAt(place)
  const remedyOf: RemedyOf = (fault) => {
    const about = typeof fault === 'string' ? { fault } : fault
    const row = about instanceof FileError ? rowOf(about, place) : about.fault
    const [sentence, ...templates]: Row = rows[row]
    const facts = { ...commands, ...factsOf(about, place, commands.rebind) }
    const filled = (text: string): string =>
      text.replaceAll(/\{(\w+)\}/g, (_, name: NameIn<(typeof rows)[FaultName][number]>) => facts[name] ?? '')
    return withCommands(filled(sentence), ...templates.map(filled))
  }
  return { remedyOf, commands }
}

/** For faults of clients, and of files that no daemon writes. */
export const { remedyOf: remedyWithoutPlace } = createRemedies()

/** The sentence with those commands that there are. */
export function withCommands(sentence: string, ...commands: readonly (string | undefined)[]): string {
  const given = commands.filter(Boolean)
  return given.length === 0 ? sentence : `${sentence}: \`${given.join(' && ')}\``
}

/** False: another version of this program has a fault of that name, and this one does not know it. */
export function isFaultName(name: string): name is FaultName {
  return Object.hasOwn(rows, name)
}

/** An error of the system or of a file as that with which a command or a start ends (78); any other as it is. */
export function asUserError(path: string, thrown: unknown, directory?: string): unknown {
  const error = asFileError(path, thrown, directory)
  if (!(error instanceof FileError)) return error
  const { remedyOf } = createRemedies(placeOf(process.env))
  return new UserError(`${remedyOf(error)}.`, exitStatus.configuration, { cause: error })
}

/** The log, in whose records an error of a file is its sentence. */
export function withFileSentences(log: Log, remedyOf: RemedyOf): Log {
  return (level, sentence, { error, ...fields }) => {
    const words = error instanceof FileError ? remedyOf(error) : error
    log(level, sentence, { ...fields, ...(error !== undefined && { error: words }) })
  }
}

type Commands = { readonly [Name in keyof ReturnType<typeof commandsAt>]?: string | undefined }

/** The commands about a daemon, each ready to paste; some of them need one that runs, or a unit. */
function commandsAt({ account, isUnit, pid, socket, configFile = SYSTEM_CONFIG_DIRECTORY }: Place) {
  const { unit, alertUnit, sockets, option, ipcSocket } = installationOf(account)
  const word = isUnit ? 'sudo kyc-tokend' : programName()
  const check = `${word} check${isOfSystem(configFile) ? option : ` --config ${shellWord(configFile)}`}`
  const asks = socket === undefined || socket === ipcSocket ? option : ` --socket ${shellWord(socket)}`
  const refresh = `${word} refresh${asks}`
  const ofPerson = pid === undefined ? [] : [`kill -HUP ${pid}`, `kill -TERM ${pid}`]
  const ofUnit = [`sudo systemctl reload ${unit}`, `sudo systemctl restart ${unit}`]
  const [reload, restart] = isUnit ? ofUnit : ofPerson
  const all = [...sockets.map((each) => each.unit), `${alertUnit}.path`, unit].join(' ')
  return {
    check,
    live: `${check} --live`,
    status: `${word} status${asks}`,
    refresh,
    reload,
    restart,
    mend: [check, reload, refresh].filter(Boolean).join(' && '),
    ...(isUnit && {
      /** For a drop-in. */
      edit: `sudo systemctl edit ${unit} && ${restart}`,
      /** The directories and sockets are made again: systemd binds none beside a daemon that runs. */
      rebind: `sudo systemctl stop ${all} && sudo systemctl start ${unit}`,
      log: `sudo journalctl -u ${unit} -n 20`,
    }),
  }
}

function isOfSystem(path: string): boolean {
  return `${path}/`.startsWith(`${SYSTEM_CONFIG_DIRECTORY}/`)
}

type Row = readonly [sentence: string, ...commands: string[]]
/** The names in braces: one that nothing fills is an error of types. */
type NameIn<Text> = Text extends `${string}{${infer Name}}${infer Rest}` ? Name | NameIn<Rest> : never

/**
 * The rows, with the names of commands and facts in braces. Root makes and changes nothing in a directory that another
 * user can write: its user does it ({as}), or there is no command. Actions for refusals are those of the interface
 * description, section 7.
 */
const rows = {
  'account-inactive': ["Have the service's support activate the account, then ask again", '{refresh}'],
  'account-not-found': [
    "Compare `baseUrl`, `service`, key and secret with the account's dashboard",
    '{mend}',
  ],
  rejected: ['Correct `baseUrl`, `service` or the credentials: the service rejects such requests', '{mend}'],
  'rate-limited': ['Wait as long as the service asked for; if it goes on, find what else uses the account'],
  'server-error': ["Wait: kyc-tokend goes on asking; if it lasts, contact the service's support"],
  'malformed-answer': ['See that `baseUrl` leads to the service itself, and not to a login page or a proxy'],
  network: ["See that the service's address resolves here, and that nothing blocks the way to it", '{live}'],
  timeout: ['Wait; if it lasts, check the network to the service, or raise `request.timeout`'],
  tls: ["Check this host's clock and `baseUrl`, and name a private authority in `request.caFile`"],
  assertion: ['See to the program that writes the file of `service.assertion.file`', '{check}'],
  'share-lost': ['Wait: the token is served; if it lasts, try `share.servers` from this host', '{check}'],
  'not-asked': ['This host does not ask (`share.asks`): ask on one that does', '{refresh}'],
  'no-token': ['See what kyc-tokend waits for, and check its configuration', '{status}', '{check}'],
  test: ['Nothing to do: it resolves itself after 10 s'],
  // The configuration on disk: faulty while a daemon runs; changed; changed where a reload does not suffice.
  'faulty-on-disk': ['Correct what `check` names, and have it read again', '{check}', '{reload}'],
  'changed-on-disk': ['Have the changed configuration taken over', '{reload}'],
  'restart-needed': ['Have the changed configuration taken over by a restart', '{restart}'],
  // Of clients: no daemon; no access to the socket; the connection ended without an answer; no answer in time.
  'no-daemon': ['start it with `sudo systemctl start {unit}` or `{program} run{option}`'],
  'no-account': ['make it with `sudo {program} setup{option}`, or name another'],
  denied: [
    'have the user added to its group (sudo usermod -aG "$(stat -c %G {file})" USER) and log in again',
  ],
  unanswered: ['ask again; if it goes on, this user has too many connections (`sudo kyc-tokend status`)'],
  late: ["see its log (sudo journalctl -u 'kyc-tokend*')"],
  'open-socket': ['every user may connect to {path}: set `allow`, or SocketMode=0660 in its unit', '{close}'],
  // Of a configuration or secret file, whose name comes before. The group is never that of the clients.
  unreadable: [
    'may not be read by the user {user}: let it read it, or use sudo',
    '{share}',
    'namei -lo {file}',
  ],
  owner: ["must belong to root or the daemon's user", 'sudo chown root {file}'],
  writable: ['can be written by others than its owner', '{sudo}chmod go-w {file}'],
  readable: ['holds a secret and can be read by everybody', '{sudo}chmod o-rwx {file}'],
  // Of a file that the daemon writes, by the kind of the error.
  stalled: ['{what}: not written for {seconds} s: check the disk of {directory} or its server'],
  'odd-target': ['{what}: no regular file is there', '{as}mv -T --backup=numbered {file} {file}.old'],
  'unsafe-directory': ['{what}: others could exchange what is made in {directory}: choose another'],
  attributes: ['{what}: its file system does not keep owner, group and mode: choose another directory'],
  ownership: [
    '{what}: {why}: leave its owner and group out, set Group= of the unit by a drop-in, or use a kyc-tokend-changed@ unit',
    '{edit}',
  ],
  'unit-directory': ['{what}: {directory} is not as a start of the unit makes it', '{rebind}'],
  'read-only': ['{what}: {directory} is read-only; a unit needs ReadWritePaths=-{directory}', '{edit}'],
  full: ['{what}: no space is left in {directory}: free some', 'df -h {folder}'],
  system: ['{what}: {why}; see that {user} may write in {directory}, which is no link', 'namei -lo {file}'],
} as const satisfies Readonly<Record<Reason | PostponedReason | AlertReason | FileError['kind'], Row>> &
  Readonly<Record<string, Row>>

/** The values that fill a row: those of the fault, and those of the host. */
function factsOf(about: object, place: Place | undefined, rebind: string | undefined) {
  const { path = '', directory = dirname(path), ...error }: Partial<FileError> = about
  const { account = place?.account } = about as Pick<Place, 'account'>
  const { unit, option, sockets } = installationOf(account)
  const isUnit = place?.isUnit === true
  const user = isUnit || path === '' ? SERVICE_USER : nameOf('user', process.geteuid!())
  const file = shellWord(path)
  const isShared = user === SERVICE_USER && isOfSystem(path)
  const socket = isUnit ? sockets.find((each) => each.path === path) : undefined
  return {
    path,
    file,
    directory,
    folder: shellWord(directory),
    what: path === directory ? `Cannot use ${path}` : `Cannot write ${path}`,
    why: `${error.syscall} (${error.code})`,
    seconds: String(error.seconds),
    user,
    as: isUnit ? `sudo runuser -u ${user} -- ` : '',
    sudo: isOfSystem(path) ? 'sudo ' : '',
    share: isShared ? `sudo chgrp ${SERVICE_USER} ${file} && sudo chmod 0640 ${file}` : undefined,
    close: socket && `sudo systemctl edit ${socket.unit} && ${rebind}`,
    unit,
    option,
    program: programName(),
  }
}

const rowOfCode: Readonly<Record<string, FaultName>> = { EROFS: 'read-only', ENOSPC: 'full', EDQUOT: 'full' }
/** Faults of the unit's own directories that end when it makes them again. */
const REMADE = new Set(['unsafe-directory', 'ENOENT', 'ENOTDIR', 'EACCES', 'EPERM'])

function rowOf({ kind, code = '', syscall = '', directory }: FileError, place: Place | undefined): FaultName {
  if (syscall.endsWith('chown')) return 'ownership'
  const { RUNTIME_DIRECTORY, STATE_DIRECTORY } = installationOf(place?.account).environment
  const isUnits = place?.isUnit === true && [RUNTIME_DIRECTORY, STATE_DIRECTORY].includes(directory)
  if (isUnits && REMADE.has(kind === 'system' ? code : kind)) return 'unit-directory'
  return kind === 'system' ? (rowOfCode[code] ?? kind) : kind
}
