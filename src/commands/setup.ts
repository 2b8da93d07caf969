// `kyc-tokend setup`: asks for service, key and secret, writes the files, checks them live, and starts the service.
import { baseUrlProblem, baseUrlWarning } from '../config/base-url.ts'
import { readSecret } from '../config/secrets.ts'
import { checkedAccount } from '../lib/account.ts'
import { capitalized } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { SYSTEM_RUNTIME_DIRECTORY } from '../lib/paths.ts'
import { requireLinux } from '../lib/require-linux.ts'
import { ask } from './ask.ts'
import { performCheck } from './check.ts'
import type { Invocation, RunCommand } from './command.ts'
import { configurationOf } from './configuration.ts'
import { createReport } from './finding.ts'
import { createPrompt, isTerminal } from './prompt.ts'
import {
  existing,
  presentFiles,
  readAnswer,
  setupFiles,
  writeSetup,
  type Answers,
  type SetupFiles,
} from './setup-files.ts'
import { systemctl, unitNames, unitProperties, type UnitNames } from './systemctl.ts'

/** The longest wait for the first token. */
const TOKEN_WAIT_SECONDS = 15
/** A start waits for the first attempt of the daemon. */
const START_MS = 100_000

export const run: RunCommand = async (invocation) => {
  requireLinux()
  const { options, env, stdout, signal } = invocation
  const account = options['account'] === undefined ? undefined : checkedAccount(String(options['account']))
  const files = await setupFiles(account, process.cwd())
  const answers = await readAnswers(invocation, files)
  const written = await writeSetup(files, answers, { force: options['force'] === true })
  for (const path of written) stdout.write(`Wrote ${path}\n`)
  if (written.length === 0) stdout.write(`${files.config} says this already: nothing was changed\n`)

  const names = unitNames(account)
  const unit =
    files.attributes.gid === undefined ? null : await unitProperties(`${names.unit}.service`, ['ActiveState'])
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
  if (unit === null) {
    stdout.write('Next: kyc-tokend run\n')
    return status
  }
  const wasActive = unit['ActiveState'] === 'active'
  await start(names, { isReload: wasActive && written.length > 0 })
  // The running daemon keeps its old token; only the check knows what the new credentials are worth.
  if (status === exitStatus.noPermission || (wasActive && status !== exitStatus.ok)) return status
  return awaitToken(invocation, { names, account })
}

/** From the options, and what is missing from the terminal. Throws UserError. */
async function readAnswers(
  { options, stdin, stderr, signal }: Invocation,
  files: SetupFiles,
): Promise<Answers> {
  const baseUrl = options['base-url'] as string | undefined
  const keyFile = options['api-key-file'] as string | undefined
  const secretFile = options['api-secret-file'] as string | undefined
  const isUnattended = baseUrl !== undefined && keyFile !== undefined && secretFile !== undefined
  if (baseUrl !== undefined) demand('base-url', urlProblem(baseUrl))
  if (!isUnattended && !isTerminal(stdin))
    throw new UserError(
      'There is no terminal to ask at: give --base-url, --api-key-file and --api-secret-file.',
      exitStatus.usage,
    )
  const present = isUnattended || options['force'] === true ? [] : await presentFiles(files)
  if (present.length > 0) throw existing(present, 'add --force to replace it')
  const fromFile = async (path: string, option: string): Promise<string> => {
    const text = await readAnswer(path, option)
    demand(option, secretProblem(text))
    return text
  }
  const given = {
    apiKey: keyFile === undefined ? undefined : await fromFile(keyFile, 'api-key-file'),
    apiSecret: secretFile === undefined ? undefined : await fromFile(secretFile, 'api-secret-file'),
  }
  if (isUnattended) return { baseUrl, apiKey: given.apiKey!, apiSecret: given.apiSecret! }
  const prompt = createPrompt({ input: stdin, output: stderr, signal })
  try {
    return {
      baseUrl: baseUrl ?? (await prompt.ask('Address of the service (https://…)', { problem: urlProblem })),
      apiKey:
        given.apiKey ?? (await prompt.ask('API key (not shown)', { isHidden: true, problem: secretProblem })),
      apiSecret:
        given.apiSecret ??
        (await prompt.ask('API secret (not shown)', { isHidden: true, problem: secretProblem })),
    }
  } finally {
    prompt.close()
  }
}

function demand(option: string, problem: string | undefined): void {
  if (problem !== undefined) throw new UserError(`--${option}: ${problem}.`, exitStatus.usage)
}

function urlProblem(text: string): string | undefined {
  const problem = baseUrlProblem(text) ?? baseUrlWarning(text)
  return problem === undefined ? undefined : `The address ${problem}`
}

/** The fault of a key or secret, found by the rules of the configuration. Never quotes it. */
function secretProblem(text: string): string | undefined {
  const faults: string[] = []
  const diagnostics = { fault: (_at: string, sentence: string) => faults.push(sentence), warn: () => 0 }
  const context = { env: {}, directory: '/', uid: -1, isElsewhere: false, diagnostics, reads: [] }
  readSecret(text, { at: '', context })
  const [fault] = faults
  return fault && capitalized(fault)
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
  { stdout }: Invocation,
  { names, account }: { names: UnitNames; account: string | undefined },
): Promise<number> {
  const options = account === undefined ? { socket: `${SYSTEM_RUNTIME_DIRECTORY}/ipc.sock` } : { account }
  const token = await ask({ options }, (client) => client.get({ waitSeconds: TOKEN_WAIT_SECONDS }))
  const life = formatDuration(Date.parse(token.expiresAt) - Date.now())
  stdout.write(
    `${names.unit} runs and holds a token, good for ${life}. Give it to programs: sudo usermod -aG kyc-token USER\n`,
  )
  return exitStatus.ok
}
