// `kyc-tokend check`: every fault of configuration, permissions, directories, sockets and host, each with its remedy.
import { accessSync, constants } from 'node:fs'
import { dirname } from 'node:path'
import type { Writable } from 'node:stream'
import { styleText } from 'node:util'

import type { Config } from '../config/config.ts'
import { loadParsers } from '../config/find.ts'
import { formatIssue, type ConfigIssue } from '../config/issues.ts'
import { inspectConfig, type Inspection } from '../config/load.ts'
import { createSystemClock } from '../lib/clock.ts'
import { accountOfConfig, accountWords, serviceEnvironment } from '../lib/account.ts'
import { capitalized, escapeUnsafe } from '../lib/display-text.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { fault, ok, warning, type Finding } from '../lib/finding.ts'
import { isLoopbackHost } from '../config/base-url.ts'
import { SYSTEM_CONFIG_DIRECTORY } from '../lib/paths.ts'
import { nameOf } from '../lib/posix-ids.ts'
import { SYSTEM_PATH } from '../lib/run-program.ts'
import { ask, configurationOf, type Configuration } from './ask.ts'
import { directoryFinding, socketFinding, type WrittenDirectory } from './check-paths.ts'
import {
  findSockets,
  findUnit,
  accessFindings,
  unitFindings,
  unitSocketFinding,
  type Unit,
  type UnitSockets,
} from './check-unit.ts'
import type { RunCommand } from './command.ts'
import { counted, isAboutPair } from './format-status.ts'
import { announce } from './prompt.ts'
import { asServiceUser, SERVICE_USER, type Identity } from './service-user.ts'
import { alertFacts, configDirectory, unitEnvironment } from './systemd.ts'

interface CheckOptions extends Configuration {
  /** False: the configuration alone. */
  readonly isWhole: boolean
  readonly isLive: boolean
  /** Also the word of a daemon that runs. */
  readonly asksDaemon?: boolean
  readonly signal: AbortSignal
  readonly stderr: Writable
}

export interface Checked {
  /** Exit status. */
  readonly status: number
  /** Exit status for the service's answer alone; null if it was not asked. */
  readonly live: number | null
}

export const run: RunCommand = async ({ options, env, stdout, stderr, signal }) => {
  const isWhole = options['config-only'] !== true
  // At a reload the daemon logs the rest itself, so the journal has each thing once.
  const report = createReport(stdout, { onlyFaults: !isWhole && env['JOURNAL_STREAM'] !== undefined })
  const isLive = options['live'] === true
  const checked = await performCheck(
    { ...configurationOf({ options, env }), isWhole, isLive, asksDaemon: true, signal, stderr },
    report,
  )
  report.end()
  return checked.status
}

/** Reports all findings. Throws UserError (77) where this user may not read the configuration. */
export async function performCheck(options: CheckOptions, report: Report): Promise<Checked> {
  const { configPath, account, isWhole, isLive, signal, stderr } = options
  const live = isLive ? await import('./check-live.ts') : undefined
  let answered: number | null = null
  // Programs are run as the caller, who may be root: not those that a PATH of others names.
  process.env['PATH'] = SYSTEM_PATH
  const isOfUnit = (file: string): boolean => dirname(file) === configDirectory(account)
  const installed = isWhole || isLive ? await findUnit(account) : null
  const isByUnit = installed !== null && (configPath === undefined || isOfUnit(configPath))
  const env = isByUnit ? await environmentOfUnit(options) : options.env
  const sockets = await findSockets(account)
  const checked = await asServiceUser(
    { env, account },
    {
      prepare: loadParsers,
      act: async (identity) => {
        if (identity.isElsewhere) report.say('user', ok(`checked as the user ${SERVICE_USER}`))
        const inspection = await inspectConfig({ configPath, ...identity })
        refuseReader(inspection, identity)
        report.say('configuration', ...configFindings(inspection))
        const { config } = inspection
        if (config === undefined) return undefined
        const unit = isOfUnit(config.file) ? installed : null
        if (isWhole) await checkPaths(config, { unit, sockets, account, report })
        if (live !== undefined) {
          announce(stderr, 'Asking the service')
          const answer = await live.askOnce(config, { ...inspection, env: identity.env, signal })
          report.say('service', ...answer.findings)
          answered = answer.status
        }
        return { config, unit, unseen: inspection.unseen }
      },
    },
  )
  if (checked !== undefined && isWhole) await checkOthers(checked, { options, sockets, report })
  return {
    status: report.faults() > 0 ? exitStatus.configuration : (answered ?? exitStatus.ok),
    live: answered,
  }
}

/** A configuration that can be read, and the unit that runs it. */
interface Checkable {
  readonly config: Config
  readonly unit: Unit | null
  readonly unseen: readonly string[]
}

/** As the caller: the unit, the daemon that runs, the shared store and the host. */
async function checkOthers(
  checked: Checkable,
  { options, sockets, report }: { options: CheckOptions; sockets: UnitSockets; report: Report },
): Promise<void> {
  const { config, unit } = checked
  if (unit !== null) {
    const facts = await alertFacts(options.account)
    const wanted = config.systemdCredentials
    report.say('unit', ...unitFindings(unit, { wanted, file: config.file, facts }))
  }
  if (options.asksDaemon === true && (unit === null || sockets.isActive))
    report.say('secrets', ...(await pairFindings(config.ipc.path)))
  await checkShare(checked, report)
  await checkHost(config, report)
}

/** The service is asked as the unit asks it: by the proxy of its drop-ins, and not by that of a shell. */
async function environmentOfUnit({ env, account }: CheckOptions): Promise<NodeJS.ProcessEnv> {
  const own = Object.entries(env).filter(([name]) => !/^(?:https|no)_proxy$/i.test(name))
  return { ...Object.fromEntries(own), ...(await unitEnvironment(account)) }
}

/** A user who may not read the service's configuration must not be advised to open it: root checks it. */
function refuseReader({ file = '', config }: Inspection, { isElsewhere }: Identity): void {
  const user = nameOf('user', process.geteuid!())
  const isForeign = !isElsewhere && user !== SERVICE_USER && process.geteuid!() !== 0
  if (config !== undefined || !isForeign || !file.startsWith(`${SYSTEM_CONFIG_DIRECTORY}/`)) return
  try {
    accessSync(file, constants.R_OK)
  } catch {
    // The reason does not matter: root sees it.
    const account = accountOfConfig(file)
    throw new UserError(
      `${file} cannot be read by ${user}: run \`sudo kyc-tokend check${accountWords(account)}\`.`,
      exitStatus.noPermission,
    )
  }
}

function configFindings({ file, faults, warnings }: Inspection): Finding[] {
  const inFile = (issue: ConfigIssue): string =>
    file === undefined ? formatIssue(issue) : `${file}: ${formatIssue(issue)}`
  return [
    ...faults.map((issue) => fault(inFile(issue))),
    ...warnings.map((issue) => warning(inFile(issue))),
    ...(faults.length === 0 ? [ok(`${file} is valid`)] : []),
  ]
}

async function checkPaths(
  config: Config,
  {
    unit,
    sockets,
    account,
    report,
  }: { unit: Unit | null; sockets: UnitSockets; account: string | undefined; report: Report },
): Promise<void> {
  const { ipc, http } = config
  const ofUnit = unit === null ? [] : Object.values(serviceEnvironment(account))
  const directories = writtenDirectories(config, ofUnit)
  const barred = unit === null ? new Map<string, Finding>() : accessFindings(config, unit, directories)
  const open = directories.filter(({ path }) => !barred.has(path))
  report.say('directories', ...barred.values(), ...open.map(directoryFinding))
  for (const [name, socket] of [
    ['node-ipc', ipc],
    ['HTTP', http],
  ] as const) {
    if (socket === null) continue
    const { path } = socket
    report.say('sockets', unitSocketFinding({ path, name }, sockets) ?? (await socketFinding(path, name)))
  }
}

/** The word of a running daemon about another pair in the secret files: it has tried it. */
async function pairFindings(socket: string): Promise<Finding[]> {
  try {
    const { daemon } = await ask({ options: { socket } }, (client) => client.status())
    const { state, problem } = daemon.configuration
    if (problem === null || !isAboutPair(problem)) return []
    return [state === 'faulty' ? fault(problem) : warning(problem)]
  } catch (error) {
    if (error instanceof UserError) return []
    throw error
  }
}

/** The shared store is used as the daemon would, and left as it was. */
async function checkShare({ config: { share }, unseen }: Checkable, report: Report): Promise<void> {
  if (share === null) return
  const hidden = unseen.filter((setting) => setting.startsWith('share.'))
  if (hidden.length > 0) {
    const sentence = `cannot be tried from here, because only the service sees ${hidden.join(' and ')}: see "kyc-tokend status"`
    report.say('share', warning(sentence))
    return
  }
  const { checkStore } = await import('../share/check-store.ts')
  report.say('share', ...(await checkStore(share, { clock: createSystemClock(), random: Math.random })))
}

async function checkHost(config: Config, report: Report): Promise<void> {
  const { hostFindings } = await import('../report/host.ts')
  const findings = await hostFindings({
    directories: writtenDirectories(config, []).map(({ path }) => path),
    isServiceLocal: isLoopbackHost(new URL(config.baseUrl).hostname),
    nowMs: Date.now(),
  })
  report.say('host', ...findings)
}

/** Directories that the daemon writes to, with the first setting that names each; systemd makes those `ofUnit`. */
function writtenDirectories(config: Config, ofUnit: readonly string[]): WrittenDirectory[] {
  const { file, runtimeDirectory, stateDirectory, tokenFiles, ipc, http } = config
  const own = Object.entries({ runtimeDirectory, stateDirectory }).map(([setting, path]) => ({
    path,
    setting,
    name: `the ${setting.replace('Directory', ' directory')} ${path}`,
    maker: ofUnit.includes(path) ? ('systemd' as const) : ('daemon' as const),
  }))
  const further = [
    ...tokenFiles.map(({ path }, index) => ({ path: dirname(path), setting: `tokenFiles[${index}].path` })),
    { path: dirname(ipc.path), setting: 'ipc.path' },
    ...(http === null ? [] : [{ path: dirname(http.path), setting: 'http.path' }]),
  ].map((named) => ({
    ...named,
    name: `${file}: ${named.setting}: the directory ${named.path}`,
    maker: null,
  }))
  const all = [...own, ...further]
  return all.filter(({ path }, index) => all.findIndex((other) => other.path === path) === index)
}

export interface Report {
  say(subject: string, ...findings: readonly Finding[]): void
  faults(): number
  /** Says how it went, in one line. */
  end(): void
}

const LOOKS = {
  ok: { mark: 'ok     ', style: 'green' },
  warning: { mark: 'warning', style: 'yellow' },
  fault: { mark: 'FAULT  ', style: 'red' },
  failure: { mark: 'FAILED ', style: 'red' },
} as const

/** One line for each finding; in colour on a terminal. `isBrief`: only those that ask for something. */
export function createReport(
  stdout: Writable,
  { isBrief = false, onlyFaults = false }: { isBrief?: boolean; onlyFaults?: boolean } = {},
): Report {
  const counts = { ok: 0, warning: 0, fault: 0, failure: 0 }
  return {
    say(subject, ...findings) {
      for (const { level, sentence } of findings) {
        counts[level] += 1
        if (isBrief && level === 'ok' && subject !== 'service') continue
        // Setup starts them next.
        if (isBrief && level === 'warning' && subject === 'sockets') continue
        if (onlyFaults && level !== 'fault') continue
        // At a reload, in the journal, under which the daemon's own errors are found.
        if (onlyFaults) stdout.write('<3>')
        const mark = styleText(LOOKS[level].style, LOOKS[level].mark, { stream: stdout })
        stdout.write(`${mark}  ${subject.padEnd(13)}  ${escapeUnsafe(sentence)}\n`)
      }
    },
    faults: () => counts.fault,
    end() {
      if (isBrief || onlyFaults) return
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
