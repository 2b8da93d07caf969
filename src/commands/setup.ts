// `kyc-tokend setup`: asks for service, key and secret, writes the files, checks them live, and starts the service.
import { checkedAccount, unitNames, type UnitNames } from '../lib/account.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { SYSTEM_RUNTIME_DIRECTORY } from '../lib/paths.ts'
import { requireLinux } from '../lib/require-linux.ts'
import { ask } from './ask.ts'
import { performCheck } from './check.ts'
import type { Invocation, RunCommand } from './command.ts'
import { configurationOf } from './configuration.ts'
import { createReport } from './check-report.ts'
import { readAnswers } from './setup-answers.ts'
import { setupFiles, writeSetup } from './setup-files.ts'
import { hasSystemd, systemctl, unitProperties, type UnitProperties } from './systemctl.ts'

/** The longest wait for the first token. */
const TOKEN_WAIT_SECONDS = 15
/** A start waits for the first attempt of the daemon. */
const START_MS = 100_000

interface Service {
  readonly names: UnitNames
  readonly account: string | undefined
  /** As it was before. */
  readonly unit: UnitProperties
}

export const run: RunCommand = async (invocation) => {
  requireLinux()
  const { options, env, stdout, signal } = invocation
  const account = options['account'] === undefined ? undefined : checkedAccount(String(options['account']))
  const files = await setupFiles(account, process.cwd())
  const answers = await readAnswers(invocation, files)
  const names = unitNames(account)
  const isService = files.attributes.gid !== undefined
  const unit = isService ? await installedUnit(names) : null
  const written = await writeSetup(files, answers, { force: options['force'] === true })
  for (const path of written) stdout.write(`Wrote ${path}\n`)

  const isLive = written.length > 0 || unit === null
  const report = createReport(stdout, { isBrief: true })
  const status = await performCheck(
    {
      ...configurationOf({ options: account === undefined ? { config: files.config } : { account }, env }),
      isWhole: true,
      isLive,
      signal,
    },
    report,
  )
  report.end()
  if (status === exitStatus.configuration) return status
  if (unit !== null) return bringUp(invocation, { names, account, unit, written, status })
  sayIfNothing(invocation, written)
  stdout.write('Next: kyc-tokend run\n')
  return status
}

/** The unit before anything is done; null where none is installed. Throws UserError (69) where systemd does not say. */
async function installedUnit({ unit }: UnitNames): Promise<UnitProperties | null> {
  if (!hasSystemd()) return null
  const name = `${unit}.service`
  const { isOk, stdout, stderr } = await systemctl(['show', '--property', 'LoadState', '--value', name])
  if (isOk && stdout.trim() !== 'loaded') return null
  const properties = isOk ? await unitProperties(name, ['ActiveState', 'UnitFileState']) : null
  if (properties !== null) return properties
  const why = stderr.trim().split('\n')[0] ?? ''
  throw new UserError(
    `systemd does not say whether ${name} is installed (${why}): run this again. Nothing was written.`,
    exitStatus.unavailable,
  )
}

function sayIfNothing({ stdout }: Invocation, changes: readonly string[]): void {
  if (changes.length === 0) stdout.write('Nothing was changed\n')
}

/** Makes the service run with what was written; gives the exit status of `setup`. */
async function bringUp(
  invocation: Invocation,
  { names, account, unit, written, status }: Service & { written: readonly string[]; status: number },
): Promise<number> {
  const wasActive = unit['ActiveState'] === 'active'
  const isStale = wasActive && (written.length > 0 || (await isChangedOnDisk(account)))
  await start(names, { isReload: isStale })
  const steps = [
    ...(isStale ? ['Reloaded'] : []),
    ...(unit['UnitFileState'] === 'enabled' ? [] : ['Enabled']),
    ...(wasActive ? [] : ['Started']),
  ]
  for (const step of steps) invocation.stdout.write(`${step} ${names.unit}\n`)
  sayIfNothing(invocation, [...written, ...steps])
  // The running daemon keeps its old token; only the check knows what the new credentials are worth.
  if (status === exitStatus.noPermission || (wasActive && status !== exitStatus.ok)) return status
  return awaitToken(invocation, { names, account, isStale })
}

/** Reports whether a former run was ended before its reload. */
async function isChangedOnDisk(account: string | undefined): Promise<boolean> {
  try {
    const { daemon } = await ask(daemonOf(account), (client) => client.status())
    return daemon.configuration.state === 'changed'
  } catch (error) {
    // A daemon that does not answer is found when it is asked for its token.
    if (error instanceof UserError) return false
    throw error
  }
}

function daemonOf(account: string | undefined): Pick<Invocation, 'options'> {
  const options = account === undefined ? { socket: `${SYSTEM_RUNTIME_DIRECTORY}/ipc.sock` } : { account }
  return { options }
}

/** Enables and starts the unit, or has it read the new files. Throws UserError (69). */
async function start({ unit }: UnitNames, { isReload }: { isReload: boolean }): Promise<void> {
  const name = `${unit}.service`
  const steps = [...(isReload ? [['reload', name]] : []), ['enable', '--quiet', '--now', name]]
  for (const step of steps) {
    const { isOk, stderr } = await systemctl(step, START_MS)
    if (isOk) continue
    const why = stderr.trim().split('\n')[0] ?? ''
    throw new UserError(
      `systemctl ${step.join(' ')} failed (${why}): see \`journalctl -u ${unit} -n 20\`. The files stay.`,
      exitStatus.unavailable,
    )
  }
}

/** The status of the first token: 0, 75 or 77. */
async function awaitToken(
  invocation: Invocation,
  { names, account, isStale }: Omit<Service, 'unit'> & { isStale: boolean },
): Promise<number> {
  const { token, status } = await ask(daemonOf(account), async (client) => ({
    token: await client.get({ waitSeconds: TOKEN_WAIT_SECONDS }),
    status: await client.status(),
  }))
  // After a reload it may be the state of the former credentials.
  if (status.state === 'refused' && !isStale)
    throw new UserError(
      `${names.unit} holds a token, but the service refuses the account (${status.failure?.reason}): see \`sudo kyc-tokend status\`.`,
      exitStatus.noPermission,
    )
  const life = formatDuration(Date.parse(token.expiresAt) - Date.now())
  invocation.stdout.write(
    `${names.unit} runs and holds a token, good for ${life}. Give it to programs: sudo usermod -aG kyc-token USER\n`,
  )
  return exitStatus.ok
}
