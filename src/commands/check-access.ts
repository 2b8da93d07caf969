// Checks the access of the daemon to the paths, sockets and credentials of a configuration: by trying it, and by the settings of
// the unit that runs the daemon.
import { existsSync, statSync, closeSync, lstatSync, openSync, unlinkSync, type Stats } from 'node:fs'
import { dirname, isAbsolute, join } from 'node:path'
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Config } from '../config/config.ts'
import { serviceEnvironment, unitNames, accountOfSocket, systemSocket } from '../lib/account.ts'
import { fault, ok, warning, type Finding } from '../lib/finding.ts'
import { allowInUnit, remakeSockets, shellWord } from '../lib/remedy.ts'
import { isSystemDirectory } from '../lib/paths.ts'
import { randomHex } from '../lib/crypto.ts'
import { directoryProblem, directoryWarning } from '../lib/directory-access.ts'
import { errorCode, errorMessage } from '../lib/error.ts'
import { nameOf } from '../lib/posix-ids.ts'
import { nearestThere } from '../report/host.ts'
import {
  ALERT_COMMAND,
  configDirectory,
  environmentOf,
  unitCredentials,
  unitProperties,
  type SystemdState,
  type UnitProperties,
} from './systemd.ts'

/** The permissions that others need to run a script, which has to be read for that. */
const RUN_BY_OTHERS = 0o005

export type Unit = NonNullable<Awaited<ReturnType<typeof readUnit>>>

/** The facts about an account's unit that this user may see. Null if the unit is not installed, or no systemd runs here. */
export async function readUnit(account: string | undefined) {
  const { unit: name, httpUnit } = unitNames(account)
  const asked = [...ACCESS_PROPERTIES, 'ActiveState', 'Environment', 'EnvironmentFiles', 'ImportCredential']
  const properties = await unitProperties(`${name}.service`, asked)
  if (properties === null) return null
  const { RUNTIME_DIRECTORY: directory } = serviceEnvironment(account)
  /** The socket units, by the paths at which they listen. */
  const sockets = new Map<string, { name: string; state: string | undefined }>()
  for (const [socket, file] of Object.entries({
    [`${name}.socket`]: 'ipc.sock',
    [`${httpUnit}.socket`]: 'http.sock',
  })) {
    const known = await unitProperties(socket, ['ActiveState', 'Listen'])
    // systemd does not read a masked unit; its socket would be at the default path.
    if (known?.['LoadState'] === 'masked')
      sockets.set(join(directory, file), { name: socket, state: 'masked' })
    for (const path of wordsOf(known?.['Listen']))
      sockets.set(path, { name: socket, state: known?.['ActiveState'] })
  }
  return {
    account,
    /** Without its suffix. */
    name,
    properties,
    /** Null if they are not known. */
    credentials: properties['LoadState'] === 'masked' ? null : await unitCredentials(`${name}.service`),
    environment: environmentOf(properties),
    sockets,
    runs: (file: string) => dirname(file) === configDirectory(account),
  }
}

/** A fault for each directory that the unit may not write to, and for each input that it may not read, by path. */
export function accessFindings(
  { file, inputs }: Config,
  { account, name, properties }: Unit,
  written: readonly WrittenDirectory[],
): ReadonlyMap<string, Finding> {
  const outputs = written.map(({ path, setting }) => {
    const verb = accessProblem(properties, path, 'read') === undefined ? 'written' : 'seen'
    return { path, use: 'write', subject: `${setting}: the directory ${path} cannot be ${verb}` } as const
  })
  const read = inputs.map(
    (path) => ({ path, use: 'read', subject: `the file ${path} cannot be read` }) as const,
  )
  const findings = new Map<string, Finding>()
  for (const { path, use, subject } of [...outputs, ...read]) {
    const problem = accessProblem(properties, path, use)
    if (problem === undefined) continue
    const remedy =
      problem.settings === null
        ? 'set a path elsewhere, such as below /srv'
        : `set another path, or allow this one: ${allowInUnit(account, problem.settings).join(' && ')}`
    findings.set(path, fault(`${file}: ${subject} by ${name}.service (${problem.because}): ${remedy}`))
  }
  return findings
}

/** Findings about drop-ins whose directories must exist, about credentials, and about the alert command. For root. */
export function unitFindings(
  { name, properties, credentials }: Pick<Unit, 'name' | 'properties' | 'credentials'>,
  { systemdCredentials: wanted, file }: Pick<Config, 'systemdCredentials' | 'file'>,
  alerts: Omit<SystemdState, 'unit'>,
): Finding[] {
  const unit = `${name}.service`
  const neededPaths = wordsOf(properties['ReadWritePaths']).filter((path) => isAbsolute(path))
  const lostCredentials = credentials?.filter(({ path }) => isAbsolute(path) && !existsSync(path)) ?? []
  const hidesAny = credentials === null || (properties['ImportCredential'] ?? '') !== ''
  const unknown = hidesAny ? [] : wanted.filter((id) => !credentials.some((one) => one.id === id))
  return [
    ...neededPaths.map((path) => {
      const setting = `a drop-in of ${unit} has ReadWritePaths=${path}`
      const remedy = `write ReadWritePaths=-${path}, then sudo systemctl daemon-reload`
      return existsSync(path)
        ? warning(`${setting}: without that directory the daemon would not start; ${remedy}`)
        : fault(`${setting}, which does not exist, so the daemon does not start (226/NAMESPACE): ${remedy}`)
    }),
    ...lostCredentials.map(({ id, path }) =>
      fault(
        `a drop-in of ${unit} loads the credential ${id} from ${path}, which does not exist, so the daemon does not start (243/CREDENTIALS): make the file, or correct the drop-in and run sudo systemctl daemon-reload`,
      ),
    ),
    ...unknown.map((id) =>
      fault(
        `${file}: ${unit} loads no credential ${id}: add LoadCredential=${id}:/PATH to it (sudo systemctl edit ${unit}), then sudo systemctl restart ${unit}`,
      ),
    ),
    ...alertCommandFindings(alerts),
  ]
}

/** Findings about the alert command, which its unit runs as another user than root. */
function alertCommandFindings({ alertCommand, alertProblem }: Omit<SystemdState, 'unit'>): Finding[] {
  const mode = statSync(ALERT_COMMAND, { throwIfNoEntry: false })?.mode
  if (mode === undefined) return []
  const isRunnable = (mode & RUN_BY_OTHERS) === RUN_BY_OTHERS
  const sentence = `the alert command cannot be run by its unit: sudo chmod 755 ${ALERT_COMMAND}`
  const failure = alertCommand?.failure ?? null
  return [
    ...(isRunnable ? [] : [fault(sentence)]),
    ...(alertProblem === null ? [] : [warning(alertProblem)]),
    ...(failure === null ? [] : [warning(`the alert command failed at its last run, ${failure}`)]),
  ]
}

/** The finding about a socket of the units. Makes no connection, which would start the daemon. Undefined: no unit has it. */
export function unitSocketFinding(
  { path, name }: { path: string; name: string },
  unit: Unit | null,
): Finding | undefined {
  if (unit === null) return undefined
  const own = unit.sockets.get(path)
  if (own === undefined) return undefined
  if (own.state !== 'active') {
    // The socket alone cannot be started beside a daemon that runs.
    const unmask = own.state === 'masked' ? `sudo systemctl unmask ${own.name} && ` : ''
    const remedy = `${unmask}sudo systemctl restart ${unit.name}`
    return warning(`${name} is closed, because ${own.name} is ${own.state}: ${remedy}`)
  }
  if (statsOf(path, lstatSync) === undefined)
    return fault(
      `${name} was removed, so that no client finds it: ${remakeSockets(unit.account).join(' && ')}`,
    )
  return ok(
    unit.properties['ActiveState'] === 'active'
      ? `${name} is served by ${unit.name}.service, which runs`
      : `${name} is open: ${own.name} listens, and the next client starts the daemon`,
  )
}

// ---- The rules: may a unit write at a path, may it read there? Pure, of the properties that systemd shows. ----

const ACCESS_PROPERTIES = ['ProtectSystem', 'ProtectHome', 'PrivateTmp', 'ReadWritePaths', 'StateDirectory']
const HOMES = ['/home', '/root', '/run/user']
const PRIVATE_TMPS = ['/tmp', '/var/tmp']
const ALWAYS_WRITABLE = ['/dev', '/proc', '/sys']

/** The first rule that forbids a path counts. `allows`: further settings of a drop-in that allow it; null: none does. */
const readRules = [
  { setting: 'ProtectHome', values: ['yes', 'tmpfs'], below: HOMES, allows: ['ProtectHome=read-only'] },
  // At these paths the unit has directories of its own, which no other program sees.
  { setting: 'PrivateTmp', values: ['yes', 'disconnected'], below: PRIVATE_TMPS, allows: null },
]
/** Rules for paths that the unit does not list as writable. */
const writeRules = [
  { setting: 'ProtectHome', values: ['read-only'], below: HOMES, allows: [] },
  { setting: 'ProtectSystem', values: ['strict'], below: [''], allows: [] },
]

/** Why the unit cannot use this path for `use`, whatever its mode, and the settings that allow it; undefined if it can. */
export function accessProblem(
  unit: UnitProperties,
  path: string,
  use: 'read' | 'write',
): { because: string; settings: readonly string[] | null } | undefined {
  const states = wordsOf(unit['StateDirectory']).map((name) => join('/var/lib', name.split(':')[0] ?? ''))
  const listed = wordsOf(unit['ReadWritePaths']).map((word) => word.replace(/^[-+]+/, ''))
  const isWritten = use === 'write' && !isBelowOne([...listed, ...states, ...ALWAYS_WRITABLE], path)
  const rule = [...readRules, ...(isWritten ? writeRules : [])].find(
    ({ setting, values, below }) => values.includes(unit[setting] ?? '') && isBelowOne(below, path),
  )
  if (rule === undefined) return undefined
  const { setting, allows } = rule
  const because = `${setting}=${unit[setting]}`
  const allow = use === 'write' ? [`ReadWritePaths=-${path}`] : []
  return { because, settings: allows === null ? null : [...allows, ...allow] }
}

function wordsOf(list = ''): string[] {
  return list.match(/\S+/g) ?? []
}

function isBelowOne(parents: readonly string[], path: string): boolean {
  return parents.some((parent) => path === parent || path.startsWith(`${parent}/`))
}

/** A directory that the daemon writes to. */
export interface WrittenDirectory {
  readonly path: string
  /** The setting that names it. */
  readonly setting: string
  /** Its name in a finding. */
  readonly name: string
  /** The one who makes the directory, which then need not exist yet; null: it must exist. */
  readonly maker: 'daemon' | 'systemd' | null
}

export function directoryFinding({ path, setting, name, maker }: WrittenDirectory): Finding {
  const stats = statsOf(path, statSync)
  if (stats === 'hidden')
    return fault(`${name} cannot be seen: let the daemon's user enter the directories above it`)
  if (stats === undefined) {
    if (maker === 'systemd') return ok(`${name} will be made by systemd`)
    if (maker === 'daemon') return missing(path, name)
    return fault(`${name} does not exist: make it (mkdir ${shellWord(path)})`)
  }
  if (!stats.isDirectory()) return fault(`${name} is not a directory: remove it, or set another`)
  // The daemon opens its own directories, and those of files, without following a link.
  if (lstatSync(path).isSymbolicLink())
    return fault(`${name} is a symbolic link, which another could replace: name the directory itself`)
  const error = tryToWrite(path)
  if (error !== undefined) return fault(`${name} ${cannotWrite(path, error)}`)
  const uid = process.geteuid!()
  const isSystem = isSystemDirectory(path)
  const problem = directoryProblem(path, stats, {
    uid,
    use: setting.startsWith('tokenFiles') ? 'files' : 'sockets',
  })
  if (problem !== undefined)
    return fault(
      `${name} ${isSystem ? `serves the whole system: ${ownDirectory(path)}` : `is not safe: ${problem}`}`,
    )
  const unwise = directoryWarning(path, stats, uid)
  return unwise === undefined || isSystem
    ? ok(`${name} can be written`)
    : warning(`${name} can be written, but ${unwise}`)
}

/** Checks that the daemon can listen here. */
export async function socketFinding({ path, name }: { path: string; name: string }): Promise<Finding> {
  const stats = statsOf(path, lstatSync)
  if (stats === undefined || stats === 'hidden') return ok(`${name} is free`)
  if (!stats.isSocket())
    return fault(`${name} is taken by something that is not a socket: remove it (rm ${shellWord(path)})`)
  const socket = connect(path)
  try {
    await once(socket, 'connect')
    return ok(`${name} is answered: a daemon runs`)
  } catch (error) {
    return errorCode(error) === 'ECONNREFUSED'
      ? ok(`${name} was left behind by a daemon that is gone; the next one replaces it`)
      : warning(
          `${name} exists and cannot be tried (${errorMessage(error)}): run this as the user that runs the daemon`,
        )
  } finally {
    socket.destroy()
  }
}

/** The user's name, for remedies. */
function user(): string {
  return nameOf('user', process.geteuid!())
}

function missing(path: string, name: string): Finding {
  if (tryToWrite(nearestThere(dirname(path))) === undefined) return ok(`${name} will be made`)
  const account = accountOfSocket(join(path, 'ipc.sock'))
  return path === dirname(systemSocket(account))
    ? fault(`${name} was removed: make it and its sockets again (${remakeSockets(account).join(' && ')})`)
    : fault(
        `${name} does not exist and cannot be made: make it as root (install -d -m 0700 -o ${user()} ${shellWord(path)}), or set another`,
      )
}

function statsOf(path: string, read: (path: string) => Stats): Stats | 'hidden' | undefined {
  try {
    return read(path)
  } catch (error) {
    return errorCode(error) === 'EACCES' ? 'hidden' : undefined
  }
}

/** Makes and removes a file. Returns the error of whatever forbids it: modes, access lists, a mount, a quota, a policy. */
function tryToWrite(directory: string): unknown {
  const path = join(directory, `.kyc-tokend-check-${randomHex(6)}`)
  try {
    closeSync(openSync(path, 'wx', 0o600))
    unlinkSync(path)
    return undefined
  } catch (error) {
    return error
  }
}

function cannotWrite(path: string, error: unknown): string {
  const denied = `may not be written by ${user()}: ${isSystemDirectory(path) ? ownDirectory(path) : `give it to that user (chown ${user()} ${shellWord(path)}), or set another`}`
  const full = 'is on a file system that is full: free some space on it'
  const sentences: Readonly<Record<string, string>> = {
    EROFS:
      'is on a read-only file system: under systemd name it in a ReadWritePaths= drop-in, or set another',
    ENOSPC: full,
    EDQUOT: full,
    EACCES: denied,
    EPERM: denied,
  }
  return sentences[errorCode(error) ?? ''] ?? `cannot be written (${errorMessage(error)}): set another`
}

function ownDirectory(path: string): string {
  const own = join(path, 'kyc-tokend')
  return `make a directory of its own (install -d -m 2750 -o ${user()} ${shellWord(own)}) and set that`
}
