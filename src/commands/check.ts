// `kyc-tokend check`: every fault of configuration, permissions, directories, sockets, host and service, each with its remedy.
import { dirname } from 'node:path'
import type { Writable } from 'node:stream'
import { styleText } from 'node:util'
import { readFileSync } from 'node:fs'
import { isLoopbackHost } from '../config/base-url.ts'
import { type Config, revealAll, type ServiceConfig } from '../config/config.ts'
import { formatIssue, type ConfigIssue } from '../config/issues.ts'
import { inspectConfig, loadParsers, type Inspection, type LoadOptions } from '../config/load.ts'
import { MAY_NOT_BE_READ } from '../config/read-file.ts'
import { accountOfConfig, accountWords, serviceEnvironment } from '../lib/account.ts'
import { lstatIfAny, refuseOddTarget } from '../lib/atomic-file.ts'
import { SERVICE_USER, SYSTEM_CONFIG_DIRECTORY } from '../lib/paths.ts'
import { createSystemClock } from '../lib/clock.ts'
import { capitalized, escapeUnsafe, asSentence } from '../lib/display-text.ts'
import { exitStatus, fallbackOnSystemError, UserError, errorMessage } from '../lib/error.ts'
import { clockFindings, failure, fault, ok, warning, type Finding } from '../lib/finding.ts'
import { groupsOf, localUser, nameOf } from '../lib/posix-ids.ts'
import { SYSTEM_PATH } from '../lib/run-program.ts'
import { formatDuration } from '../lib/duration.ts'
import { renderedAt, unitPlace } from '../lib/remedy.ts'
import { credentialsEnd, describeEnd, endRemedies } from '../report/credentials-end.ts'
import { createFetchToken } from '../source/fetch-token.ts'
import { describeAnswer, type ServiceResponse } from '../source/response.ts'
import { remedies, type ServiceOutcome } from '../token/outcome.ts'
import { knownLife } from '../token/token.ts'
import { configurationOf, statusIfAny, type Configuration } from './ask.ts'
import {
  accessFindings,
  directoryFinding,
  readUnit,
  socketFinding,
  unitFindings,
  unitSocketFinding,
  type Unit,
  type WrittenDirectory,
} from './check-access.ts'
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
  readonly staged?: LoadOptions['staged']
  readonly signal: AbortSignal
  readonly stderr: Writable
}

export const run: RunCommand = async ({ options, env, stdout, stderr, signal }) => {
  const isWhole = options['config-only'] !== true
  // At a reload the daemon itself logs all but the faults, so that the journal has each finding once.
  const isReload = !isWhole && env['JOURNAL_STREAM'] !== undefined
  const report = createReport(stdout, isReload ? 'reload' : 'check')
  const how = { isWhole, isLive: options['live'] === true, asksDaemon: true, signal, stderr }
  const { status } = await performCheck({ ...configurationOf({ options, env }), ...how }, report)
  report.end()
  return status
}

/**
 * Reports all findings. Gives the exit status, and that for the service's answer alone (null if it was not asked). Throws
 * UserError (77) if this user may not read the configuration.
 */
export async function performCheck(
  options: CheckOptions,
  report: Report,
): Promise<{ status: number; live: number | null }> {
  const { account, isWhole, isLive } = options
  // Programs run as the caller, who may be root: the PATH must not be one that another user set.
  process.env['PATH'] = SYSTEM_PATH
  const installed = isWhole || isLive ? await readUnit(account) : null
  // The user kyc-tokend may not be able to read the program's files later.
  await loadParsers()
  const identity = becomeServiceUser(environmentOf(options, installed), account)
  const checked = checkAsDaemon({ options, identity, installed, report })
  const { inspection, live } = await checked.finally(identity.end)
  const { config, unseen } = inspection
  if (config !== undefined && isWhole) {
    const unit = installed?.runs(config.file) ? installed : null
    if (unit !== null) report.say('unit', ...unitFindings(unit, config, await alertState(account)))
    if (options.asksDaemon && (unit === null || unit.properties['ActiveState'] === 'active'))
      report.say('secrets', ...(await pairFindings(config.ipc.path)))
    report.say('share', ...(await shareFindings(config, unseen)))
    const { hostFindings } = await import('../report/host.ts')
    const directories = writtenDirectories(config, unit).map(({ path }) => path)
    const isServiceLocal = isLoopbackHost(new URL(config.baseUrl).hostname)
    report.say('host', ...(await hostFindings({ directories, isServiceLocal, nowMs: Date.now() })))
  }
  return { status: report.faults() > 0 ? exitStatus.configuration : (live ?? exitStatus.ok), live }
}

interface Surroundings {
  readonly options: CheckOptions
  readonly identity: Identity
  readonly installed: Unit | null
  readonly report: Report
}

/** With the rights of the daemon's user: the configuration, the paths and the service. */
async function checkAsDaemon(on: Surroundings): Promise<{ inspection: Inspection; live: number | null }> {
  const { options, identity, report } = on
  if (identity.isElsewhere) report.say('user', ok(`checked as the user ${SERVICE_USER}`))
  const inspection = await inspectConfig({
    configPath: options.configPath,
    staged: options.staged,
    ...identity,
  })
  refuseReader(inspection)
  report.say('configuration', ...configFindings(inspection))
  const { config, unseen } = inspection
  if (config !== undefined) report.say('credentials', ...endFindings(config, Date.now()))
  if (config !== undefined && options.isWhole) await checkPaths(config, on)
  if (config === undefined || !options.isLive) return { inspection, live: null }
  announce(options.stderr, 'Asking the service')
  const answer = await askOnce(config, { unseen, env: identity.env, signal: options.signal })
  report.say('service', ...answer.findings)
  return { inspection, live: answer.status }
}

const PROXY_VARIABLES = new Set(['https_proxy', 'no_proxy'])

/** The service is asked as the unit asks it: by the proxy of its drop-ins, and not by that of a shell. */
function environmentOf({ env, configPath }: CheckOptions, installed: Unit | null): NodeJS.ProcessEnv {
  if (installed === null || (configPath !== undefined && !installed.runs(configPath))) return env
  const own = Object.entries(env).filter(([name]) => !PROXY_VARIABLES.has(name.toLowerCase()))
  return { ...Object.fromEntries(own), ...installed.environment }
}

type Identity = ReturnType<typeof becomeServiceUser>

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
function refuseReader({ file = '', faults }: Inspection): void {
  const user = nameOf('user', process.geteuid!())
  if (user === SERVICE_USER || !file.startsWith(`${SYSTEM_CONFIG_DIRECTORY}/`)) return
  if (!faults.some(({ sentence }) => sentence.includes(MAY_NOT_BE_READ))) return
  const message = `${file} or a secret in it cannot be read by ${user}: run \`sudo kyc-tokend check${accountWords(accountOfConfig(file))}\`.`
  throw new UserError(message, exitStatus.noPermission)
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

/** The end of the credentials; a warning from 30 days before it on. */
function endFindings(config: Config, nowMs: number): Finding[] {
  const end = credentialsEnd(config)
  const described = describeEnd(end, nowMs)
  if (end === null || !described) return []
  const name = end.what === 'pair' ? 'key and secret' : 'the client certificate'
  if (described.daysLeft > 30) return [ok(`${name}: good until ${described.expiresAt}`)]
  const when = described.daysLeft === 0 ? `ended at ${described.expiresAt}` : `end at ${described.expiresAt}`
  return [warning(`${name}: ${when}. ${endRemedies[end.what]}`)]
}

async function checkPaths(config: Config, { installed, report }: Surroundings): Promise<void> {
  const unit = installed?.runs(config.file) ? installed : null
  const directories = writtenDirectories(config, unit)
  const barred = unit === null ? new Map<string, Finding>() : accessFindings(config, unit, directories)
  const open = directories.filter(({ path }) => !barred.has(path))
  report.say('directories', ...barred.values(), ...open.map(directoryFinding))
  for (const [index, { path }] of config.tokenFiles.entries()) {
    const found = await lstatIfAny(path).catch(fallbackOnSystemError(null))
    try {
      refuseOddTarget(path, found)
    } catch (error) {
      report.say('files', fault(`${config.file}: tokenFiles[${index}].path: ${errorMessage(error)}`))
    }
  }
  for (const [name, socket] of Object.entries({ 'node-ipc': config.ipc, HTTP: config.http })) {
    if (socket === null) continue
    const named = { path: socket.path, name: `the ${name} socket ${socket.path}` }
    report.say('sockets', unitSocketFinding(named, installed) ?? (await socketFinding(named)))
  }
}

/** The finding about another pair in the secret files, which a running daemon has tried. */
async function pairFindings(socket: string): Promise<Finding[]> {
  const status = await statusIfAny(socket)
  const { problem, pair } = status?.daemon.configuration ?? {}
  if (!problem || pair === undefined) return []
  return [pair === 'refused' ? fault(problem) : warning(problem)]
}

/** Findings about the shared store: it is used as the daemon would, and left as it was. */
async function shareFindings({ share }: Config, unseen: readonly string[]): Promise<readonly Finding[]> {
  if (share === null) return []
  const hidden = unseen.filter((setting) => setting.startsWith('share.'))
  if (hidden.length > 0) {
    const sentence = `cannot be tried from here, because only the daemon sees ${hidden.join(' and ')}: see "kyc-tokend status"`
    return [warning(sentence)]
  }
  const { checkStore } = await import('../share/check-store.ts')
  return checkStore(share, { clock: createSystemClock(), random: Math.random })
}

/** Directories that the daemon writes to, each with the first setting that names it. systemd makes the unit's own. */
function writtenDirectories(config: Config, unit: Unit | null): WrittenDirectory[] {
  const { file, runtimeDirectory, stateDirectory, tokenFiles, ipc, http } = config
  const ofUnit = unit === null ? [] : Object.values(serviceEnvironment(unit.account))
  const own = Object.entries({ runtimeDirectory, stateDirectory }).map(([setting, path]) => ({
    path,
    setting,
    name: `the ${setting.replace('Directory', ' directory')} ${path}`,
    maker: ofUnit.includes(path) ? ('systemd' as const) : ('daemon' as const),
  }))
  const outputs = Object.entries({
    ...Object.fromEntries(tokenFiles.map(({ path }, index) => [`tokenFiles[${index}].path`, path])),
    'ipc.path': ipc.path,
    ...(http !== null && { 'http.path': http.path }),
  })
  const further = outputs.map(([setting, output]) => {
    const path = dirname(output)
    return { path, setting, name: `${file}: ${setting}: the directory ${path}`, maker: null }
  })
  const all = [...own, ...further]
  return all.filter(({ path }, index) => all.findIndex((other) => other.path === path) === index)
}

type Report = ReturnType<typeof createReport>

const LOOKS = {
  ok: { mark: 'ok     ', style: 'green' },
  warning: { mark: 'warning', style: 'yellow' },
  fault: { mark: 'FAULT  ', style: 'red' },
  failure: { mark: 'FAILED ', style: 'red' },
} as const

/** Reports whether a reader is shown a finding. At a reload the reader is the journal, which gets the faults as errors. */
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

// ---- the service, asked once -----------------------------------------------------------------------------------------

/** A wall clock that is off by more than this gets a warning. */
const CLOCK_OFF_MS = 60_000

/** The findings about the service's answer, and the exit status for it. */
type Answer = { readonly findings: readonly Finding[]; readonly status: number }

/** Asks the service for a token once and says what came of it. The token is dropped. */
async function askOnce(
  config: Config,
  { unseen, env, signal }: { unseen: readonly string[]; env: NodeJS.ProcessEnv; signal: AbortSignal },
): Promise<Answer> {
  const hidden = unseen.filter((setting) => setting.startsWith('credentials.'))
  if (hidden.length > 0) {
    const sentence = `cannot be asked from here, because only the daemon sees ${hidden.join(' and ')}: ask with "kyc-tokend refresh"`
    return { findings: [warning(sentence)], status: exitStatus.tryAgain }
  }
  const clock = createSystemClock()
  const seen = [ok(`is sent ${requestInWords(config.service)}`)]
  let { ca } = config.request
  const { NODE_EXTRA_CA_CERTS: file } = env
  try {
    // Those of the unit: Node reads the variable of its own environment alone, at its start.
    if (file) ca = [ca, readFileSync(file, 'utf8')].join('\n')
  } catch (error) {
    const why = `which cannot be read (${errorMessage(error)}): correct it, or use request.caFile`
    seen.push(warning(`NODE_EXTRA_CA_CERTS names ${file}, ${why}`))
  }
  const request = { ...config.request, ca }
  const onAnswer = (answer: ServiceResponse): unknown =>
    seen.push(ok(`answers with ${describeAnswer(answer, revealAll(config))}`))
  const fetchToken = createFetchToken({ ...config, request, env, clock, secrets: () => [], onAnswer })
  const outcome = await fetchToken(signal)
  const { findings, status } = answerOf(outcome, { wallMs: clock.now().wallMs, config })
  return { findings: [...seen, ...findings], status }
}

/** The request with the names of its fields and headers, and none of their values. */
function requestInWords({ tokenUrl, send, names, parameters, headers }: ServiceConfig): string {
  const { origin, pathname } = new URL(tokenUrl)
  const named = [names.apiKey, names.apiSecret].filter((name) => name !== null)
  const isInBody = send === 'json' || send === 'form'
  const quoted = (fields: readonly string[]): string => fields.map((name) => `"${name}"`).join(', ')
  const fields = quoted([...(isInBody ? named : []), ...Object.keys(parameters)])
  const further = [...(send === 'headers' ? named : []), ...Object.keys(headers)]
  const ways = {
    json: '',
    form: '',
    headers: '',
    basic: ', key and secret as HTTP Basic',
    'basic-plain': ', key and secret as HTTP Basic, not form-encoded',
    assertion: ', a signed assertion',
  }
  return [
    `POST ${origin}${pathname} with ${send === 'json' || send === 'headers' ? 'JSON' : 'a form'}`,
    ...(fields === '' ? [] : [` of ${fields}`]),
    ways[send],
    ...(further.length === 0 ? [] : [`, and the headers ${quoted(further)}`]),
  ].join('')
}

function answerOf(outcome: ServiceOutcome, { wallMs, config }: { wallMs: number; config: Config }): Answer {
  const { file, service } = config
  if (outcome.kind !== 'ok') {
    const http = outcome.status === undefined ? 'was not reached' : `answered with HTTP ${outcome.status}`
    // This command tries it already.
    const { text, steps } = remedies[outcome.reason]
    const advice = { text, steps: steps.filter((step) => step !== 'check --live') }
    const remedy = asSentence(renderedAt(advice, unitPlace(accountOfConfig(file))))
    const sentence = `${http} (${outcome.reason}): ${asSentence(outcome.detail)} ${remedy} Configuration: ${file}`
    const status = outcome.kind === 'permanent' ? exitStatus.noPermission : exitStatus.tryAgain
    return { findings: [failure(sentence)], status }
  }
  const lifeMs = knownLife(outcome, wallMs)?.lifeMs
  if (lifeMs !== undefined && lifeMs <= 0) {
    const sentence = `gave a token that has expired already (HTTP 200). ${asSentence(remedies['malformed-answer'].text)}`
    return { findings: [failure(sentence)], status: exitStatus.tryAgain }
  }
  const lives = lifeMs === undefined ? 'does not say how long it lives' : `lives ${formatDuration(lifeMs)}`
  const findings = [ok(`gave a token that ${lives} (HTTP 200)`)]
  if (service.lifetime !== null && outcome.answerLifeMs === undefined)
    findings.push(
      warning(`gave no life at "${service.lifetime.join('.')}", in seconds: correct service.lifetime`),
    )
  const offMs = wallMs - (outcome.serverDateMs ?? wallMs)
  const sentence = (off: string): string => `the clock is ${off} the service's: set it`
  return {
    findings: [...findings, ...clockFindings(offMs, { leastMs: CLOCK_OFF_MS, sentence })],
    status: exitStatus.ok,
  }
}
