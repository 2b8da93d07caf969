// `kyc-tokend check`: the configuration as the daemon reads it, the table about the host, one request to the service.
import { dirname } from 'node:path'
import type { Writable } from 'node:stream'
import type { Config } from '../config/config.ts'
import { formatIssue } from '../config/faults.ts'
import { inspectConfig, loadParsers } from '../config/load.ts'
import { serviceEnvironment, unitNames } from '../host/account.ts'
import { groupsOf, localUser } from '../host/ids.ts'
import { programName, SERVICE_USER } from '../host/paths.ts'
import { createRemedies, type Remediable } from '../host/remedy.ts'
import { configDirectory, configWord } from '../host/system-config.ts'
import { createSystemClock } from '../lib/clock.ts'
import { exitStatus } from '../lib/error.ts'
import { SYSTEM_PATH } from '../lib/run-program.ts'
import { announcedEnd, credentialsEnd, endRemedies } from '../report/configuration-log.ts'
import { configurationOf } from '../terminal/ask.ts'
import type { RunCommand } from '../terminal/command.ts'
import { endInWords } from '../terminal/format-status.ts'
import { announce } from '../terminal/prompt.ts'
import { asUser } from './as-user.ts'
import { createReport, type Finding, type Report } from './findings.ts'
import { createHost, unitOf } from './host.ts'
import { hostRows, type Unit } from './host-rows.ts'
import { askOnce } from './live.ts'

interface CheckOptions extends ReturnType<typeof configurationOf> {
  readonly isWhole: boolean
  readonly isLive: boolean
  readonly stderr: Writable
  readonly signal: AbortSignal
}

export const run: RunCommand = async ({ options, env, stdout, stderr, signal }) => {
  const report = createReport(stdout)
  const [isWhole, isLive] = [options['config-only'] !== true, options['live'] === true]
  const status = await check(
    { ...configurationOf({ options, env }), isWhole, isLive, stderr, signal },
    report,
  )
  report.end()
  return status
}

/** For `setup`: a configuration that is to be in use, and the service's answer to it. Shows what is wrong. */
export async function checkLive(
  options: Omit<CheckOptions, 'isWhole' | 'isLive'> & { readonly stdout: Writable },
): Promise<number> {
  return check({ ...options, isWhole: false, isLive: true }, createReport(options.stdout, { isTerse: true }))
}

async function check(options: CheckOptions, report: Report): Promise<number> {
  const { account, configPath, isWhole, isLive, stderr, signal } = options
  // Programs run as the caller, who may be root: the PATH must not be one that another user set.
  process.env['PATH'] = SYSTEM_PATH
  // The daemon's user may not be able to read the program's files.
  await loadParsers()
  const service = await serviceOf(options)
  const found = localUser(SERVICE_USER)
  const daemon = found && { uid: found.uid, groups: [found.gid, ...groupsOf(SERVICE_USER)] as const }
  const env = {
    ...options.env,
    ...(service !== null && { ...serviceEnvironment(account), ...environmentIn(service) }),
  }
  const isElsewhere = process.geteuid!() === 0
  const inspected = await asUser(daemon, async () => inspectConfig({ configPath, env, isElsewhere }))
  const { config, file, unseen } = inspected
  const place = { account, isUnit: service !== null, program: programName(), config: configWord(file) }
  const remedies = createRemedies(place)
  report.say('configuration', ...configFindings(inspected))
  if (isWhole) {
    const host = await createHost(config ?? null, { service, place })
    for (const examine of hostRows)
      for (const finding of await examine(host)) report.say(finding.subject, finding)
    if (config !== undefined) await checkFurther(config, report)
  }
  let live: number = exitStatus.ok
  if (isLive && config !== undefined) {
    if (unseen.length > 0) {
      const sentence = `cannot be asked, because only the daemon sees ${unseen.join(' and ')}`
      report.say('service', { level: 'warning', sentence, commands: remedies.commands.refresh })
      live = exitStatus.tryAgain
    } else {
      announce(stderr, 'Asking the service')
      // `setup` shows it, whose files stand beside those in use: no command is about them.
      const remedyOf = isWhole ? remedies.remedyOf : (fault: Remediable) => remedies.partsOf(fault).text
      const answer = await asUser(daemon, async () => askOnce(config, { env, remedyOf, signal }))
      report.say('service', answer)
      live = answer.status
    }
  }
  if (report.faults() > 0) return exitStatus.configuration
  signal.throwIfAborted()
  return live
}

function configFindings({
  file,
  config,
  faults,
  warnings,
}: Awaited<ReturnType<typeof inspectConfig>>): Finding[] {
  const as = (level: Finding['level']) => (issue: (typeof faults)[number]) => {
    return { level, sentence: file === undefined ? formatIssue(issue) : `${file}: ${formatIssue(issue)}` }
  }
  const valid =
    config === undefined ? [] : [{ level: 'ok', sentence: `${config.read.file} is valid` } as const]
  return [...faults.map(as('fault')), ...warnings.map(as('warning')), ...valid]
}

/** The end of the pair, and the store of `share`. */
async function checkFurther(config: Config, report: Report): Promise<void> {
  const nowMs = Date.now()
  const end = credentialsEnd(config.pair, nowMs)
  if (end !== null) {
    const isNear = announcedEnd(config.pair, nowMs)?.isNear === true
    const sentence = isNear ? `${endInWords(end)}. ${endRemedies[end.what]}` : endInWords(end)
    report.say('credentials', { level: isNear ? 'warning' : 'ok', sentence })
  }
  if (config.share === null) return
  const { checkStore } = await import('../share/check.ts')
  report.say(
    'share',
    ...(await checkStore(config.share, { clock: createSystemClock(), random: Math.random })),
  )
}

/** The unit that runs with this configuration; null: it is not installed, or the configuration is a person's. */
async function serviceOf({ account, configPath, env }: CheckOptions): Promise<Unit | null> {
  const named = configPath ?? (env['KYC_TOKEND_CONFIG'] || undefined)
  const isOfUnit =
    named === undefined ? process.geteuid!() === 0 : dirname(named) === configDirectory(account)
  return isOfUnit ? unitOf(`${unitNames(account).unit}.service`) : null
}

/** The variables of the unit, with those of its drop-ins, such as HTTPS_PROXY. */
function environmentIn({ properties }: Unit): NodeJS.ProcessEnv {
  const words = (properties['Environment'] ?? '').matchAll(/(\w+)=(\S*)/g)
  return Object.fromEntries(Array.from(words, ([, name, value]) => [name, value]))
}
