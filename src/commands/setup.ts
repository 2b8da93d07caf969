// `kyc-tokend setup`: asks for service, key and secret, writes the files, checks them live, and starts the service. A pair
// that the service does not confirm is not taken over.
import { accountWords, checkedAccount, systemSocket, unitNames } from '../lib/account.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { runProgram } from '../lib/run-program.ts'
import { requireLinux } from '../lib/supported-node.ts'
import { ask, configurationOf, statusIfAny } from './ask.ts'
import { createReport, performCheck } from './check.ts'
import type { Invocation, RunCommand } from './command.ts'
import { announce } from './prompt.ts'
import { readAnswers } from './setup-answers.ts'
import { planSetup, setupFiles, writeSetup } from './setup-files.ts'
import { firstLine, unitProperties, type UnitProperties } from './systemd.ts'

/** The longest wait for the first token. */
const TOKEN_WAIT_SECONDS = 15
/** A start waits for the first attempt of the daemon. */
const START_MS = 100_000

interface Service {
  /** Without its suffix. */
  readonly unit: string
  readonly account: string | undefined
  /** As it was before. */
  readonly properties: UnitProperties
}

export const run: RunCommand = async (invocation) => {
  requireLinux()
  const { options, env, stdout, stderr, signal } = invocation
  const account = options['account'] === undefined ? undefined : checkedAccount(String(options['account']))
  const files = await setupFiles(account, process.cwd())
  const answers = await readAnswers(invocation, files)
  const { unit } = unitNames(account)
  const isService = files.attributes.gid !== undefined
  const asked = ['ActiveState', 'UnitFileState']
  const properties = isService ? await unitProperties(`${unit}.service`, asked, { isNeeded: true }) : null
  const changes = await planSetup(files, answers, { force: options['force'] === true })
  const undo = await writeSetup(changes, files)
  for (const { path } of changes) stdout.write(`Wrote ${path}\n`)

  const words = account === undefined ? { config: files.config } : { account }
  const isLive = changes.length > 0 || properties === null
  // A running daemon may hold another pair, which is about to be replaced.
  const how = { isWhole: true, isLive, asksDaemon: false, signal, stderr }
  const { status, live } = await performCheck(
    { ...configurationOf({ options: words, env }), ...how },
    createReport(stdout, 'setup'),
  ).catch(async (error: unknown) => {
    await undo()
    throw error
  })
  const isTaken = changes.length === 0 || live === exitStatus.ok || options['unverified'] === true
  if (!isTaken) {
    for (const line of await undo()) stdout.write(`${line}\n`)
    stdout.write(`Nothing was changed, because ${whyNothing(status, live)}\n`)
    return status
  }
  if (status === exitStatus.configuration) {
    stdout.write(
      `${changes.length > 0 ? 'The files stay' : 'Nothing was changed'}: correct the faults above\n`,
    )
    return status
  }
  if (properties !== null)
    return bringUp(invocation, { unit, account, properties }, { changes: changes.length, status })
  if (changes.length === 0) stdout.write('Nothing was changed\n')
  stdout.write('Next: kyc-tokend run\n')
  return status
}

function whyNothing(status: number, live: number | null): string {
  if (status === exitStatus.configuration) return 'of the faults above'
  const why =
    live === exitStatus.noPermission
      ? 'the service refuses key and secret: correct them'
      : 'the service gave no token: try again later'
  return `${why}, or add --unverified to have them in use all the same`
}

/** Makes the service run with what was written; gives the exit status of `setup`. */
async function bringUp(
  { stdout, stderr }: Invocation,
  { unit, account, properties }: Service,
  { changes, status }: { changes: number; status: number },
): Promise<number> {
  const daemon = { options: account === undefined ? { socket: systemSocket(undefined) } : { account } }
  const wasActive = properties['ActiveState'] === 'active'
  // A former run may have been ended before its reload. A daemon that does not answer is found when it is asked for its token.
  const isStale =
    wasActive && (changes > 0 || (await statusIfAny(daemon))?.daemon.configuration.state === 'changed')
  await start(unit, isStale)
  const steps = [
    ...(isStale ? ['Reloaded'] : []),
    ...(properties['UnitFileState'] === 'enabled' ? [] : ['Enabled']),
    ...(wasActive ? [] : ['Started']),
  ]
  for (const step of steps) stdout.write(`${step} ${unit}\n`)
  if (changes === 0 && steps.length === 0) stdout.write('Nothing was changed\n')
  const seeStatus = `see \`sudo kyc-tokend status${accountWords(account)}\``
  // The running daemon keeps its old token; only the check knows what the new credentials are worth.
  if (status !== exitStatus.ok) {
    stdout.write(`${unit} runs with a key and secret that the service has not confirmed: ${seeStatus}\n`)
    return status
  }
  announce(stderr, 'Waiting for the first token')
  const { token, known } = await ask(daemon, async (client) => ({
    token: await client.get({ waitSeconds: TOKEN_WAIT_SECONDS }),
    known: await client.status(),
  }))
  // After a reload it may be the state of the former credentials.
  if (known.state === 'refused' && !isStale)
    throw new UserError(
      `${unit} holds a token, but the service refuses the account (${known.failure?.reason}): ${seeStatus}.`,
      exitStatus.noPermission,
    )
  const life = formatDuration(Date.parse(token.expiresAt) - Date.now())
  stdout.write(
    `${unit} runs and holds a token, good for ${life}. Give it to programs: sudo usermod -aG kyc-token USER\n`,
  )
  return exitStatus.ok
}

/** Enables and starts the unit, or has it read the new files. Throws UserError (69). */
async function start(unit: string, isReload: boolean): Promise<void> {
  const name = `${unit}.service`
  const steps = [...(isReload ? [['reload', name]] : []), ['enable', '--quiet', '--now', name]]
  for (const step of steps) {
    const { isOk, stderr } = await runProgram('systemctl', step, START_MS)
    if (!isOk)
      throw new UserError(
        `systemctl ${step.join(' ')} failed (${firstLine(stderr)}): see \`journalctl -u ${unit} -n 20\`. The files stay.`,
        exitStatus.unavailable,
      )
  }
}
