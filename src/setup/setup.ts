// `kyc-tokend setup`: writes new files beside those in use, checks them live, puts them in place, and has the daemon
// use them. Nothing is replaced before it was checked, so nothing is restored.
import { installationOf } from '../host/account.ts'
import { programName } from '../host/paths.ts'
import { asUserError, createRemedies } from '../host/remedy.ts'
import { firstLine, unitProperties } from '../host/system.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { runProgram } from '../lib/run-program.ts'
import { ask, configurationOf } from '../terminal/ask.ts'
import type { Invocation, RunCommand } from '../terminal/command.ts'
import { readAnswers, type Answers } from './setup-answers.ts'
import { lockSetup, planSetup, refuseExisting, setupFiles, type SetupFiles } from './setup-files.ts'

/** The longest wait for a token of the daemon that was started, in s. */
const TOKEN_WAIT_S = 15
const SYSTEMCTL_MS = 30_000

/** Checks a configuration, and asks the service once. Gives the exit status, and prints what is wrong. */
type CheckLive = (
  options: Pick<Invocation, 'env' | 'stdout' | 'signal'> & {
    readonly configPath: string
    readonly account: string | undefined
  },
) => Promise<number>

/** The command, with `check` given to it. */
export const setupWith =
  (checkLive: CheckLive): RunCommand =>
  async (invocation) => {
    const { options } = invocation
    // Files are made with the modes that they need, whatever the umask of the caller is.
    process.umask(0o022)
    const { account } = configurationOf(invocation)
    const files = setupFiles(account, process.cwd())
    const force = options['force'] === true
    const answers = await readAnswers(invocation, () => refuseExisting(files, { force }))
    try {
      await using _ = await lockSetup(files)
      refuseExisting(files, { force })
      return await setUp(answers, { invocation, account, files, checkLive })
    } catch (error) {
      throw asUserError(files.config, error)
    }
  }

async function setUp(
  answers: Answers,
  {
    invocation: { options, env, stdout, signal },
    account,
    files,
    checkLive,
  }: { invocation: Invocation; account: string | undefined; files: SetupFiles; checkLive: CheckLive },
): Promise<number> {
  const plan = planSetup(files, answers)
  let status: number = exitStatus.ok
  if (plan.isChange) {
    const { config, steps } = await plan.stage()
    status = await checkLive({ configPath: config, account, env, stdout, signal })
    const isFaulty = status === exitStatus.configuration
    if (isFaulty || (status !== exitStatus.ok && options['unverified'] !== true)) {
      const orElse = isFaulty ? '' : ', or add --unverified to put the files in place all the same'
      stdout.write(`Nothing was changed: correct what is named above${orElse}\n`)
      return status
    }
    for (const step of steps) await step()
    for (const path of plan.written) stdout.write(`Wrote ${escapeUnsafe(path)}\n`)
  } else stdout.write('Nothing was changed\n')
  const unit = `${installationOf(account).unit}.service`
  const service = files.isOfUnit ? await unitProperties(unit, ['ActiveState']) : null
  if (service === null) stdout.write(`Next: ${programName()} run${installationOf(account).option}\n`)
  else await bringUp({ account, stdout, isActive: service['ActiveState'] === 'active' })
  return status
}

/** Has the unit use what was written, and waits for a token. Throws UserError: 69 if systemctl fails, 75, 77, 78. */
async function bringUp({
  account,
  stdout,
  isActive,
}: Pick<Invocation, 'stdout'> & { account: string | undefined; isActive: boolean }): Promise<void> {
  const { unit } = installationOf(account)
  const daemon = { options: { socket: installationOf(account).ipcSocket }, env: {} }
  await systemctl(account, 'enable', `${unit}.service`)
  let isRestarted = !isActive
  if (isActive) {
    const { outcome, pair, problems, needsRestart } = await ask(daemon, async (client) => client.reload())
    if (outcome !== 'ok') {
      const ended = pair === 'refused' ? exitStatus.noPermission : exitStatus.tryAgain
      throw new UserError(
        [`${unit} does not use the new files:`, ...problems].join(' '),
        outcome === 'faulty' ? exitStatus.configuration : ended,
      )
    }
    isRestarted = needsRestart.length > 0
  }
  // It takes the place of a start that is under way, perhaps of a faulty configuration.
  if (isRestarted) await systemctl(account, 'restart', '--no-block', `${unit}.service`)
  stdout.write(`${isRestarted ? 'Started' : 'Reloaded'} ${unit}\n`)
  const token = await ask(daemon, async (client) => client.get({ waitSeconds: TOKEN_WAIT_S }))
  const life = formatDuration(Date.parse(token.expiresAt) - Date.now())
  stdout.write(`${unit} runs and holds a token, good for ${life}\n`)
}

async function systemctl(account: string | undefined, ...words: readonly string[]): Promise<void> {
  const { isOk, stderr } = await runProgram('systemctl', words, SYSTEMCTL_MS)
  if (isOk) return
  const { log } = createRemedies({ account, isUnit: true }).commands
  const problem = `systemctl ${words.join(' ')} failed (${firstLine(stderr)})`
  throw new UserError(`${problem}: see \`${log}\`. The files stay.`, exitStatus.unavailable)
}
