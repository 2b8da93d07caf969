// `kyc-tokend check`: every fault of configuration, permissions, directories, sockets and host, each with its remedy.
import { dirname } from 'node:path'

import type { Config } from '../config/config.ts'
import { loadParsers } from '../config/find.ts'
import { formatIssue, type ConfigIssue } from '../config/issues.ts'
import { inspectConfig, type Inspection } from '../config/load.ts'
import { unitNames } from '../lib/account.ts'
import { exitStatus } from '../lib/error.ts'
import { fault, ok, warning, type Finding } from '../lib/finding.ts'
import { isLoopbackHost } from '../lib/loopback.ts'
import { SYSTEM_PATH } from '../lib/run-program.ts'
import { directoryFinding, socketFinding } from './check-paths.ts'
import {
  findSockets,
  findUnit,
  accessFindings,
  unitFindings,
  unitSocketFinding,
  type NamedPath,
  type Unit,
  type UnitSockets,
} from './check-unit.ts'
import type { RunCommand } from './command.ts'
import { configurationOf, type Configuration } from './configuration.ts'
import { createReport, type Report } from './check-report.ts'
import { asServiceUser, SERVICE_USER } from './service-user.ts'
import { configDirectory } from './systemctl.ts'

interface CheckOptions extends Configuration {
  /** False: the configuration alone. */
  readonly isWhole: boolean
  readonly isLive: boolean
  readonly signal: AbortSignal
}

export const run: RunCommand = async ({ options, env, stdout, signal }) => {
  const isWhole = options['config-only'] !== true
  // At a reload the daemon logs the rest itself, so the journal has each thing once.
  const report = createReport(stdout, { onlyFaults: !isWhole && env['JOURNAL_STREAM'] !== undefined })
  const status = await performCheck(
    {
      ...configurationOf({ options, env }),
      isWhole,
      isLive: options['live'] === true,
      signal,
    },
    report,
  )
  report.end()
  return status
}

/** Reports all findings; gives the exit status. */
export async function performCheck(options: CheckOptions, report: Report): Promise<number> {
  const { configPath, account, isWhole, isLive, signal } = options
  const live = isLive ? await import('./check-live.ts') : undefined
  let status: number = exitStatus.ok
  // Programs are run as the caller, who may be root: not those that a PATH of others names.
  process.env['PATH'] = SYSTEM_PATH
  const names = unitNames(account)
  const installed = isWhole ? await findUnit(names) : null
  const sockets = await findSockets(names)
  const checked = await asServiceUser(options, {
    prepare: loadParsers,
    act: async (identity) => {
      if (identity.isElsewhere) report.say('user', ok(`checked as the user ${SERVICE_USER}`))
      const inspection = await inspectConfig({ configPath, ...identity })
      report.say('configuration', ...configFindings(inspection))
      const { config } = inspection
      if (config === undefined) return undefined
      const unit = dirname(config.file) === configDirectory(account) ? installed : null
      if (isWhole) await checkPaths(config, { unit, sockets, report })
      if (live !== undefined) {
        const answer = await live.askOnce(config, { ...inspection, env: identity.env, signal })
        report.say('service', ...answer.findings)
        status = answer.status
      }
      return { config, unit, unseen: inspection.unseen }
    },
  })
  if (checked !== undefined && isWhole) {
    const { config, unit } = checked
    if (unit !== null)
      report.say('unit', ...unitFindings(unit, { wanted: config.systemdCredentials, file: config.file }))
    await checkShare(checked, report)
    await checkHost(config, report)
  }
  return report.faults() > 0 ? exitStatus.configuration : status
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
  { unit, sockets, report }: { unit: Unit | null; sockets: UnitSockets; report: Report },
): Promise<void> {
  const { runtimeDirectory, stateDirectory, ipc, http } = config
  const further = furtherDirectories(config)
  const own = [
    {
      path: runtimeDirectory,
      setting: 'runtimeDirectory',
      name: `the runtime directory ${runtimeDirectory}`,
    },
    { path: stateDirectory, setting: 'stateDirectory', name: `the state directory ${stateDirectory}` },
  ]
  const access = unit && accessFindings(config, unit, [...own, ...further])
  const isOpen = ({ path }: NamedPath): boolean => access?.barred.has(path) !== true
  report.say(
    'directories',
    ...(access?.findings ?? []),
    ...own.filter(isOpen).map(({ path, name }) => directoryFinding(path, { name, isMadeByDaemon: true })),
    ...further.filter(isOpen).map(({ path, setting }) => {
      const name = `${config.file}: ${setting}: the directory ${path}`
      return directoryFinding(path, { name, isMadeByDaemon: false })
    }),
  )
  if (access !== null && access.dropIn.length > 0)
    report.paste(`The drop-in for ${unit!.name}, to be pasted:`, access.dropIn)
  for (const [name, socket] of [
    ['node-ipc', ipc],
    ['HTTP', http],
  ] as const) {
    if (socket === null) continue
    const { path } = socket
    report.say('sockets', unitSocketFinding({ path, name }, sockets) ?? (await socketFinding(path, name)))
  }
}

/** The shared store is used as the daemon would, and left as it was. */
async function checkShare(
  { config: { share }, unseen }: { config: Config; unseen: readonly string[] },
  report: Report,
): Promise<void> {
  if (share === null) return
  const hidden = unseen.filter((setting) => setting.startsWith('share.'))
  if (hidden.length > 0) {
    const sentence = `cannot be tried from here, because only the service sees ${hidden.join(' and ')}: see "kyc-tokend status"`
    report.say('share', warning(sentence))
    return
  }
  const { checkStore } = await import('../share/share-session.ts')
  report.say('share', ...(await checkStore(share, () => Date.now())))
}

async function checkHost(config: Config, report: Report): Promise<void> {
  const { hostFindings } = await import('../report/host.ts')
  const findings = await hostFindings({
    directories: [
      config.runtimeDirectory,
      config.stateDirectory,
      ...furtherDirectories(config).map(({ path }) => path),
    ],
    isServiceLocal: isLoopbackHost(new URL(config.baseUrl).hostname),
    nowMs: Date.now(),
  })
  report.say('host', ...findings)
}

/** Directories that are written to and that the daemon does not make, with the first setting that names each. */
function furtherDirectories({
  runtimeDirectory,
  stateDirectory,
  tokenFiles,
  ipc,
  http,
}: Config): NamedPath[] {
  const named = [
    ...tokenFiles.map(({ path }, index) => ({ path: dirname(path), setting: `tokenFiles[${index}].path` })),
    { path: dirname(ipc.path), setting: 'ipc.path' },
    ...(http === null ? [] : [{ path: dirname(http.path), setting: 'http.path' }]),
  ]
  const isOwn = (path: string): boolean => path === runtimeDirectory || path === stateDirectory
  return named.filter(
    ({ path }, index) => !isOwn(path) && named.findIndex((other) => other.path === path) === index,
  )
}
