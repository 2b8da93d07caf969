// The one table of remedies: a fault, and the place of the daemon, give one sentence and at most three commands.
import { dirname } from 'node:path'
import { FileError } from '../files/file-error.ts'
import { capitalized, shellWord } from '../lib/display-text.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import type { Log } from '../lib/log.ts'
import type { AlertReason, PostponedReason, Reason } from '../protocol.ts'
import { accountOf, accountOfEnvironment, installationOf } from './account.ts'
import { nameOf } from './ids.ts'
import { CLIENTS_GROUP, programName, SERVICE_USER, SYSTEM_CONFIG_DIRECTORY } from './paths.ts'

export interface Remedy {
  /** What to do, in plain words, without a full stop. */
  readonly text: string
  /** To be pasted in this order, at most three; none: there is nothing to paste. */
  readonly commands: readonly string[]
}

/** The daemon that commands are for. It is given once, at the top. */
export interface Place {
  /** Undefined: the default account. */
  readonly account: string | undefined
  /** systemd runs it. */
  readonly isUnit: boolean
  /** The word for this program; default: `kyc-tokend`. */
  readonly program?: string
  /** Of a daemon that a person started; undefined: none runs. */
  readonly pid?: number | undefined
  /** Its `ipc.sock`, where clients do not find that by themselves. */
  readonly socket?: string | undefined
  /** Its configuration, where commands do not find that by themselves. */
  readonly config?: string | undefined
}

/** Of the daemon that runs in this environment: that of the unit has the unit's runtime directory, from systemd. */
export function placeOf(env: NodeJS.ProcessEnv, pid?: number): Place {
  const account = accountOfEnvironment(env)
  const { RUNTIME_DIRECTORY } = installationOf(account).environment
  const isUnit = env['RUNTIME_DIRECTORY'] === RUNTIME_DIRECTORY && env['INVOCATION_ID'] !== undefined
  return { account, isUnit, pid, program: programName() }
}

/** Of a daemon with this configuration, at this socket; undefined: where clients find it. */
export function placeAt(
  { configFile, socket }: { configFile: string; socket: string | undefined },
  { isUnit, pid }: Pick<Place, 'isUnit' | 'pid'>,
): Place {
  const account = accountOf(configFile)
  return {
    account,
    isUnit,
    pid,
    socket: socket === installationOf(account).ipcSocket ? undefined : socket,
    config: isUnit ? undefined : configWord(configFile),
    program: programName(),
  }
}

/** The configuration for commands that do not find it by themselves; undefined: they do. */
export function configWord(file: string | undefined): string | undefined {
  if (file === undefined || accountOf(file) !== undefined) return undefined
  return dirname(file) === SYSTEM_CONFIG_DIRECTORY ? undefined : file
}

/** A fault that needs no more facts than its name. */
export type NamedFault = keyof typeof named

/** A fault as data. */
export type Remediable =
  | NamedFault
  /** A file of the daemon's own, a token file, a directory or a socket. */
  | { readonly kind: 'file'; readonly error: FileError; readonly use?: 'socket' }
  /**
   * A configuration or secret file; the sentence follows its name. `unreadable`: by the daemon's user, who may not
   * enter the directory `closed`, if there is one. `owner`: neither root nor the daemon's user.
   */
  | {
      readonly kind: 'input'
      readonly path: string
      readonly problem: 'unreadable' | 'owner' | 'writable' | 'readable'
      readonly closed?: string | undefined
    }
  /** Everybody may connect to this socket of systemd. */
  | { readonly kind: 'open-socket'; readonly path: string }
  /** No daemon answers a client. */
  | { readonly kind: 'no-daemon'; readonly socket: string | undefined }
  | { readonly kind: 'no-account'; readonly account: string; readonly hasOthers: boolean }

/** The remedy as one line for people: the text, then its commands as one that can be pasted. */
export type RemedyOf = (fault: Remediable) => string
export type Remedies = ReturnType<typeof createRemedies>

export function createRemedies(place: Place) {
  const commands = commandsAt(place)
  const partsOf = (fault: Remediable): Remedy => {
    if (typeof fault !== 'string') return remedyFor(fault, place, commands)
    const [text, ...names]: NamedRow = named[fault]
    return { text, commands: names.flatMap((name) => commands[name]) }
  }
  return { partsOf, remedyOf: (fault: Remediable): string => rendered(partsOf(fault)), commands }
}

export function rendered({ text, commands }: Remedy): string {
  return commands.length === 0 ? text : `${text}: \`${commands.join(' && ')}\``
}

/** For a client, which knows no place: its faults name their socket or account. */
export const clientRemedyOf: RemedyOf = (fault) =>
  createRemedies({ account: undefined, isUnit: false, program: programName() }).remedyOf(fault)

/** False: another version of this program has a fault of that name, and this one does not know it. */
export function isNamedFault(name: string): name is NamedFault {
  return Object.hasOwn(named, name)
}

/** The error with which a command or a start ends (78). `subject`: the beginning of its sentence. */
export function asUserError(error: FileError, env: NodeJS.ProcessEnv, subject = ''): UserError {
  const place = placeOf(env)
  const sentence = rendered(fileRemedy(error, place, commandsAt(place)))
  return new UserError(`${capitalized(subject + sentence)}.`, exitStatus.configuration, { cause: error })
}

/** The log, in whose records an error of a file is its sentence. */
export function withFileSentences(log: Log, remedyOf: RemedyOf): Log {
  return (level, sentence, { error, ...fields }) =>
    log(level, sentence, {
      ...fields,
      ...(error !== undefined && {
        error: error instanceof FileError ? remedyOf({ kind: 'file', error }) : error,
      }),
    })
}

/** The commands about a daemon, each ready to paste; of one that needs a daemon, none where none is known. */
type Commands = ReturnType<typeof commandsAt>

function commandsAt({ account, isUnit, program = 'kyc-tokend', pid, socket, config }: Place) {
  const { unit, alertUnit, sockets, option } = installationOf(account)
  const word = isUnit ? 'sudo kyc-tokend' : program
  const reads = config === undefined ? option : ` --config ${shellWord(config)}`
  const asks = socket === undefined ? option : ` --socket ${shellWord(socket)}`
  const controls = (verb: string, signal: string): string[] => {
    if (isUnit) return [`sudo systemctl ${verb} ${unit}`]
    return pid === undefined ? [] : [`kill -${signal} ${pid}`]
  }
  const all = [...sockets.map((each) => each.unit), `${alertUnit}.path`, unit]
  return {
    check: [`${word} check${reads}`],
    live: [`${word} check --live${reads}`],
    status: [`${word} status${asks}`],
    refresh: [`${word} refresh${asks}`],
    reload: controls('reload', 'HUP'),
    restart: controls('restart', 'TERM'),
    /** The directories and sockets of the unit are made again: systemd binds none beside a daemon that runs. */
    rebind: [`sudo systemctl stop ${all.join(' ')}`, `sudo systemctl start ${unit}`],
    edit: [`sudo systemctl edit ${unit}`],
    log: [`sudo journalctl -u ${unit} -n 20`],
    /** The user and the groups of the package, and their members' group, are made again. */
    users: ['sudo systemd-sysusers kyc-tokend.conf'],
  }
}

/**
 * Commands that write this drop-in of a unit and have systemd read it. The same words, pasted again, change nothing;
 * by its name systemd reads it after the `override.conf` of `systemctl edit`.
 */
export function dropIn(unit: string, name: string, lines: readonly string[]): string[] {
  const text = lines.map((line) => `${line}\\n`).join('')
  const file = `/etc/systemd/system/${unit}.d/zz-${name}.conf`
  return [`printf '${text}' | sudo install -D -m 0644 /dev/stdin ${file}`, 'sudo systemctl daemon-reload']
}

/** Actions for refusals are those of the interface description, section 7. */
const named = {
  'account-inactive': [
    "Contact the service's support and have the account activated, then ask again",
    'refresh',
  ],
  'account-not-found': [
    'Compare `baseUrl`, `service`, key and secret with the dashboard of the account, correct what differs, and ask again',
    'check',
    'reload',
    'refresh',
  ],
  rejected: [
    'Correct `baseUrl`, `service` or the credentials, because the service rejects such requests at this address',
    'check',
    'reload',
    'refresh',
  ],
  'rate-limited': [
    'Wait as long as the service asked for; if it goes on, find out what else uses the account',
  ],
  'server-error': ["Wait: kyc-tokend goes on asking; if it lasts, contact the service's support"],
  'malformed-answer': ['See that `baseUrl` leads to the service itself, and not to a login page or a proxy'],
  network: [
    'See that the address of the service resolves here, and that nothing blocks the way to it',
    'live',
  ],
  timeout: ['Wait; if it lasts, check the network to the service, or raise `request.timeout`'],
  tls: ["Check this host's clock and `baseUrl`, and name a private authority in `request.caFile`"],
  assertion: ['See to the program that writes the file of `service.assertion.file`', 'check'],
  'share-lost': ['Wait: the token is served; if it lasts, try `share.servers` from this host', 'check'],
  'not-asked': ['This host does not ask (`share.asks`): ask on one that does', 'refresh'],
  'no-token': ['See what kyc-tokend waits for, and whether its configuration has a fault', 'status', 'check'],
  test: ['Nothing to do: it resolves itself after 10 s'],
  // The configuration on disk: faulty while a daemon runs; changed; changed where a reload does not suffice.
  'faulty-on-disk': ['Correct what `check` names, then have the configuration read again', 'check', 'reload'],
  'changed-on-disk': ['Have the changed configuration taken over', 'reload'],
  'restart-needed': ['Have the changed configuration taken over by a restart', 'restart'],
  // Of clients: no access to the socket; the connection ended without an answer; no answer in time.
  denied: [`have the user added to its group (sudo usermod -aG ${CLIENTS_GROUP} USER) and log in again`],
  unanswered: ['ask again; if it goes on, this user has too many connections (`sudo kyc-tokend status`)'],
  late: ["see its log (sudo journalctl -u 'kyc-tokend*')"],
} as const satisfies Readonly<Record<Reason | PostponedReason | AlertReason, NamedRow>> &
  Readonly<Record<string, NamedRow>>
type NamedRow = readonly [text: string, ...commands: (keyof Commands)[]]

type FactualFault = Exclude<Remediable, string>

function remedyFor(fault: FactualFault, place: Place, commands: Commands): Remedy {
  const program = place.program ?? 'kyc-tokend'
  switch (fault.kind) {
    case 'file': {
      const { text, ...rest } = fileRemedy(fault.error, place, commands)
      const { path, directory } = fault.error
      if (fault.use === 'socket') return { text: `No socket can be made at ${path}: ${text}`, ...rest }
      return { text: path === directory ? capitalized(text) : `Cannot write ${path}: ${text}`, ...rest }
    }
    case 'input':
      return inputRemedy(fault, place)
    case 'open-socket':
      return openSocketRemedy(fault.path, place, commands)
    case 'no-daemon': {
      const account = fault.socket === undefined ? place.account : accountOf(fault.socket)
      const start = `start it with \`sudo systemctl start ${installationOf(account).unit}\``
      return { text: account === undefined ? `${start} or \`${program} run\`` : start, commands: [] }
    }
    case 'no-account': {
      const make = `make it with \`sudo ${program} setup --account ${fault.account}\``
      return { text: fault.hasOthers ? `name one of these, or ${make}` : make, commands: [] }
    }
    default:
      return fault satisfies never
  }
}

/** No commands where it is none of the package's units. */
function openSocketRemedy(path: string, { account, isUnit }: Place, { rebind }: Commands): Remedy {
  const own = isUnit ? installationOf(account).sockets.find((socket) => socket.path === path) : undefined
  const text = `every user of this host may connect to ${path}; list those who may in \`allow\`, or close it`
  if (own === undefined) return { text, commands: [] }
  const change = dropIn(own.unit, 'clients-only', ['[Socket]', 'SocketMode=0660'])
  return { text, commands: [...change, rebind.join(' && ')] }
}

/** The group is the configuration's, never that of the process: the clients' group must not see the secret. */
function inputRemedy(fault: Extract<FactualFault, { kind: 'input' }>, { isUnit }: Place): Remedy {
  const { path, problem, closed } = fault
  const target = closed ?? path
  const isOfSystem = `${target}/`.startsWith(`${SYSTEM_CONFIG_DIRECTORY}/`)
  const [sudo, file] = [isUnit || isOfSystem ? 'sudo ' : '', shellWord(target)]
  if (problem !== 'unreadable') return filled(rows[problem], { sudo, file })
  const user = nameOf('user', process.geteuid!())
  const denied = `may not be read by the user ${user}${closed === undefined ? '' : `, who may not enter ${closed}`}`
  if (user !== SERVICE_USER) return { text: `${denied}: let it read it, or use sudo`, commands: [] }
  if (closed !== undefined && !isOfSystem)
    return { text: `${denied}; put it below ${SYSTEM_CONFIG_DIRECTORY}`, commands: [] }
  const mode = closed === undefined ? '0640' : '0750'
  return { text: denied, commands: [`sudo chgrp ${SERVICE_USER} ${file}`, `sudo chmod ${mode} ${file}`] }
}

/** The text begins with what is wrong. */
function fileRemedy(error: FileError, place: Place, commands: Commands): Remedy {
  const { isUnit } = place
  const { path, directory, code = '', kind, syscall, seconds } = error
  const errno = syscall === 'fchown' ? syscall : (sameErrno[code] ?? code)
  const name = kind === 'system' || code === 'EISDIR' ? errno : kind
  const user = isUnit ? SERVICE_USER : nameOf('user', process.geteuid!())
  const remedy = filled(Object.hasOwn(rows, name) ? rows[name as keyof typeof rows] : rows.system, {
    directory,
    folder: shellWord(directory),
    file: shellWord(path),
    seconds: String(seconds),
    why: `${syscall ?? kind} (${code})`,
    user,
    as: isUnit ? `sudo runuser -u ${user} -- ` : '',
  })
  return {
    ...remedy,
    commands: (isUnit && commandsOfUnit(name, directory, place, commands)) || remedy.commands,
  }
}

/** The unit's own commands about a fault of a file in this directory; null: those of the row hold. */
function commandsOfUnit(
  name: string,
  directory: string,
  { account }: Place,
  { rebind, edit, restart }: Commands,
): readonly string[] | null {
  const { unit, environment } = installationOf(account)
  if (name === 'fchown') return edit
  // The unit's own directories are made by its start, and it may write in them.
  if ([environment.RUNTIME_DIRECTORY, environment.STATE_DIRECTORY].includes(directory))
    return REMADE.has(name) ? rebind : null
  // A drop-in takes other characters for words, quotes or specifiers.
  if (name !== 'EROFS' || !/^[\w/.-]+$/.test(directory)) return null
  const write = `write${directory.replaceAll(/[^\w]+/g, '-')}`
  return [...dropIn(`${unit}.service`, write, ['[Service]', `ReadWritePaths=-${directory}`]), ...restart]
}

/** The row with its facts; a fact is not read for further names of facts. */
function filled([text, ...commands]: readonly [string, ...string[]], facts: Record<string, string>): Remedy {
  const fill = (words: string): string => words.replaceAll(/\{(\w+)\}/g, (_, name: string) => facts[name]!)
  return { text: fill(text), commands: commands.map(fill) }
}

/**
 * Faults of files: by errno, by the kind of the error, or by the problem of an input. Root makes and changes nothing in
 * a directory that another user can write: its user does it ({as}), or there is no command.
 */
const rows = {
  stalled: ['not written for {seconds} s: check the disk of {directory} or its server'],
  EISDIR: [
    'a directory is there, which is never replaced; clear the path',
    '{as}mv -T --backup=numbered {file} {file}.old',
  ],
  'odd-target': [
    'a link or no regular file is there, which is never replaced; clear the path',
    '{as}rm -f {file}',
  ],
  attributes: ['its file system does not keep owner, group and mode: choose another directory'],
  'unsafe-directory': [
    'others could exchange what is made in {directory}: choose a directory in which they cannot write',
  ],
  fchown: [
    'kyc-tokend may not give it this owner or group, {why}: leave them out; in the unit set Group= by a drop-in, ' +
      'or let a kyc-tokend-changed@ unit hand it on',
  ],
  ENOENT: ['the directory {directory} is not there: make it for the user {user}'],
  ENOTDIR: ['{directory} is a link or no directory: choose the directory itself, or remove that'],
  EACCES: ['the user {user} may not write in {directory}: choose a directory of its own'],
  EROFS: ['{directory} is read-only for kyc-tokend', 'findmnt -T {folder}'],
  ENOSPC: ['no space is left in {directory}: free some', 'df -h {folder}'],
  system: ['{why}: see what is there', 'namei -lo {file}'],
  owner: ["must belong to root or the daemon's user", 'sudo chown root {file}'],
  writable: ['can be written by others than its owner', '{sudo}chmod go-w {file}'],
  readable: ['holds a secret and can be read by everybody', '{sudo}chmod o-rwx {file}'],
} as const satisfies Readonly<Record<string, readonly [text: string, ...commands: string[]]>>
/** Faults of the unit's own directories that end when it makes them again. */
const REMADE = new Set(['ENOENT', 'EACCES', 'unsafe-directory'])
/** Errors that mean the same. */
const sameErrno: Readonly<Record<string, string>> = {
  EPERM: 'EACCES',
  EDQUOT: 'ENOSPC',
  ELOOP: 'ENOTDIR',
  EEXIST: 'ENOTDIR',
}
