// `kyc-tokend check`: every fault of configuration, permissions, directories, sockets, host and service,
// each with its remedy.
import { readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Writable } from 'node:stream'
import { loadParsers } from '../config/load.ts'
import { accountOfConfig, serviceEnvironment } from '../host/account.ts'
import { exitStatus, UserError, withSystemFallback } from '../lib/error.ts'
import { fault, ok, warning, type Finding } from '../host/finding.ts'
import { SERVICE_USER, socketCandidates, SYSTEM_CONFIG_DIRECTORY } from '../host/paths.ts'
import { localUser, nameOf } from '../host/ids.ts'
import { commandsAt, programCommand, takeOverStep, unitPlace, type Place } from '../host/place-commands.ts'
import { SYSTEM_PATH } from '../lib/run-program.ts'
import { alertState } from '../host/alert-command.ts'
import { configurationOf, statusIfAny } from '../terminal/ask.ts'
import {
  inodeOf,
  examine,
  type Examination,
  type ExaminedConfig,
  type ExamineRequest,
} from './check-examine.ts'
import { dropInFindings } from './check-drop-ins.ts'
import { pathFindings } from './check-paths.ts'
import { createReport, type Report } from './check-report.ts'
import { socketUnitFindings } from './check-sockets.ts'
import {
  answerRequest,
  asSeenOutside,
  becomeServiceUser,
  REQUEST_VARIABLE,
  examineInCopy,
  MAKE_BELOW_SRV,
} from './check-copy.ts'
import { readUnit, unitFindings, type Unit } from './check-unit.ts'
import type { StatusResult } from '../protocol.ts'
import type { RunCommand } from '../terminal/command.ts'
import { announce } from '../terminal/prompt.ts'
import { configDirectory } from '../host/system-config.ts'

interface CheckOptions extends ExamineRequest {
  readonly env: NodeJS.ProcessEnv
  /** Also asks a running daemon for its status. */
  readonly asksDaemon: boolean
  readonly signal: AbortSignal
  readonly stderr: Writable
}

export const run: RunCommand = async ({ options, env, stdin, stdout, stderr, signal }) => {
  if (env[REQUEST_VARIABLE] !== undefined) {
    stdout.write(await answerRequest(stdin, { env, signal }))
    return exitStatus.ok
  }
  const [isWhole, isLive] = [options['config-only'] !== true, options['live'] === true]
  const report = createReport(stdout, 'check')
  const configuration = configurationOf({ options, env })
  const { status } = await performCheck(
    { ...configuration, isWhole, isLive, asksDaemon: true, signal, stderr },
    report,
  )
  report.end()
  return status
}

/** For `setup`: what it has staged. A running daemon may hold another pair, which is about to be replaced. */
export async function checkStaged(
  options: Omit<CheckOptions, 'isWhole' | 'asksDaemon'> & { readonly stdout: Writable },
): ReturnType<typeof performCheck> {
  const report = createReport(options.stdout, 'setup')
  return performCheck({ ...options, isWhole: true, asksDaemon: false }, report)
}

/**
 * Reports all findings. Gives the exit status, and that for the service's answer alone (null if it was not
 * asked). Throws UserError: 77 if this user may not read the configuration, 69 if systemd does not answer root.
 */
async function performCheck(
  options: CheckOptions,
  report: Report,
): Promise<{ status: number; live: number | null; reason: string | null }> {
  const { isWhole, isLive, signal } = options
  // Programs run as the caller, who may be root: the PATH must not be one that another user set.
  process.env['PATH'] = SYSTEM_PATH
  const unit = await unitOf(options)
  if (isLive) announce(options.stderr, 'Asking the service')
  const dropIns = unit === null ? [] : dropInFindings(unit.dropIns)
  if (dropIns.length > 0) {
    // All else that could be found would be their consequence, and have another remedy.
    report.say('unit', ...dropIns)
    return { status: exitStatus.configuration, live: null, reason: null }
  }
  const inside = unit && (await examineInside(options, unit, report))
  const examination = inside ?? (await examineHere(options, unit !== null, report))
  refuseReader(examination)
  const daemon = await askDaemon(options, unit, examination)
  if (daemon?.daemon.configuration.pair !== undefined) report.putBehindOtherPair()
  for (const { subject, ...finding } of examination.findings)
    report.say(subject, unit && inside ? asSeenOutside(finding, unit.name) : finding)
  if (isWhole)
    await checkHost(
      options,
      { unit, config: examination.config, isStarted: inside !== null, status: daemon },
      report,
    )
  signal.throwIfAborted()
  const { live, reason } = examination
  return { status: report.faults() > 0 ? exitStatus.configuration : (live ?? exitStatus.ok), live, reason }
}

/**
 * The status of a daemon that runs with this file, whose sockets may be those of its former content; else of the
 * one that answers at its socket. Null: none does, or it is not to be asked.
 */
async function askDaemon(
  { isWhole, asksDaemon, env }: CheckOptions,
  unit: Unit | null,
  { config }: Examination,
): Promise<StatusResult | null> {
  if (!isWhole || !asksDaemon || config === null || !(unit?.isActive ?? true)) return null
  const [ipc, http] = config.sockets
  const former =
    unit === null
      ? [...socketsIn(config.runtimeDirectory), ...socketCandidates({ env, uid: process.geteuid!() })]
      : unit.sockets.flatMap(({ name, path }) => (name === 'ipc' && path !== null ? [path] : []))
  const paths = new Set([ipc?.path ?? '', ...former.filter((path) => path !== http?.path)])
  const found = await Promise.all([...paths].map(async (path) => statusIfAny(path)))
  return found.find((status) => status?.daemon.configFile === config.file) ?? found[0] ?? null
}

function socketsIn(directory: string): string[] {
  const entries = withSystemFallback([], () => readdirSync(directory, { withFileTypes: true }))
  return entries.filter((entry) => entry.isSocket()).map(({ name }) => join(directory, name))
}

/** What this process sees itself, and what systemd and a running daemon know. */
async function checkHost(
  { account, asksDaemon }: CheckOptions,
  {
    unit,
    config,
    isStarted,
    status,
  }: { unit: Unit | null; config: ExaminedConfig | null; isStarted: boolean; status: StatusResult | null },
  report: Report,
): Promise<void> {
  if (unit !== null) {
    if (config !== null && isStarted) report.say('directories', ...ownDirectoryFindings(config, unit.name))
    report.say('unit', ...unitFindings(unit, { alerts: await alertState(account), isStarted }))
  }
  if (config === null) return
  if (unit !== null)
    report.say('sockets', ...socketUnitFindings({ unit, config, handedOver: null, isSetup: !asksDaemon }))
  const isOfFile = status?.daemon.configFile === config.file
  const place = { account, isUnit: unit !== null, pid: isOfFile ? status.daemon.pid : undefined }
  report.say('paths', ...(await pathFindings(config, unit, place)))
  report.say('files', ...absentFileFindings(status))
  report.say('secrets', ...pairFindings(isOfFile ? status : null))
  report.say('configuration', ...(isOfFile ? changedFindings(status, place) : otherFindings(status)))
  const { hostFindings } = await import('./check-host.ts')
  report.say('host', ...(await hostFindings(config)))
}

/** The unit that runs with this configuration; null: there is none. Throws UserError (69). */
async function unitOf({ account, configPath, env }: CheckOptions): Promise<Unit | null> {
  const named = configPath ?? (env['KYC_TOKEND_CONFIG'] || undefined)
  // A person's own configuration comes first.
  const isOfUnit =
    named === undefined ? process.geteuid!() === 0 : dirname(named) === configDirectory(account)
  return isOfUnit ? readUnit(account) : null
}

/**
 * What the daemon would see in its unit; null: nobody but root can examine that, or systemd cannot start it,
 * which is reported.
 */
async function examineInside(options: CheckOptions, unit: Unit, report: Report): Promise<Examination | null> {
  if (unit.isMasked || process.geteuid!() !== 0) return null
  const { configPath, account, staged, isWhole, isLive, signal } = options
  const answer = await examineInCopy(unit, { configPath, account, staged, isWhole, isLive }, signal)
  if ('examination' in answer) {
    report.say('unit', ok(`examined from within a copy of ${unit.name}.service`))
    return answer.examination
  }
  report.say('unit', answer.finding)
  return null
}

async function examineHere(options: CheckOptions, isUnit: boolean, report: Report): Promise<Examination> {
  // The user of the unit was removed: what root or another user sees says nothing.
  if (isUnit && localUser(SERVICE_USER) === undefined)
    return { findings: [], live: null, reason: null, isDenied: false, file: undefined, config: null }
  // The user kyc-tokend may not be able to read the program's files later.
  await loadParsers()
  const user = process.geteuid!() === 0 ? localUser(SERVICE_USER) : undefined
  const isElsewhere = user !== undefined
  if (isElsewhere) report.say('user', ok(`checked as the user ${SERVICE_USER}`))
  const env = { ...options.env, ...(isElsewhere && serviceEnvironment(options.account)) }
  const end = user && becomeServiceUser(user)
  return examine(options, { env, isElsewhere, isUnit, signal: options.signal }).finally(end)
}

/** Directories of which the unit has one of its own, in which no other program finds a file. */
function ownDirectoryFindings({ file, directories }: ExaminedConfig, unit: string): Finding[] {
  return directories
    .filter(({ path, inode }) => inode !== null && ![null, inode].includes(inodeOf(path)))
    .map(({ path }) => {
      const cause = `${unit}.service has a directory of its own at ${path} (PrivateTmp= or the like)`
      return fault(
        `${file}: ${cause}, which no other program sees; make a directory below /srv and set that`,
        [MAKE_BELOW_SRV],
      )
    })
}

/** A user who may not read the daemon's files must not be advised to open them: root checks them. */
function refuseReader({ file = '', isDenied }: Pick<Examination, 'file' | 'isDenied'>): void {
  const user = nameOf('user', process.geteuid!())
  const isOfSystem = file.startsWith(`${SYSTEM_CONFIG_DIRECTORY}/`)
  if (!isDenied || !isOfSystem || process.geteuid!() === 0 || user === SERVICE_USER) return
  const command = programCommand('check', unitPlace(accountOfConfig(file)))
  const message = `${file} or a secret in it cannot be read by ${user}: run \`${command}\`.`
  throw new UserError(message, exitStatus.noPermission)
}

/** Token files that are not there although there is a token: they were removed, and are written again. */
function absentFileFindings(status: StatusResult | null): Finding[] {
  if (status === null || !['ready', 'degraded'].includes(status.state)) return []
  const absent = status.files.filter(({ ok: isWritten, present }) => isWritten && !present)
  return absent.map(({ path }) => warning(`${path} is not there: the daemon writes it within 15 s`))
}

/** The finding about another pair in the secret files, which a running daemon has tried. */
function pairFindings(status: StatusResult | null): Finding[] {
  const { problem, pair } = status?.daemon.configuration ?? {}
  if (!problem || pair === undefined) return []
  return [pair === 'refused' ? fault(problem) : warning(problem)]
}

/** The finding about a daemon with another file, at the socket of this one. */
function otherFindings(status: StatusResult | null): Finding[] {
  if (status === null) return []
  return [warning(`the daemon that answers there runs with ${status.daemon.configFile}, not with this file`)]
}

/** The finding about a configuration that is good, and that a running daemon has not taken over. */
function changedFindings(status: StatusResult, place: Place): Finding[] {
  const step = takeOverStep(status)
  if (step === null) return []
  const text = 'the daemon runs with a former configuration'
  const why = step === 'reload' ? '' : `, because ${status.daemon.configuration.problem}`
  return [warning(`${text}${why}`, commandsAt(step, place))]
}
