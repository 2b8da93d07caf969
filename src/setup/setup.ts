// `kyc-tokend setup`: asks for service, key and secret, writes the files, checks them live, and starts the
// daemon. A pair that the service does not confirm is not taken over.
import { accountWords, checkedAccount, systemSocket, unitNames } from '../host/account.ts'
import { monotonicMs } from '../lib/clock.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { runProgram } from '../lib/run-program.ts'
import { requireLinux } from '../host/supported-node.ts'
import { programName } from '../host/paths.ts'
import { programCommand, unitPlace } from '../host/place-commands.ts'
import { ask, configurationOf, statusIfAny, type CommandClient } from '../terminal/ask.ts'
import type { Invocation, RunCommand } from '../terminal/command.ts'
import { isTerminal } from '../terminal/prompt.ts'
import { askAuthority, readAnswers, withAuthority } from './setup-answers.ts'
import {
  applySetup,
  discardSetup,
  lockSetup,
  planSetup,
  setupFiles,
  stageSetup,
  type Answers,
  type SetupFiles,
} from './setup-files.ts'
import { firstLine, unitProperties } from '../host/systemd.ts'

/** The longest wait for a token of the daemon that was started, in ms. */
const TOKEN_WAIT_MS = 15_000
/** The longest time in which a daemon has tried another pair, in ms. */
const RELOAD_WAIT_MS = 60_000
/** The longest time for systemctl to change a setting of a unit, or to reload it, in ms. */
const SYSTEMCTL_MS = 30_000

/** What `check` finds: its exit status, that for the service's answer alone, and why it gave no token. */
interface Check {
  readonly status: number
  /** Null: the service was not asked. */
  readonly live: number | null
  readonly reason: string | null
}
/** Checks what is staged as `check` does, and prints what it finds. */
type PerformCheck = (
  options: ReturnType<typeof configurationOf> & {
    readonly isLive: boolean
    readonly staged: readonly (readonly [path: string, instead: string])[]
  } & Pick<Invocation, 'stdout' | 'stderr' | 'signal'>,
) => Promise<Check>

/** The command, with `check` given to it. */
export const setupWith =
  (performCheck: PerformCheck): RunCommand =>
  async (invocation) =>
    setUp(invocation, performCheck)

async function setUp(invocation: Invocation, performCheck: PerformCheck): Promise<number> {
  requireLinux()
  const { options } = invocation
  // What is made is as it has to be, whatever the mask of the caller.
  process.umask(0o022)
  const account = options['account'] === undefined ? undefined : checkedAccount(String(options['account']))
  const files = await setupFiles(account, process.cwd())
  const answers = await readAnswers(invocation, files)
  const unlock = await lockSetup(files)
  try {
    return await putInForce(answers, { invocation, account, files, performCheck })
  } finally {
    await unlock()
  }
}

/** Checks what the answers make, and has that in use: the same, as this is the only setup here. */
async function putInForce(answers: Answers, asked: Omit<Surroundings, 'service'>): Promise<number> {
  const { invocation, account, files } = asked
  const { options, stdout } = invocation
  const service = await serviceOf(account, files)
  try {
    const { staged, check } = await tryAnswers(answers, { ...asked, service })
    const { status } = check
    const isChanged = staged.size > 0
    if (isChanged && check.live !== exitStatus.ok && options['unverified'] !== true) {
      stdout.write(`Nothing was changed, because ${whyNothing(check)}\n`)
      const proxy = service === null ? null : unusedProxy(check, invocation)
      if (proxy !== null) stdout.write(`${proxy}\n`)
      return status
    }
    const restore = await applySetup(staged)
    for (const path of staged.keys()) stdout.write(`Wrote ${escapeUnsafe(path)}\n`)
    if (status === exitStatus.configuration) {
      const end = isChanged ? 'The files stay' : 'Nothing was changed'
      stdout.write(`${end}: correct the faults above\n`)
      return status
    }
    if (service !== null) return await bringUp(invocation, service, { isChanged, status, restore })
    if (!isChanged) stdout.write('Nothing was changed\n')
    stdout.write(`Next: ${programName()} run${accountWords(account)}\n`)
    return status
  } finally {
    await discardSetup(files)
  }
}

/** The unit that is to run with the files, and its state before they are written. */
interface Service {
  /** Without its suffix. */
  readonly unit: string
  readonly account: string | undefined
  readonly isActive: boolean
  readonly isEnabled: boolean
}

/** Null: the unit is not installed, or the files are a person's. Throws UserError (69). */
async function serviceOf(account: string | undefined, files: SetupFiles): Promise<Service | null> {
  if (files.attributes.gid === undefined) return null
  const { unit } = unitNames(account)
  const asked = ['ActiveState', 'UnitFileState']
  const properties = await unitProperties(`${unit}.service`, asked, { isNeeded: true })
  if (properties === null) return null
  const isActive = properties['ActiveState'] === 'active'
  return { unit, account, isActive, isEnabled: properties['UnitFileState'] === 'enabled' }
}

interface Surroundings {
  readonly invocation: Invocation
  readonly account: string | undefined
  readonly files: SetupFiles
  readonly service: Service | null
  readonly performCheck: PerformCheck
}

/** At a terminal it asks for the authority of a certificate that is not trusted, and tries again. */
async function tryAnswers(answers: Answers, surroundings: Surroundings) {
  const { invocation, files } = surroundings
  const trial = await tryOnce(answers, surroundings)
  const lacksAuthority = trial.check.reason === 'tls' && answers.contents.ca === undefined
  if (!lacksAuthority || !isTerminal(invocation.stdin)) return trial
  const ca = await askAuthority(invocation)
  return ca === '' ? trial : tryOnce(withAuthority(answers, files, ca), surroundings)
}

/** Writes what the answers need beside the files that they replace, and checks it. */
async function tryOnce(answers: Answers, surroundings: Surroundings) {
  const { invocation, account, files, service, performCheck } = surroundings
  const { options, env, stdout, stderr, signal } = invocation
  const changes = await planSetup(files, answers, { force: options['force'] === true })
  const staged = await stageSetup(changes, files)
  const words = account === undefined ? { config: files.config } : { account }
  // If nothing changes, a unit shows by its own token what the pair is worth.
  const isLive = changes.length > 0 || service === null
  const configuration = configurationOf({ options: words, env })
  const check = await performCheck({ ...configuration, isLive, staged: [...staged], stdout, stderr, signal })
  return { staged, check }
}

function whyNothing({ status, live, reason }: Check): string {
  if (status === exitStatus.configuration) return 'of the faults above'
  if (reason === 'tls')
    return "TLS failed: if the authority is the company's own, add --ca-file FILE with its certificate"
  const why =
    live === exitStatus.noPermission
      ? 'the service refuses key and secret: correct them'
      : 'the service gave no token: correct what is named above, or try again later'
  return `${why}, or add --unverified to have them in use all the same`
}

/** A proxy that the caller's programs use and the daemon does not: perhaps why the service was not reached. */
function unusedProxy({ live, reason }: Check, { env, options }: Invocation): string | null {
  const isUnreached = live === exitStatus.tryAgain && ['network', 'timeout', 'tls'].includes(reason ?? '')
  const isSet = Boolean(env['https_proxy'] || env['HTTPS_PROXY'])
  if (!isUnreached || !isSet || options['proxy'] === true) return null
  return 'HTTPS_PROXY is set here and not for the daemon: add --proxy to take it into the configuration'
}

/** Makes the unit run with what was written; gives the exit status of `setup`. Throws UserError. */
async function bringUp(
  { stdout }: Invocation,
  service: Service,
  { isChanged, status, restore }: { isChanged: boolean; status: number; restore: () => Promise<void> },
): Promise<number> {
  const { unit, account, isActive, isEnabled } = service
  const isStale = isActive && (isChanged || (await isChangedOnDisk(account)))
  if (!isEnabled) await change('enable', 'Enabled')
  const isConfirmed = status === exitStatus.ok
  // The running daemon uses no pair that gives it no token, but at a start.
  const isForced = isChanged && !isConfirmed
  if (isStale && isForced) await change('restart', 'Restarted')
  else if (isStale) {
    stdout.write(`Waiting up to ${RELOAD_WAIT_MS / 1_000} s for ${unit} to take it over\n`)
    await reload(service, { isChanged, restore })
    stdout.write(`Reloaded ${unit}\n`)
  }
  if (!isChanged && isEnabled && isActive && !isStale) stdout.write('Nothing was changed\n')
  stdout.write(`Waiting up to ${TOKEN_WAIT_MS / 1_000} s for ${isConfirmed ? 'a token of ' : ''}${unit}\n`)
  const endMs = monotonicMs() + TOKEN_WAIT_MS
  if (!isActive) await change('restart', 'Started')
  // The running daemon keeps its old token; only the check knows what the new credentials are worth.
  if (isConfirmed)
    stdout.write(`${unit} runs and holds a token, ${await tokenOf(service, { endMs, isStale })}\n`)
  else
    stdout.write(
      `${unit} runs with a key and secret that the service has not confirmed: ${seeStatus(account)}\n`,
    )
  return status

  async function change(verb: Verb, done: string): Promise<void> {
    await systemctl(unit, verb)
    stdout.write(`${done} ${unit}\n`)
  }
}

/** As `ask`, of the account's unit. */
async function askUnit<T>(
  account: string | undefined,
  question: (client: CommandClient) => Promise<T>,
): Promise<T> {
  return ask({ options: { socket: systemSocket(account) }, env: {} }, question)
}

/** A former `setup` may have ended before its reload. A daemon that is silent is an error later. */
async function isChangedOnDisk(account: string | undefined): Promise<boolean> {
  const status = await statusIfAny(systemSocket(account))
  return status?.daemon.configuration.state === 'changed'
}

/**
 * Has the daemon read what was written. Throws UserError if that is not in use: what stood before is again; where
 * no daemon answers, changed files stay, because the service has given a token for them.
 */
async function reload(
  { unit, account }: Service,
  { isChanged, restore }: { isChanged: boolean; restore: () => Promise<void> },
): Promise<void> {
  const restored = 'What stood before was restored'
  const reloadOr = async (end: string) =>
    askUnit(account, (client) => client.reload()).catch((error: unknown) => {
      throw error instanceof UserError ? new UserError(`${error.message} ${end}`, error.status) : error
    })
  const restart = `\`sudo systemctl restart ${unit}\`.`
  const { outcome, pair, problems } = await reloadOr(
    isChanged
      ? `The files stay, and the service takes their pair; have it in use: ${restart}`
      : 'Run this again.',
  )
  if (outcome === 'ok') return
  await restore()
  await reloadOr(`${restored}: ${restart}`)
  if (outcome === 'faulty')
    throw new UserError(
      `${unit} took nothing over. ${restored}. ${problems.join(' ')}`,
      exitStatus.configuration,
    )
  throw pair === 'refused'
    ? new UserError(`The service refuses the new pair: correct it. ${restored}.`, exitStatus.noPermission)
    : new UserError(`${unit} got no token with the new pair: try again. ${restored}.`, exitStatus.tryAgain)
}

/** How long the unit's token is good, and how programs get it. Throws UserError if there is none. */
async function tokenOf(
  { unit, account }: Service,
  { endMs, isStale }: { endMs: number; isStale: boolean },
): Promise<string> {
  const waitSeconds = Math.max(1, (endMs - monotonicMs()) / 1_000)
  const { token, known } = await askUnit(account, async (client) => ({
    token: await client.get({ waitSeconds }),
    known: await client.status(),
  }))
  // After a reload the state may still be that of the former credentials.
  if (known.state === 'refused' && !isStale)
    throw new UserError(
      `${unit} holds a token, but the service refuses the account (${known.failure?.reason}): ` +
        `${seeStatus(account)}.`,
      exitStatus.noPermission,
    )
  const life = formatDuration(Date.parse(token.expiresAt) - Date.now())
  return `good for ${life}. Give it to programs: sudo usermod -aG kyc-token USER`
}

function seeStatus(account: string | undefined): string {
  return `see \`${programCommand('status', unitPlace(account))}\``
}

type Verb = 'enable' | 'restart'

/**
 * `restart` starts the unit in place of a start that is under way: that may be one of a faulty configuration,
 * which clients at the socket cause again and again, and which a mere start would join. The end of its wait
 * is no failure, because the token tells. Throws UserError (69) if systemctl fails.
 */
async function systemctl(unit: string, verb: Verb): Promise<void> {
  const timeoutMs = verb === 'restart' ? TOKEN_WAIT_MS : SYSTEMCTL_MS
  const words = [verb, `${unit}.service`]
  const startedAtMs = monotonicMs()
  const { isOk, stderr } = await runProgram('systemctl', words, timeoutMs)
  if (isOk || (verb === 'restart' && monotonicMs() - startedAtMs >= timeoutMs)) return
  const problem = `systemctl ${words.join(' ')} failed (${firstLine(stderr)})`
  const message = `${problem}: see \`sudo journalctl -u ${unit} -n 20\`. The files stay.`
  throw new UserError(message, exitStatus.unavailable)
}
