// Examines what the daemon would see: its configuration, the directories that it writes to, its sockets, the
// shared store, the service. With the rights of the process itself, which is the daemon's user within the
// sandbox of its unit, or a person.
import { lstatSync, statSync, unlinkSync, writeFileSync, type Stats } from 'node:fs'
import { once } from 'node:events'
import { connect } from 'node:net'
import { dirname, join } from 'node:path'
import type { Config } from '../config/config.ts'
import { formatIssue, type ConfigIssue } from '../config/issues.ts'
import { readReadyAssertion } from '../config/ready-assertion.ts'
import { inspectConfig, type Inspection } from '../config/load.ts'
import {
  heldTarget,
  lstatIfAny,
  refuseOddTarget,
  unsafeDirectory,
  unwiseDirectory,
} from '../files/atomic-file.ts'
import { asFileError, FileError } from '../files/file-error.ts'
import { accessListOf } from '../lib/access-list.ts'
import { createSystemClock } from '../lib/clock.ts'
import { randomHex } from '../lib/crypto.ts'
import { formatDuration } from '../lib/duration.ts'
import { isHeldBySticky } from '../lib/directory-access.ts'
import { errorCode, errorMessage, fallbackOnSystemError, withSystemFallback } from '../lib/error.ts'
import { fault, ok, warning, type Finding } from '../host/finding.ts'
import { nameOf } from '../host/ids.ts'
import { isFoundByClients, isSystemDirectory } from '../host/paths.ts'
import { placeAt, programCommand, rendered, type Place } from '../host/place-commands.ts'
import { absentRemedy, fileRemedy, fileSentence, nearestThere, ownDirectory } from '../host/file-remedy.ts'
import { serviceEnvironment } from '../host/account.ts'
import { credentialsEnd, endRemedies, isEndNear } from '../report/credentials-end.ts'
import { askOnce } from './check-live.ts'
import { endInWords } from '../terminal/format-status.ts'

/** What is to be examined. It goes to the copy of the unit as JSON. */
export interface ExamineRequest {
  readonly configPath: string | undefined
  readonly account: string | undefined
  /** Files that are read instead of others, which they are about to replace, by the paths of the latter. */
  readonly staged?: readonly (readonly [path: string, instead: string])[] | undefined
  /** False: the configuration alone. */
  readonly isWhole: boolean
  /** Asks the service once. */
  readonly isLive: boolean
}

type SubjectFinding = Finding & { readonly subject: string }

export interface Examination {
  readonly findings: readonly SubjectFinding[]
  /** The exit status for the service's answer alone; null: it was not asked. */
  readonly live: number | null
  /** Why the service gave no token; null: it did, or was not asked. */
  readonly reason: string | null
  /** The faults of the configuration are that a file of it cannot be read by this user. */
  readonly isDenied: boolean
  readonly file: string | undefined
  /** Null: the configuration is faulty. */
  readonly config: ExaminedConfig | null
}

/** The part of the configuration that concerns the host. */
export interface ExaminedConfig extends Pick<
  Config,
  'file' | 'baseUrl' | 'runtimeDirectory' | 'stateDirectory'
> {
  readonly sockets: readonly { path: string; mode: number; gid: number | null; isOpen: boolean }[]
  readonly tokenFiles: readonly Pick<Config['tokenFiles'][number], 'path' | 'mode' | 'gid'>[]
  /** Those that the daemon writes to. */
  readonly directories: readonly { path: string; inode: string | null }[]
}

/** `isElsewhere`: secrets that only the daemon sees are no fault. */
export async function examine(
  { configPath, staged, isWhole, isLive }: ExamineRequest,
  {
    env,
    isElsewhere,
    isUnit,
    signal,
  }: { env: NodeJS.ProcessEnv; isElsewhere: boolean; isUnit: boolean; signal: AbortSignal },
): Promise<Examination> {
  const inspection = await inspectConfig({ configPath, env, staged: new Map(staged), isElsewhere })
  const { config, unseen, file, faults } = inspection
  const findings: SubjectFinding[] = []
  const say = (subject: string, about: readonly Finding[]): void => {
    for (const finding of about) findings.push({ ...finding, subject })
  }
  const isDenied = faults.some(({ hidden }) => hidden?.isAbsent === false)
  say('configuration', configFindings(inspection))
  if (config === undefined) return { findings, live: null, reason: null, isDenied, file, config: null }

  const isFound = isUnit || isFoundByClients(config.ipc.path, { env, uid: process.geteuid!() })
  const paths = { configFile: config.file, socket: isFound ? undefined : config.ipc.path }
  const place = placeAt(paths, { isUnit })
  say('credentials', [...endFindings(config), ...(await assertionFindings(config))])
  const directories = writtenDirectories(config, place)
  if (isWhole) {
    say(
      'directories',
      await Promise.all(directories.map(async (directory) => directoryFinding(directory, place))),
    )
    say('files', await targetFindings(config, place))
    if (!isUnit) say('sockets', await socketFindings(config))
    say('share', await shareFindings(config, { unseen, place }))
  }
  const answer = isLive ? await askOnce(config, { unseen, env, place, signal }) : null
  say('service', answer?.findings ?? [])
  return {
    findings,
    live: answer?.status ?? null,
    reason: answer?.reason ?? null,
    isDenied,
    file,
    config: hostPart(config, directories),
  }
}

function configFindings({ file, faults, warnings }: Inspection): Finding[] {
  const inFile = (issue: ConfigIssue): string =>
    file === undefined ? formatIssue(issue) : `${file}: ${formatIssue(issue)}`
  return [
    ...faults.map((issue) => ({ ...fault(inFile(issue)), ...(issue.hidden && { hidden: issue.hidden }) })),
    ...warnings.map((issue) => warning(inFile(issue))),
    ...(faults.length === 0 ? [ok(`${file} is valid`)] : []),
  ]
}

/** The end of the credentials; a warning where the daemon would log it. */
function endFindings(config: Config): Finding[] {
  const nowMs = Date.now()
  const end = credentialsEnd(config, nowMs)
  if (end === null) return []
  const isNear = isEndNear(end, config, nowMs)
  return [!isNear ? ok(endInWords(end)) : warning(`${endInWords(end)}. ${endRemedies[end.what]}`)]
}

/** The end of the ready-made assertion, and who writes it. None that is good costs the token, but is no fault. */
async function assertionFindings({ service }: Config): Promise<Finding[]> {
  const file = service.assertion?.file ?? null
  if (file === null) return []
  const wallMs = Date.now()
  const read = await readReadyAssertion(file, { wallMs })
  const name = `the file ${file} (service.assertion.file)`
  if (typeof read === 'string') return [warning(`${name} ${read}: see to the program that writes it`)]
  const { endsAtMs, uid } = read
  const ends = endsAtMs === null ? 'has no end' : `ends in ${formatDuration(endsAtMs - wallMs)}`
  return [ok(`the assertion in ${file} ${ends}, and was written by ${nameOf('user', uid)}`)]
}

function hostPart(config: Config, directories: readonly WrittenDirectory[]): ExaminedConfig {
  const { file, baseUrl, runtimeDirectory, stateDirectory, tokenFiles, ipc, http } = config
  return {
    file,
    baseUrl,
    runtimeDirectory,
    stateDirectory,
    sockets: [ipc, http]
      .filter((socket) => socket !== null)
      .map(({ path, mode, gid, allow: { uids, gids } }) => {
        return { path, mode, gid, isOpen: uids.length + gids.length === 0 }
      }),
    tokenFiles: tokenFiles.map(({ path, mode, gid }) => ({ path, mode, gid })),
    directories: directories.map(({ path }) => ({ path, inode: inodeOf(path) })),
  }
}

/**
 * Device and inode of a directory: another process that sees others there does not see the same directory.
 * Null: it is not there, or may not be seen.
 */
export function inodeOf(path: string): string | null {
  return withSystemFallback(null, () => {
    const { dev, ino } = statSync(path)
    return `${dev}:${ino}`
  })
}

/** A directory that the daemon writes to. */
interface WrittenDirectory {
  readonly path: string
  /** In a finding: the setting that names it first. */
  readonly name: string
  readonly use: 'files' | 'sockets'
  /** The one who makes the directory, which then need not exist yet; null: it must exist. */
  readonly maker: 'daemon' | 'systemd' | null
}

/** Directories that the daemon writes to, each once. */
function writtenDirectories(config: Config, { account, isUnit }: Place): WrittenDirectory[] {
  const { file, runtimeDirectory, stateDirectory, tokenFiles, ipc, http } = config
  const ofUnit = isUnit ? Object.values(serviceEnvironment(account)) : []
  const ofDaemon = (name: string, path: string): WrittenDirectory => {
    return {
      path,
      name: `${name} ${path}`,
      use: 'sockets',
      maker: ofUnit.includes(path) ? 'systemd' : 'daemon',
    }
  }
  const around = (output: string, setting: string, use: WrittenDirectory['use']): WrittenDirectory => {
    const path = dirname(output)
    return { path, name: `${file}: ${setting}: the directory ${path}`, use, maker: null }
  }
  const all = [
    ofDaemon('the runtime directory', runtimeDirectory),
    ofDaemon('the state directory', stateDirectory),
    ...tokenFiles.map(({ path }, index) => around(path, `tokenFiles[${index}].path`, 'files')),
    around(ipc.path, 'ipc.path', 'sockets'),
    ...(http === null ? [] : [around(http.path, 'http.path', 'sockets')]),
  ]
  return all.filter(({ path }, index) => all.findIndex((each) => each.path === path) === index)
}

async function directoryFinding(directory: WrittenDirectory, place: Place): Promise<Finding> {
  const { path, name } = directory
  let stats: Stats
  try {
    stats = statSync(path)
  } catch (error) {
    if (errorCode(error) !== 'EACCES') return absentFinding(directory, place)
    return { ...fault(`${name} cannot be seen by the daemon`), hidden: { path, isAbsent: false } }
  }
  if (!stats.isDirectory()) return fault(`${name} is not a directory: remove it, or set another`)
  // The daemon opens its own directories, and those of files, without following a link.
  if (lstatSync(path).isSymbolicLink())
    return fault(`${name} is a symbolic link, which another could replace: name the directory itself`)
  const error = tryToWrite(path)
  if (error?.code === 'ENOENT') return fault(`${name} takes no files: set another`)
  if (error !== undefined) {
    const { text, commands } = fileRemedy(error, place)
    return fault(`${name} cannot be written, because ${text}`, commands)
  }
  return safetyFinding(directory, stats, place)
}

function absentFinding({ path, name, maker }: WrittenDirectory, place: Place): Finding {
  if (maker === 'systemd') return ok(`${name} will be made by systemd`)
  if (maker === 'daemon' && tryToWrite(nearestThere(dirname(path))) === undefined)
    return ok(`${name} will be made`)
  const { commands } = absentRemedy(path, place)
  return { ...fault(`${name} does not exist`, commands), hidden: { path, isAbsent: true } }
}

async function safetyFinding(
  { path, name, use }: WrittenDirectory,
  stats: Stats,
  place: Place,
): Promise<Finding> {
  const problem = unsafeDirectory(path, stats, { use })
  if (problem !== undefined && isSystemDirectory(path)) {
    const make = ownDirectory(path, place)
    return fault(`${name} serves the whole system: make a directory of its own and set that`, [make])
  }
  if (problem !== undefined) return fault(`${name} is not safe: ${rendered(fileRemedy(problem, place))}`)
  const unwise = unwiseDirectory(path, stats, { list: await accessListOf(path) })
  return unwise === undefined || isSystemDirectory(path)
    ? ok(`${name} can be written`)
    : warning(`${name} can be written, but ${rendered(fileRemedy(unwise, place))}`)
}

async function targetFindings({ file, tokenFiles }: Config, place: Place): Promise<Finding[]> {
  const findings = tokenFiles.map(async ({ path }, index) => {
    const found = await lstatIfAny(path).catch(fallbackOnSystemError(null))
    const where = `${file}: tokenFiles[${index}].path`
    try {
      refuseOddTarget(path, found)
    } catch (error) {
      if (!(error instanceof FileError)) throw error
      return [fault(`${where}: ${fileSentence(error, place)}`)]
    }
    const directory = withSystemFallback(null, () => statSync(dirname(path)))
    if (found === null || directory === null || !isHeldBySticky(found, directory)) return []
    const { text, commands } = fileRemedy(heldTarget(path, found), place)
    return [fault(`${where}: ${path} cannot be replaced: ${text}`, commands)]
  })
  return (await Promise.all(findings)).flat()
}

/** Checks that a daemon of a person can listen. Makes connections. */
async function socketFindings({ ipc, http }: Config): Promise<Finding[]> {
  return Promise.all([
    socketFinding('node-ipc', ipc.path),
    ...(http === null ? [] : [socketFinding('HTTP', http.path)]),
  ])
}

async function socketFinding(protocol: string, path: string): Promise<Finding> {
  const name = `the ${protocol} socket ${path}`
  const socket = connect(path)
  try {
    await once(socket, 'connect')
    return ok(`${name} is answered: a daemon runs`)
  } catch (error) {
    const code = errorCode(error)
    // The table of paths tells of what is no socket.
    if (code === 'ENOENT' || code === 'ECONNREFUSED') return ok(`${name} is free`)
    const why = errorMessage(error)
    return warning(`${name} cannot be tried (${why}): run this as the user that runs the daemon`)
  } finally {
    socket.destroy()
  }
}

/** Findings about the shared store: it is used as the daemon would, and left as it was. */
async function shareFindings(
  { share }: Config,
  { unseen, place }: { unseen: readonly string[]; place: Place },
): Promise<readonly Finding[]> {
  if (share === null) return []
  const hidden = unseen.filter((setting) => setting.startsWith('share.'))
  if (hidden.length > 0) {
    const why = `cannot be tried from here, because only the daemon sees ${hidden.join(' and ')}`
    return [warning(`${why}: see \`${programCommand('status', place)}\``)]
  }
  const { checkStore } = await import('../share/check.ts')
  return checkStore(share, { clock: createSystemClock(), random: Math.random })
}

/**
 * Makes and removes a file. Returns the error of whatever forbids it: modes, access lists, a mount, a
 * quota, a policy.
 */
function tryToWrite(directory: string): FileError | undefined {
  const path = join(directory, `.kyc-tokend-check-${randomHex(6)}`)
  try {
    // A file without content fits on a full disk, too.
    writeFileSync(path, '\0'.repeat(4_096), { flag: 'wx', mode: 0o600 })
    unlinkSync(path)
    return undefined
  } catch (error) {
    // A disk that is full has its name already.
    withSystemFallback(undefined, () => unlinkSync(path))
    const known = asFileError(path, error)
    if (!(known instanceof FileError)) throw known
    return known
  }
}
