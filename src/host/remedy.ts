// The one table of remedies: a fault, and the place of the daemon, give one sentence and at most three commands.
import { join } from 'node:path'
import type { FileError } from '../files/file-error.ts'
import { capitalized, shellWord } from '../lib/display-text.ts'
import type { AlertReason, PostponedReason, Reason } from '../protocol.ts'
import { accountOfSocket, accountWords, serviceEnvironment, socketUnits, unitNames } from './account.ts'
import { nameOf } from './ids.ts'
import {
  CLIENTS_GROUP,
  isSystemDirectory,
  programName,
  SERVICE_USER,
  SYSTEM_CONFIG_DIRECTORY,
} from './paths.ts'

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

/** A fault that needs no more facts than its name. */
export type NamedFault =
  | Reason
  | PostponedReason
  | AlertReason
  /** The configuration on disk: faulty; faulty while a daemon runs; changed; changed where a reload does not suffice. */
  | 'faulty-configuration'
  | 'faulty-on-disk'
  | 'changed-on-disk'
  | 'restart-needed'
  | 'no-configuration'
  /** Of clients: no access to the socket; the connection ended without an answer; no answer in time. */
  | 'denied'
  | 'unanswered'
  | 'late'

/** A fault as data. */
export type Remediable =
  | NamedFault
  /** A file of the daemon's own, a token file, a directory or a socket. */
  | { readonly kind: 'file'; readonly error: FileError; readonly use?: 'socket' | 'directory' }
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

export interface Remedies {
  readonly remedyOf: RemedyOf
  /** The same in parts. */
  readonly partsOf: (fault: Remediable) => Remedy
  readonly commands: Commands
}

export function createRemedies(place: Place): Remedies {
  const commands = commandsAt(place)
  const partsOf = (fault: Remediable): Remedy => {
    if (typeof fault !== 'string') return remedyFor(fault, place, commands)
    const [text, ...names] = named[fault]
    return { text, commands: names.flatMap((name) => commands[name]) }
  }
  return { partsOf, remedyOf: (fault) => rendered(partsOf(fault)), commands }
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

/** The commands about a daemon, each ready to paste; of one that needs a daemon, none where none is known. */
export type Commands = ReturnType<typeof commandsAt>

function commandsAt({ account, isUnit, program = 'kyc-tokend', pid, socket, config }: Place) {
  const { unit, alertUnit } = unitNames(account)
  const sudo = isUnit ? 'sudo ' : ''
  const word = isUnit ? 'kyc-tokend' : program
  const which = (option: string, path: string | undefined): string =>
    path === undefined ? accountWords(account) : ` ${option} ${shellWord(path)}`
  const reads = (words: string): string[] => [`${sudo}${word} ${words}${which('--config', config)}`]
  const asks = (words: string): string[] => [`${sudo}${word} ${words}${which('--socket', socket)}`]
  const controls = (verb: string, signal: string): string[] => {
    if (isUnit) return [`sudo systemctl ${verb} ${unit}`]
    return pid === undefined ? [] : [`kill -${signal} ${pid}`]
  }
  const sockets = socketUnits(account).map((each) => each.unit)
  return {
    check: reads('check'),
    live: reads('check --live'),
    setup: [`sudo ${word} setup${accountWords(account)}`],
    status: asks('status'),
    refresh: asks('refresh'),
    reload: controls('reload', 'HUP'),
    restart: controls('restart', 'TERM'),
    /** The directories and sockets of the unit are made again: systemd binds none beside a daemon that runs. */
    rebind: [
      `sudo systemctl stop ${[...sockets, `${alertUnit}.path`, unit].join(' ')}`,
      `sudo systemctl start ${unit}`,
    ],
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
const named: Readonly<Record<NamedFault, readonly [text: string, ...commands: (keyof Commands)[]]>> = {
  'account-inactive': [
    "Contact the service's support and have the account activated, then ask again",
    'refresh',
  ],
  'account-not-found': [
    'Compare `baseUrl`, `service` (if set), `credentials.apiKey` and `credentials.apiSecret` with the dashboard of ' +
      'the account, and correct what differs (`check` names quotes and blanks around a key); if nothing does, ' +
      "contact the service's support; then ask again",
    'check',
    'reload',
    'refresh',
  ],
  rejected: [
    'Correct `baseUrl`, `service` (if set) or the credentials (`check` names quotes and blanks around a key), ' +
      'because the service rejects requests of this kind at this address; kyc-tokend asks again every 5 to 10 ' +
      'minutes, or at once',
    'check',
    'reload',
    'refresh',
  ],
  'rate-limited': [
    'Nothing to do if it passes: kyc-tokend waits as long as the service asked for; if it goes on, find out what ' +
      'else uses these credentials',
  ],
  'server-error': [
    "Nothing to do if it passes: kyc-tokend goes on asking; if it lasts, read the service's status page or " +
      'contact its support',
  ],
  'malformed-answer': [
    'See that `baseUrl` (or `service.tokenUrl`) leads to the service itself and not to a login page, a proxy or a ' +
      "redirect; if it does, contact the service's support",
  ],
  network: [
    'See that the name in `baseUrl` (or `service.tokenUrl`) resolves on this host and that no firewall, proxy or ' +
      'route blocks the connection',
    'live',
  ],
  timeout: [
    'Nothing to do if it passes; if it lasts, check the network to the service, or raise `request.timeout` or ' +
      '`request.connectTimeout`',
  ],
  tls: [
    "Check this host's clock and that `baseUrl` (or `service.tokenUrl`) has the service's own name; where a proxy " +
      'or the service has a private authority, give its certificate as `request.caFile`; where the service wants a ' +
      'client certificate, check `request.clientCertificate`',
  ],
  assertion: [
    'See to the program that writes the file of `service.assertion.file`: it has not renewed it; kyc-tokend asks ' +
      'as soon as it is good',
    'check',
  ],
  'share-lost': [
    'Nothing to do if it passes: the token is served meanwhile; if it lasts, try share.servers from this host',
    'check',
  ],
  'not-asked': [
    'This host takes over the token of a host that asks the service (`share.asks`); run there',
    'refresh',
  ],
  'no-token': ['See what kyc-tokend waits for, and whether its configuration has a fault', 'status', 'check'],
  test: ['Nothing to do: it resolves itself after 10 s'],
  'faulty-configuration': [
    'Correct it, each fault of which `check` names, then start again',
    'check',
    'restart',
  ],
  'faulty-on-disk': [
    'Correct the configuration, each fault of which `check` names, then have it read again',
    'check',
    'reload',
  ],
  'changed-on-disk': ['Have the changed configuration taken over', 'reload'],
  'restart-needed': ['Have the changed configuration taken over by a restart', 'restart'],
  'no-configuration': ['Make a configuration', 'setup'],
  denied: [`have the user added to its group (sudo usermod -aG ${CLIENTS_GROUP} USER) and log in again`],
  unanswered: [
    'it stops, and another one answers soon, or this user has too many connections (maxConnectionsPerUser: `sudo ' +
      'kyc-tokend status` has a line about it)',
  ],
  late: ["see its log (sudo journalctl -u 'kyc-tokend*')"],
}

type FactualFault = Exclude<Remediable, string>

function remedyFor(fault: FactualFault, place: Place, commands: Commands): Remedy {
  switch (fault.kind) {
    case 'file': {
      const { text, ...rest } = fileRemedy(fault.error, place, commands)
      const { path, directory } = fault.error
      if (fault.use === 'socket') return { text: `No socket can be made at ${path}: ${text}`, ...rest }
      if (fault.use === 'directory') return { text: `The directory ${path} cannot be used: ${text}`, ...rest }
      return { text: path === directory ? capitalized(text) : `Cannot write ${path}: ${text}`, ...rest }
    }
    case 'input':
      return inputRemedy(fault, place)
    case 'open-socket':
      return openSocketRemedy(fault.path, place, commands)
    case 'no-daemon': {
      const account = fault.socket === undefined ? place.account : accountOfSocket(fault.socket)
      const start = `start it with \`sudo systemctl start ${unitNames(account).unit}\``
      const text = account === undefined ? `${start} or \`${place.program ?? 'kyc-tokend'} run\`` : start
      return { text, commands: [] }
    }
    case 'no-account': {
      const make = `make it with \`sudo ${place.program ?? 'kyc-tokend'} setup --account ${fault.account}\``
      return { text: fault.hasOthers ? `name one of these, or ${make}` : make, commands: [] }
    }
    default:
      return fault satisfies never
  }
}

/** No commands where it is none of the package's units. */
function openSocketRemedy(path: string, { account, isUnit }: Place, { rebind }: Commands): Remedy {
  const own = isUnit ? socketUnits(account).find((socket) => socket.path === path) : undefined
  const text =
    `every user of this host may connect to ${path} and take the token; list those who may in \`allow\`, or set ` +
    `SocketMode=0660 and SocketGroup=${CLIENTS_GROUP} in its unit`
  if (own === undefined) return { text, commands: [] }
  const [write = '', read = ''] = dropIn(own.unit, 'clients-only', ['[Socket]', 'SocketMode=0660'])
  return { text, commands: [write, read, rebind.join(' && ')] }
}

/** The group is the configuration's, never that of the process: the clients' group must not see the secret. */
function inputRemedy(fault: Extract<FactualFault, { kind: 'input' }>, { isUnit }: Place): Remedy {
  const { path, problem, closed } = fault
  const file = shellWord(path)
  const isOfSystem = (name: string): boolean => `${name}/`.startsWith(`${SYSTEM_CONFIG_DIRECTORY}/`)
  const sudo = isUnit || isOfSystem(path) ? 'sudo ' : ''
  if (problem === 'owner')
    return { text: "must belong to root or the daemon's user", commands: [`sudo chown root ${file}`] }
  if (problem === 'writable')
    return { text: 'can be written by others than its owner', commands: [`${sudo}chmod go-w ${file}`] }
  if (problem === 'readable')
    return { text: 'holds a secret and can be read by everybody', commands: [`${sudo}chmod o-rwx ${file}`] }
  const user = nameOf('user', process.geteuid!())
  const denied = `may not be read by the user ${user}`
  if (user !== SERVICE_USER) {
    const why = isOfSystem(path)
      ? 'use sudo, and leave owner and mode of the file as they are'
      : 'let it read it'
    return { text: `${denied}: ${why}`, commands: [] }
  }
  if (closed === undefined)
    return {
      text: denied,
      commands: [`sudo chgrp ${SERVICE_USER} ${file}`, `sudo chmod 0640 ${file}`],
    }
  const text = `${denied}, who may not enter ${closed}`
  if (!isOfSystem(closed)) return { text: `${text}; put it below ${SYSTEM_CONFIG_DIRECTORY}`, commands: [] }
  return {
    text,
    commands: [`sudo chgrp ${SERVICE_USER} ${shellWord(closed)}`, `sudo chmod 0750 ${shellWord(closed)}`],
  }
}

/** The text begins with what is wrong. */
export function fileRemedy(error: FileError, place: Place, commands: Commands): Remedy {
  const { path, directory, code, kind, syscall, writers, seconds } = error
  const { account, isUnit } = place
  const { RUNTIME_DIRECTORY, STATE_DIRECTORY } = serviceEnvironment(account)
  const own = [RUNTIME_DIRECTORY, join(RUNTIME_DIRECTORY, 'files'), STATE_DIRECTORY]
  const errno = syscall === 'fchown' ? syscall : (sameErrno[code ?? ''] ?? code ?? kind)
  const name = kind === 'system' || code === 'EISDIR' ? errno : kind
  const row = fileFaults[name] ?? fileFaults['system']!
  const [text, ...list] = row({
    directory,
    writers:
      typeof writers === 'object' ? `the ${writers.kind} ${nameOf(writers.kind, writers.id)}` : EVERYBODY,
    forSeconds: seconds === undefined ? '' : ` for ${seconds} s`,
    file: shellWord(path),
    folder: shellWord(directory),
    why: `${syscall ?? kind} (${code})`,
    unit: unitNames(account).unit,
    user: isUnit ? SERVICE_USER : nameOf('user', process.geteuid!()),
    sudo: isUnit ? 'sudo ' : '',
    isUnit,
    isOwn: isUnit && own.includes(directory),
    isBelowOwn: isUnit && own.some((each) => directory.startsWith(`${each}/`)),
    commands,
  })
  return { text, commands: list }
}

interface FileFacts extends Readonly<
  Record<
    'directory' | 'writers' | 'forSeconds' | 'file' | 'folder' | 'why' | 'unit' | 'user' | 'sudo',
    string
  >
> {
  readonly isUnit: boolean
  /** The directory is one of the unit's own, which its start makes; or below one. */
  readonly isOwn: boolean
  readonly isBelowOwn: boolean
  readonly commands: Commands
}

const EVERYBODY = 'every user'

/** By errno, or by the kind of the error. */
const fileFaults: Readonly<
  Record<string, (facts: FileFacts) => readonly [text: string, ...commands: string[]]>
> = {
  stalled: ({ directory, forSeconds }) => [
    `not written${forSeconds}: check the disk of ${directory} or its server`,
  ],
  EISDIR: ({ file, sudo }) => [
    'it is a directory, which is never replaced; clear the path',
    `${sudo}mv -T --backup=numbered ${file} ${file}.old`,
  ],
  'odd-target': ({ file, sudo }) => [
    'it is a link or no regular file, which is never replaced; clear the path',
    `${sudo}rm -f ${file}`,
  ],
  attributes: () => ['its file system does not keep owner, group and mode: choose another directory'],
  'unsafe-directory'({ directory, folder, writers, isOwn, commands }) {
    if (isOwn)
      return [`others could exchange what is made in ${directory}; have it made again`, ...commands.rebind]
    const choose = `${writers} could exchange what is made in ${directory}; choose another directory`
    // Of a user's own directory nothing is taken away, nor of one that serves the whole system.
    if (writers.startsWith('the user') || isSystemDirectory(directory)) return [choose]
    return [`${choose}, or close this one`, `sudo chmod ${writers === EVERYBODY ? 'o' : 'g'}-w ${folder}`]
  },
  fchown: ({ why, isUnit, commands }) => [
    `kyc-tokend may not give it this owner or group, ${why}: leave them out; in the unit set Group= by a drop-in, ` +
      'or let a kyc-tokend-changed@ unit hand it on',
    ...(isUnit ? commands.edit : []),
  ],
  ENOENT({ directory, folder, user, isUnit, isOwn, isBelowOwn, commands }) {
    const text = `the directory ${directory} is not there`
    if (isOwn) return [text, ...commands.rebind]
    // Root makes nothing below a directory of the daemon's user, who could put a link there.
    if (isBelowOwn) return [text, `sudo runuser -u ${user} -- mkdir -p -m 0750 ${folder}`]
    return [text, isUnit ? `sudo install -d -m 0750 -o ${user} ${folder}` : `mkdir -p -m 0750 ${folder}`]
  },
  ENOTDIR: ({ directory }) => [
    `${directory} is a link or no directory: choose the directory itself, or remove that`,
  ],
  EACCES({ directory, folder, user, isOwn, commands }) {
    const text = `the user ${user} may not write in ${directory}`
    if (isOwn) return [text, ...commands.rebind]
    if (isSystemDirectory(directory)) return [`${text}; make a directory of its own and set that`]
    // Not the directory that a link leads to: the maker of the link may be the daemon's user.
    return [text, `sudo chown -h ${user} ${folder}`]
  },
  EROFS({ directory, folder, unit, isUnit, isOwn, isBelowOwn, commands }) {
    const name = `write${directory.replaceAll(/[^\w]+/g, '-')}`
    const open = dropIn(`${unit}.service`, name, ['[Service]', `ReadWritePaths=-${directory}`])
    if (isUnit && !isOwn && !isBelowOwn)
      return [`${directory} is read-only for this unit`, ...open, ...commands.restart]
    const mount = `sudo mount -o remount,rw "$(findmnt -no TARGET -T ${folder})"`
    return [`the file system of ${directory} is read-only`, mount, ...commands.restart]
  },
  ENOSPC: ({ directory, folder }) => [`no space is left in ${directory}: free some`, `df -h ${folder}`],
  system: ({ why, file }) => [`${why}: see what is there`, `namei -lo ${file}`],
}
/** Errors that mean the same. */
const sameErrno: Readonly<Record<string, string>> = {
  EPERM: 'EACCES',
  EDQUOT: 'ENOSPC',
  ELOOP: 'ENOTDIR',
  EEXIST: 'ENOTDIR',
}
