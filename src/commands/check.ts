// `kyc-tokend check`: every fault of configuration, permissions, directories, sockets, host and service,
// each with its remedy.
import type { Writable } from 'node:stream'
import { styleText } from 'node:util'
import { isLoopbackHost } from '../config/base-url.ts'
import { loadParsers, type LoadOptions } from '../config/load.ts'
import { accountOfConfig, accountWords, serviceEnvironment } from '../lib/account.ts'
import { capitalized, escapeUnsafe } from '../lib/display-text.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { fault, ok, warning, type Finding } from '../lib/finding.ts'
import { SERVICE_USER, SYSTEM_CONFIG_DIRECTORY } from '../lib/paths.ts'
import { groupsOf, localUser, nameOf } from '../lib/posix-ids.ts'
import { SYSTEM_PATH } from '../lib/run-program.ts'
import { configurationOf, statusIfAny, type Configuration } from './ask.ts'
import { idOf, look, type Looked, type LookedConfig } from './check-look.ts'
import { pathFindings } from './check-paths.ts'
import { answerLook, asSeenOutside, LOOK_VARIABLE, lookFromUnit } from './check-copy.ts'
import { readUnit, unitFindings, unitSocketFindings, type Unit } from './check-unit.ts'
import type { RunCommand } from './command.ts'
import { counted } from './format-status.ts'
import { announce } from './prompt.ts'
import { alertState } from './systemd.ts'

interface CheckOptions extends Configuration {
  /** False: the configuration alone. */
  readonly isWhole: boolean
  readonly isLive: boolean
  /** Also asks a running daemon for its status. */
  readonly asksDaemon: boolean
  /** In the unit, which is to be reloaded. */
  readonly isReload?: boolean
  readonly staged?: LoadOptions['staged']
  readonly signal: AbortSignal
  readonly stderr: Writable
}

export const run: RunCommand = async ({ options, env, stdin, stdout, stderr, signal }) => {
  if (env[LOOK_VARIABLE] !== undefined) {
    stdout.write(await answerLook(stdin, { env, signal }))
    return exitStatus.ok
  }
  const isWhole = options['config-only'] !== true
  // At a reload the daemon itself logs all but the faults, so that the journal has each finding once.
  const isReload = !isWhole && env['JOURNAL_STREAM'] !== undefined
  const report = createReport(stdout, isReload ? 'reload' : 'check')
  const how = { isWhole, isLive: options['live'] === true, asksDaemon: true, isReload, signal, stderr }
  const { status } = await performCheck({ ...configurationOf({ options, env }), ...how }, report)
  report.end()
  return status
}

/**
 * Reports all findings. Gives the exit status, and that for the service's answer alone (null if it was not
 * asked). Throws UserError (77) if this user may not read the configuration.
 */
export async function performCheck(
  options: CheckOptions,
  report: Report,
): Promise<{ status: number; live: number | null; reason: string | null }> {
  const { isWhole, isLive, isReload = false, signal } = options
  // Programs run as the caller, who may be root: the PATH must not be one that another user set.
  process.env['PATH'] = SYSTEM_PATH
  const unit = isReload ? null : await unitOf(options)
  if (isLive) announce(options.stderr, 'Asking the service')
  const seen = await lookInside(options, unit, report)
  const looked = seen ?? (await lookHere(options, unit, report))
  refuseReader(looked)
  for (const { subject, ...sighting } of looked.sightings)
    report.say(subject, unit === null ? sighting : asSeenOutside(sighting, unit.name))
  if (isWhole && unit !== null)
    await checkUnit({ options, unit, report, config: looked.config, isStarted: seen !== null })
  if (isWhole && looked.config !== null) await checkHost({ options, unit, report, config: looked.config })
  signal.throwIfAborted()
  const { live, reason } = looked
  return { status: report.faults() > 0 ? exitStatus.configuration : (live ?? exitStatus.ok), live, reason }
}

interface Surroundings<Config> {
  readonly options: CheckOptions
  readonly report: Report
  readonly config: Config
}

async function checkUnit(
  on: Surroundings<LookedConfig | null> & { unit: Unit; isStarted: boolean },
): Promise<void> {
  const { options, unit, report, config, isStarted } = on
  if (config !== null && isStarted) report.say('directories', ...ownDirectoryFindings(config, unit.name))
  const alerts = await alertState(options.account)
  report.say('unit', ...(await unitFindings(unit, { config, alerts, isStarted })))
  if (config !== null) report.say('sockets', ...unitSocketFindings(unit, config))
}

/** What this process sees itself, and what a running daemon knows. */
async function checkHost(on: Surroundings<LookedConfig> & { unit: Unit | null }): Promise<void> {
  const { options, unit, report, config } = on
  report.say('paths', ...(await pathFindings(config, unit, placeOfCheck(options, unit))))
  if (options.asksDaemon && (unit === null || unit.isActive))
    report.say('secrets', ...(await pairFindings(config.sockets[0]?.path)))
  const { hostFindings } = await import('./check-host.ts')
  const directories = config.directories.map(({ path }) => path)
  const isServiceLocal = isLoopbackHost(new URL(config.baseUrl).hostname)
  report.say('host', ...(await hostFindings({ directories, isServiceLocal })))
}

const nothingSeen: Looked = {
  sightings: [],
  live: null,
  reason: null,
  isDenied: false,
  file: undefined,
  config: null,
}

/** The unit that runs with this configuration; null: there is none. */
async function unitOf({ account, configPath, env }: CheckOptions): Promise<Unit | null> {
  const unit = await readUnit(account)
  const named = configPath ?? (env['KYC_TOKEND_CONFIG'] || undefined)
  if (unit === null || (named !== undefined && !unit.runs(named))) return null
  // A person's own configuration comes first.
  return named === undefined && process.geteuid!() !== 0 ? null : unit
}

const placeOfCheck = ({ account }: CheckOptions, unit: Unit | null) => ({ account, isUnit: unit !== null })

/**
 * What the daemon would see in its unit; null: nobody but root can look so, or systemd cannot start it,
 * which is reported.
 */
async function lookInside(options: CheckOptions, unit: Unit | null, report: Report): Promise<Looked | null> {
  if (unit === null || unit.isMasked || process.geteuid!() !== 0) return null
  const { configPath, staged, isWhole, isLive, signal } = options
  const request = { configPath, staged: [...(staged ?? [])], isWhole, isLive }
  const answer = await lookFromUnit(unit, request, signal)
  if ('looked' in answer) {
    report.say('unit', ok(`looked from within a copy of ${unit.name}.service`))
    return answer.looked
  }
  report.say('unit', ...answer.findings)
  return null
}

async function lookHere(options: CheckOptions, unit: Unit | null, report: Report): Promise<Looked> {
  const { account, configPath, staged, isWhole, isLive, signal } = options
  // The user of the unit was removed: what root or another user sees says nothing.
  if (unit !== null && localUser(SERVICE_USER) === undefined) return nothingSeen
  // The user kyc-tokend may not be able to read the program's files later.
  await loadParsers()
  const identity = becomeServiceUser(options.env, account)
  if (identity.isElsewhere) report.say('user', ok(`checked as the user ${SERVICE_USER}`))
  const { isElsewhere, env } = identity
  const place = placeOfCheck(options, unit)
  return look({ configPath, env, staged, isElsewhere, isWhole, isLive, place, signal }).finally(identity.end)
}

/** Directories of which the unit has one of its own, in which no other program finds a file. */
function ownDirectoryFindings({ file, directories }: LookedConfig, unit: string): Finding[] {
  return directories
    .filter(({ path, id }) => id !== null && ![null, id].includes(idOf(path)))
    .map(({ path }) => {
      const why = `${unit}.service has a directory of its own at ${path} (PrivateTmp= or the like), which no other program sees`
      return fault(`${file}: ${why}; make a directory below /srv and set that`, [
        `sudo install -d -m 2750 -o ${SERVICE_USER} -g kyc-token /srv/kyc-tokend`,
      ])
    })
}

/** Acts as the daemon's user until `end`, if root asks and that user exists: so the kernel itself decides. */
function becomeServiceUser(env: NodeJS.ProcessEnv, account: string | undefined) {
  const service = serviceEnvironment(account)
  const user = process.geteuid!() === 0 ? localUser(SERVICE_USER) : undefined
  if (user === undefined) {
    // A reload's check runs in the unit, and older systemd does not pass it the directory of the credentials.
    const { CREDENTIALS_DIRECTORY } = service
    const known = env['RUNTIME_DIRECTORY'] === undefined ? {} : { CREDENTIALS_DIRECTORY }
    return { isElsewhere: false, env: { ...known, ...env }, end: () => undefined }
  }
  const before = { groups: process.getgroups!(), gid: process.getegid!() }
  process.setgroups!([user.gid, ...groupsOf(SERVICE_USER)])
  process.setegid!(user.gid)
  process.seteuid!(user.uid)
  return {
    /** Acting as the daemon's user, which this process was not started as. */
    isElsewhere: true,
    /** The environment that systemd would set for the unit. */
    env: { ...env, ...service },
    end() {
      process.seteuid!(0)
      process.setegid!(before.gid)
      process.setgroups!(before.groups)
    },
  }
}

/** A user who may not read the daemon's files must not be advised to open them: root checks them. */
function refuseReader({ file = '', isDenied }: Looked): void {
  const user = nameOf('user', process.geteuid!())
  const isOfSystem = file.startsWith(`${SYSTEM_CONFIG_DIRECTORY}/`)
  if (!isDenied || !isOfSystem || process.geteuid!() === 0 || user === SERVICE_USER) return
  const message = `${file} or a secret in it cannot be read by ${user}: run \`sudo kyc-tokend check${accountWords(accountOfConfig(file))}\`.`
  throw new UserError(message, exitStatus.noPermission)
}

/** The finding about another pair in the secret files, which a running daemon has tried. */
async function pairFindings(socket = ''): Promise<Finding[]> {
  const status = await statusIfAny(socket)
  const { problem, pair } = status?.daemon.configuration ?? {}
  if (!problem || pair === undefined) return []
  return [pair === 'refused' ? fault(problem) : warning(problem)]
}

type Report = ReturnType<typeof createReport>

const LOOKS = {
  ok: { mark: 'ok     ', style: 'green' },
  warning: { mark: 'warning', style: 'yellow' },
  fault: { mark: 'FAULT  ', style: 'red' },
  failure: { mark: 'FAILED ', style: 'red' },
} as const

/**
 * Reports whether a reader is shown a finding. At a reload the reader is the journal, which gets the faults
 * as errors.
 */
const IS_SHOWN_TO: Readonly<
  Record<'check' | 'setup' | 'reload', (subject: string, level: Finding['level']) => boolean>
> = {
  check: () => true,
  // `setup` starts the sockets next.
  setup: (subject, level) =>
    subject === 'service' || (level !== 'ok' && (level !== 'warning' || subject !== 'sockets')),
  reload: (_, level) => level === 'fault',
}

/** One line for each finding; in colour on a terminal. */
export function createReport(stdout: Writable, reader: keyof typeof IS_SHOWN_TO) {
  const counts = { ok: 0, warning: 0, fault: 0, failure: 0 }
  return {
    say(subject: string, ...findings: readonly Finding[]): void {
      for (const { level, sentence } of findings) {
        counts[level] += 1
        if (!IS_SHOWN_TO[reader](subject, level)) continue
        const priority = reader === 'reload' ? '<3>' : ''
        const mark = styleText(LOOKS[level].style, LOOKS[level].mark, { stream: stdout })
        stdout.write(`${priority}${mark}  ${subject.padEnd(13)}  ${escapeUnsafe(sentence)}\n`)
      }
    },
    faults: () => counts.fault,
    /** Says how it went, in one line. */
    end(): void {
      if (reader !== 'check') return
      const parts = [
        ...(counts.fault === 0 && counts.failure === 0 ? ['No fault'] : []),
        ...(counts.fault > 0 ? [counted(counts.fault, 'fault')] : []),
        ...(counts.failure > 0 ? ['the service gave no token'] : []),
        ...(counts.warning > 0 ? [counted(counts.warning, 'warning')] : []),
      ]
      stdout.write(`\n${capitalized(parts.join(', '))}.\n`)
    },
  }
}
