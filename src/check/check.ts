// `kyc-tokend check`: the configuration as the daemon reads it, the table about the host, one request to the service.
import { dirname } from 'node:path'
import { revealAll, type Config } from '../config/config.ts'
import { ConfigError, formatIssue } from '../config/faults.ts'
import { loadConfig } from '../config/load.ts'
import { installationOf } from '../host/account.ts'
import { groupsOf, localUser } from '../host/ids.ts'
import { ownSockets, SERVICE_USER } from '../host/paths.ts'
import { createRemedies, withCommands, type RemedyOf } from '../host/remedy.ts'
import { createSystemClock } from '../lib/clock.ts'
import { asSentence, escapeUnsafe } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus } from '../lib/error.ts'
import { SYSTEM_PATH } from '../lib/run-program.ts'
import { announcedEnd, credentialsEnd, endRemedies } from '../report/configuration-log.ts'
import { checkStore } from '../share/store.ts'
import { createFetchToken } from '../source/fetch-token.ts'
import { configurationOf } from '../terminal/ask.ts'
import type { Invocation, RunCommand } from '../terminal/command.ts'
import { counted, endInWords } from '../terminal/format-status.ts'
import { lifeOf } from '../token/token.ts'
import { asUser, factsOf, unitOf, type Unit } from './host.ts'
import { hostRows, type Finding } from './host-rows.ts'

const MARKS = { ok: 'ok     ', warning: 'warning', fault: 'FAULT  ', failure: 'FAILED ' } as const

type Say = (subject: string, finding: Finding) => void

interface CheckOptions extends ReturnType<typeof configurationOf>, Pick<Invocation, 'stdout' | 'signal'> {
  /** The host, too. */
  readonly isWhole: boolean
  readonly isLive: boolean
}

export const run: RunCommand = async ({ options, env, stdout, signal }) => {
  const scope = { isWhole: options['config-only'] !== true, isLive: options['live'] === true }
  const found = await check({ ...configurationOf({ options, env }), ...scope, stdout, signal })
  const count = (level: Finding['level']): number => found.filter((each) => each.level === level).length
  const good = count('failure') > 0 ? 'The service gave no token' : 'No fault'
  const faults = count('fault') > 0 ? counted(count('fault'), 'fault') : good
  stdout.write(`\n${faults}, ${counted(count('warning'), 'warning')}.\n`)
  return exitStatusOf(found)
}

/** For `setup`: a configuration that is to be in use, and the service's answer to it. Gives the exit status. */
export async function checkLive(options: Omit<CheckOptions, 'isWhole' | 'isLive'>): Promise<number> {
  return exitStatusOf(await check({ ...options, isWhole: false, isLive: true }))
}

function exitStatusOf(found: readonly Finding[]): number {
  if (found.some(({ level }) => level === 'fault')) return exitStatus.configuration
  return found.find((each) => each.exitStatus !== undefined)?.exitStatus ?? exitStatus.ok
}

async function check(options: CheckOptions): Promise<Finding[]> {
  const { account, configPath, stdout, isWhole, isLive } = options
  const found: Finding[] = []
  const say: Say = (subject, finding) => {
    found.push(finding)
    stdout.write(`${MARKS[finding.level]}  ${subject.padEnd(13)}  ${escapeUnsafe(finding.sentence)}\n`)
  }
  // Programs run as the caller, who may be root: the PATH must not be one that another user set.
  process.env['PATH'] = SYSTEM_PATH
  const service = await serviceOf(options)
  const user = localUser(SERVICE_USER)
  const daemon = user && { uid: user.uid, groups: [user.gid, ...groupsOf(SERVICE_USER)] as const }
  const ofUnit = service === null ? {} : { ...installationOf(account).environment, ...environmentIn(service) }
  const env = { ...options.env, ...ofUnit }
  const isElsewhere = process.geteuid!() === 0
  const load = async (): Promise<Config> => loadConfig({ configPath, env, isElsewhere })
  const loaded = await asUser(daemon, load).catch((error: unknown) => {
    if (error instanceof ConfigError) return error
    throw error
  })
  for (const finding of ofConfiguration(loaded)) say('configuration', finding)
  const config = loaded instanceof ConfigError ? undefined : loaded
  const configFile = loaded instanceof ConfigError ? loaded.file : loaded.read.file
  const place = { account, isUnit: service !== null, configFile, socket: ownSocket(service, config) }
  if (isWhole) {
    const facts = await factsOf(config ?? null, { service, place })
    for (const [subject, findings] of Object.entries(hostRows))
      for (const finding of findings(facts)) say(subject, finding)
    if (config !== undefined) await asUser(daemon, async () => checkFurther(config, say))
  }
  if (!isLive || config === undefined) return found
  // Those of `setup` stand beside those in use: no command is about them.
  const { remedyOf, commands } = createRemedies(isWhole ? place : undefined)
  if (config.read.unseen.length > 0) {
    const sentence = `cannot be asked, because only the daemon sees ${config.read.unseen.join(' and ')}`
    const said = withCommands(sentence, commands.refresh)
    say('service', { level: 'warning', sentence: said, exitStatus: exitStatus.tryAgain })
  } else say('service', await asUser(daemon, async () => askOnce(config, { ...options, env, remedyOf })))
  return found
}

/** Of a daemon without a unit, whose commands name it; undefined: it is not known, or where commands look for it. */
function ownSocket(service: Unit | null, config: Config | undefined): string | undefined {
  return service === null && config !== undefined ? ownSockets(config.runtimeDirectory).ipc : undefined
}

function ofConfiguration(loaded: Config | ConfigError): Finding[] {
  if (loaded instanceof ConfigError) {
    const start = loaded.file === undefined ? '' : `${loaded.file}: `
    return loaded.faults.map((issue) => ({ level: 'fault', sentence: start + formatIssue(issue) }))
  }
  const { file, warnings } = loaded.read
  const unwise = warnings.map((warning): Finding => ({ level: 'warning', sentence: `${file}: ${warning}` }))
  return [...unwise, { level: 'ok', sentence: `${file} is valid` }]
}

/** The end of the pair, and the store of `share`. */
async function checkFurther(config: Config, say: Say): Promise<void> {
  const nowMs = Date.now()
  const end = credentialsEnd(config.pair, nowMs)
  const isNear = announcedEnd(config.pair, nowMs)?.isNear === true
  const remedy = end !== null && isNear ? `. ${endRemedies[end.what]}` : ''
  if (end !== null)
    say('credentials', { level: isNear ? 'warning' : 'ok', sentence: endInWords(end) + remedy })
  if (config.share === null) return
  const around = { clock: createSystemClock(), random: Math.random }
  say('share', await checkStore(config.share, around))
}

/** Asks the service for a token once, and drops it. Exit status: 77 where the pair is refused, 75 without a token. */
async function askOnce(
  config: Config,
  { env, remedyOf, signal }: { env: NodeJS.ProcessEnv; remedyOf: RemedyOf; signal: AbortSignal },
): Promise<Finding> {
  const clock = createSystemClock()
  const fetchToken = createFetchToken({ ...config, env, clock, secrets: () => revealAll(config) })
  const outcome = await fetchToken(signal)
  signal.throwIfAborted()
  if (outcome.kind !== 'ok') {
    const { reason, detail, status } = outcome
    const http = status === undefined ? 'was not reached' : `answered with HTTP ${status}`
    return {
      level: 'failure',
      sentence: `${http} (${reason}): ${asSentence(detail)} ${remedyOf(reason)}`,
      exitStatus: outcome.kind === 'permanent' ? exitStatus.noPermission : exitStatus.tryAgain,
    }
  }
  const { lifeMs } = lifeOf(outcome, clock.now().wallMs, Infinity)
  if (lifeMs <= 0) {
    const sentence = `gave a token that has expired already (HTTP 200). ${remedyOf('malformed-answer')}`
    return { level: 'failure', sentence, exitStatus: exitStatus.tryAgain }
  }
  const lives = lifeMs === Infinity ? 'does not say how long it lives' : `lives ${formatDuration(lifeMs)}`
  return { level: 'ok', sentence: `gave a token that ${lives} (HTTP 200)` }
}

/** The unit that runs with this configuration; null: it is not installed, or the configuration is a person's. */
async function serviceOf({ account, configPath, env }: CheckOptions): Promise<Unit | null> {
  const named = configPath ?? (env['KYC_TOKEND_CONFIG'] || undefined)
  const isOfUnit =
    named === undefined
      ? process.geteuid!() === 0
      : dirname(named) === dirname(installationOf(account).config)
  return isOfUnit ? unitOf(`${installationOf(account).unit}.service`) : null
}

/** The variables of the unit, with those of its drop-ins, such as HTTPS_PROXY. */
function environmentIn({ properties }: Unit): NodeJS.ProcessEnv {
  const words = (properties['Environment'] ?? '').matchAll(/(\w+)=(\S*)/g)
  return Object.fromEntries(Array.from(words, ([, name, value]) => [name, value]))
}
