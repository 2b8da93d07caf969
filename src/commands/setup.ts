// `kyc-tokend setup`: asks for service, key and secret, writes the files, checks them live, and starts the daemon. A pair
// that the service does not confirm is not taken over.
import { accountWords, checkedAccount, systemSocket, unitNames } from '../lib/account.ts'
import { monotonicMs } from '../lib/clock.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus, UserError, UsageError } from '../lib/error.ts'
import { runProgram } from '../lib/run-program.ts'
import { requireLinux } from '../lib/supported-node.ts'
import { baseUrlProblem, baseUrlWarning, tokenUrlProblem } from '../config/base-url.ts'
import { secretRefusal } from '../config/inputs.ts'
import { ConfigError, type ConfigIssue } from '../config/issues.ts'
import { findJsonFault } from '../config/json-fault.ts'
import { validateDocument } from '../config/validate.ts'
import { holdsCertificates } from '../lib/crypto.ts'
import { readLimited } from '../lib/input.ts'
import { ask, configurationOf, statusIfAny } from './ask.ts'
import { createReport, performCheck } from './check.ts'
import type { Invocation, RunCommand } from './command.ts'
import { createPrompt, isTerminal } from './prompt.ts'
import {
  lockSetup,
  planSetup,
  setupFiles,
  stageSetup,
  existsError,
  existing,
  readAnswer,
  type Answers,
  type SetupFiles,
} from './setup-files.ts'
import { firstLine, unitProperties, type UnitProperties } from './systemd.ts'

/** The longest wait for a token of the daemon that was started, in ms. */
const TOKEN_WAIT_MS = 15_000
/** The longest time for systemctl to change a setting of a unit, or to reload it, in ms. */
const SYSTEMCTL_MS = 30_000

export const run: RunCommand = async (invocation) => {
  requireLinux()
  const { options, env, stdout, stderr, signal } = invocation
  const account = options['account'] === undefined ? undefined : checkedAccount(String(options['account']))
  const files = await setupFiles(account, process.cwd())
  const answers = await readAnswers(invocation, files)
  const { unit } = unitNames(account)
  const isService = files.attributes.gid !== undefined
  const asked = ['ActiveState', 'UnitFileState']
  const before = isService ? await unitProperties(`${unit}.service`, asked, { isNeeded: true }) : null
  const unlock = await lockSetup(files)
  try {
    const changes = await planSetup(files, answers, { force: options['force'] === true })
    const { staged, apply, discard } = await stageSetup(changes, files)
    const words = account === undefined ? { config: files.config } : { account }
    const isLive = changes.length > 0 || before === null
    // A running daemon may hold another pair, which is about to be replaced.
    const how = { isWhole: true, isLive, asksDaemon: false, staged, signal, stderr }
    const check = await performCheck(
      { ...configurationOf({ options: words, env }), ...how },
      createReport(stdout, 'setup'),
    ).catch(async (error: unknown) => {
      await discard()
      throw error
    })
    const { status } = check
    const isUnverified = options['unverified'] === true
    if (decide({ isChanged: changes.length > 0, isUnverified }, check) === 'leave') {
      await discard()
      stdout.write(`Nothing was changed, because ${whyNothing(check)}\n`)
      return status
    }
    await apply()
    for (const { path } of changes) stdout.write(`Wrote ${path}\n`)
    if (status === exitStatus.configuration) {
      const end = changes.length > 0 ? 'The files stay' : 'Nothing was changed'
      stdout.write(`${end}: correct the faults above\n`)
      return status
    }
    if (before !== null)
      return await bringUp(invocation, { unit, account, before }, { isChanged: changes.length > 0, status })
    if (changes.length === 0) stdout.write('Nothing was changed\n')
    stdout.write(`Next: kyc-tokend run${accountWords(account)}\n`)
    return status
  } finally {
    await unlock()
  }
}

/** The exit status of a check, and that for the service's answer alone. */
type Check = Awaited<ReturnType<typeof performCheck>>

/** Decides whether new files take the place of the former ones. */
function decide(files: { isChanged: boolean; isUnverified: boolean }, { live }: Check): 'take' | 'leave' {
  if (!files.isChanged || files.isUnverified) return 'take'
  return live === exitStatus.ok ? 'take' : 'leave'
}

function whyNothing({ status, live }: Check): string {
  if (status === exitStatus.configuration) return 'of the faults above'
  const why =
    live === exitStatus.noPermission
      ? 'the service refuses key and secret: correct them'
      : 'the service gave no token: try again later'
  return `${why}, or add --unverified to have them in use all the same`
}

/** The unit, and the state in which it was before the files were written. */
interface Service {
  readonly unit: string
  readonly account: string | undefined
  readonly before: UnitProperties
}

/** Makes the unit run with what was written; gives the exit status of `setup`. Throws UserError. */
async function bringUp(
  { stdout }: Invocation,
  service: Service,
  { isChanged, status }: { isChanged: boolean; status: number },
): Promise<number> {
  const { unit, account, before } = service
  const isActive = before['ActiveState'] === 'active'
  // A former `setup` may have ended before its reload. A daemon that does not answer is an error below, at the token.
  const isStale =
    isActive &&
    (isChanged || (await statusIfAny(systemSocket(account)))?.daemon.configuration.state === 'changed')
  const steps = [
    ...(before['UnitFileState'] === 'enabled' ? [] : [['enable', 'Enabled'] as const]),
    ...(isStale ? [['reload', 'Reloaded'] as const] : []),
  ]
  for (const [verb, done] of steps) {
    await systemctl(unit, verb)
    stdout.write(`${done} ${unit}\n`)
  }
  if (!isChanged && steps.length === 0 && isActive) stdout.write('Nothing was changed\n')
  const isConfirmed = status === exitStatus.ok
  stdout.write(`Waiting up to ${TOKEN_WAIT_MS / 1_000} s for ${isConfirmed ? 'a token of ' : ''}${unit}\n`)
  const endMs = monotonicMs() + TOKEN_WAIT_MS
  if (!isActive) {
    await restart(unit, TOKEN_WAIT_MS)
    stdout.write(`Started ${unit}\n`)
  }
  // The running daemon keeps its old token; only the check knows what the new credentials are worth.
  if (isConfirmed)
    stdout.write(`${unit} runs and holds a token, ${await tokenOf(service, { endMs, isStale })}\n`)
  else
    stdout.write(
      `${unit} runs with a key and secret that the service has not confirmed: ${seeStatus(account)}\n`,
    )
  return status
}

/** How long the token of the unit is good, and the command that gives it to programs. Throws UserError if there is none. */
async function tokenOf(
  { unit, account }: Service,
  { endMs, isStale }: { endMs: number; isStale: boolean },
): Promise<string> {
  const waitSeconds = Math.max(1, (endMs - monotonicMs()) / 1_000)
  const { token, known } = await ask(
    { options: { socket: systemSocket(account) }, env: {} },
    async (client) => ({
      token: await client.get({ waitSeconds }),
      known: await client.status(),
    }),
  )
  // After a reload the state may still be that of the former credentials.
  if (known.state === 'refused' && !isStale)
    throw new UserError(
      `${unit} holds a token, but the service refuses the account (${known.failure?.reason}): ${seeStatus(account)}.`,
      exitStatus.noPermission,
    )
  const life = formatDuration(Date.parse(token.expiresAt) - Date.now())
  return `good for ${life}. Give it to programs: sudo usermod -aG kyc-token USER`
}

function seeStatus(account: string | undefined): string {
  return `see \`sudo kyc-tokend status${accountWords(account)}\``
}

/** Throws UserError (69) if systemctl fails. */
async function systemctl(unit: string, verb: 'enable' | 'reload'): Promise<void> {
  const words = [verb, '--quiet', `${unit}.service`]
  const { isOk, stderr } = await runProgram('systemctl', words, SYSTEMCTL_MS)
  if (!isOk) throw systemctlError(unit, words, firstLine(stderr))
}

/**
 * Starts the unit in place of a start that is under way: that may be one of a faulty configuration, which clients at the
 * socket cause again and again, and which a mere start would join. The end of the wait is no failure, because the token
 * tells. Throws UserError (69).
 */
async function restart(unit: string, timeoutMs: number): Promise<void> {
  const words = ['restart', `${unit}.service`]
  const startedAtMs = monotonicMs()
  const { isOk, stderr } = await runProgram('systemctl', words, timeoutMs)
  if (!isOk && monotonicMs() - startedAtMs < timeoutMs) throw systemctlError(unit, words, firstLine(stderr))
}

function systemctlError(unit: string, words: readonly string[], why: string): UserError {
  return new UserError(
    `systemctl ${words.join(' ')} failed (${why}): see \`sudo journalctl -u ${unit} -n 20\`. The files stay.`,
    exitStatus.unavailable,
  )
}

const MAX_DOCUMENT_BYTES = 1_048_576

type Given = Partial<Record<'baseUrl' | 'preset' | 'tokenUrl' | 'apiKey' | 'apiSecret', string | undefined>>
interface Field {
  readonly option: string
  /** The question at a terminal, as the answers so far have it; undefined: it is not needed. */
  readonly question: (given: Given) => string | undefined
  /** The fault of an answer, as a sentence without its full stop. Never quotes a secret. */
  readonly problem: (text: string) => string | undefined
}

/** The fields, in the order of the questions. */
const fields: Readonly<Record<keyof Given, Field>> = {
  baseUrl: {
    option: 'base-url',
    question: () => 'Address of the service (https://…)',
    problem: problemWith('The address', (text) => baseUrlProblem(text) ?? baseUrlWarning(text)),
  },
  preset: {
    option: 'preset',
    question: ({ tokenUrl }) =>
      tokenUrl === undefined
        ? 'Kind of the service: key (API key and secret) or oauth2 (client credentials) [key]'
        : undefined,
    problem: (text) => (['', 'key', 'oauth2'].includes(text) ? undefined : 'Write "oauth2" or "key"'),
  },
  tokenUrl: {
    option: 'token-url',
    question: ({ preset }) =>
      preset === 'oauth2'
        ? 'Where it gives tokens (a path after the address such as /oauth/token, or https://…)'
        : undefined,
    problem: problemWith('The address', tokenUrlProblem),
  },
  apiKey: {
    option: 'api-key-file',
    question: ({ preset }) => `${preset === 'oauth2' ? 'Client ID' : 'API key'} (not shown)`,
    problem: problemWith('The secret', secretRefusal),
  },
  apiSecret: {
    option: 'api-secret-file',
    question: ({ preset }) => `${preset === 'oauth2' ? 'Client secret' : 'API secret'} (not shown)`,
    problem: problemWith('The secret', secretRefusal),
  },
}

/** Throws UsageError (64) for what is missing or cannot be right, and ConfigError (78) for a faulty document. */
async function readAnswers(invocation: Invocation, files: SetupFiles): Promise<Answers> {
  const { options, stdin } = invocation
  const document = options['from'] as string | undefined
  const ca = options['ca-file'] === undefined ? undefined : await readAnswer(options, 'ca-file')
  if (ca !== undefined && !holdsCertificates(ca))
    throw new UsageError('--ca-file: The file does not hold a certificate in PEM.')
  if (document === undefined) return { ...(await singleAnswers(invocation, files)), ca }
  const both = Object.values(fields).find(({ option }) => options[option] !== undefined)
  if (both !== undefined)
    throw new UsageError(`--from and --${both.option} are both given: leave one of them out.`)
  if (document !== '-') return { ...answersOf(await readAnswer(options, 'from'), document), ca }
  const bytes = await readLimited(stdin as AsyncIterable<Buffer>, { maxBytes: MAX_DOCUMENT_BYTES })
  if (bytes === undefined) throw new UsageError('--from: there is more than 1 MiB on standard input.')
  return { ...answersOf(bytes.toString(), 'standard input'), ca }
}

/** The answers from a configuration that contains key and secret. No fault quotes a value. */
function answersOf(text: string, name: string): Answers {
  const syntax = findJsonFault(text)
  if (syntax !== undefined) throw new ConfigError([{ at: '', sentence: syntax }], name)
  const document: unknown = JSON.parse(text)
  const { faults: misshapen } = validateDocument(document)
  if (misshapen.length > 0) throw new ConfigError(misshapen, name)
  const { baseUrl, credentials, ...settings } = document as { baseUrl: string; credentials: Given }
  const { apiKey = '', apiSecret = '' } = credentials
  const faults = Object.entries({ apiKey, apiSecret, baseUrl }).flatMap(([field, value]): ConfigIssue[] => {
    const at = field === 'baseUrl' ? field : `credentials.${field}`
    const sentence =
      typeof value === 'string'
        ? fields[field as keyof Given].problem(value)
        : 'must be the text itself: setup writes it to a file of its own'
    return sentence === undefined ? [] : [{ at, sentence }]
  })
  if (faults.length > 0) throw new ConfigError(faults, name)
  return { baseUrl, apiKey, apiSecret, settings }
}

/** The answers from the options; what they lack is asked at the terminal. */
async function singleAnswers(invocation: Invocation, files: SetupFiles): Promise<Answers> {
  const { options, stdin, stderr, signal } = invocation
  const given: Given = {}
  const all = Object.entries(fields) as [keyof Given, Field][]
  for (const [name, { option, problem }] of all) {
    if (options[option] === undefined) continue
    given[name] = option.endsWith('-file') ? await readAnswer(options, option) : String(options[option])
    const fault = problem(given[name])
    if (fault !== undefined) throw new UsageError(`--${option}: ${fault}.`)
  }
  if (!isWhole(given)) {
    if (!isTerminal(stdin))
      throw new UsageError(
        'There is no terminal to ask at: give --base-url, --api-key-file and --api-secret-file (and --token-url with --preset), or --from.',
      )
    const there = existing([files.config, files.apiKey, files.apiSecret, ...files.others])
    if (there.length > 0 && options['force'] !== true) throw existsError(there, 'add --force to replace it')
    using prompt = createPrompt({ input: stdin, output: stderr, signal })
    for (const [name, { option, question, problem }] of all) {
      const words = given[name] === undefined ? question(given) : undefined
      if (words !== undefined)
        given[name] = await prompt.ask(words, { isHidden: option.endsWith('-file'), problem })
    }
  }
  const { preset, tokenUrl, ...answers } = given as Given & Pick<Answers, 'baseUrl' | 'apiKey' | 'apiSecret'>
  // Without a description it is the standard service.
  const service = { ...(preset === 'oauth2' && { preset }), tokenUrl }
  return { ...answers, settings: tokenUrl === undefined ? {} : { service } }
}

function isWhole({ baseUrl, apiKey, apiSecret, preset, tokenUrl }: Given): boolean {
  const isDescribed = preset === undefined || tokenUrl !== undefined
  return isDescribed && ![baseUrl, apiKey, apiSecret].includes(undefined)
}

function problemWith(subject: string, problem: Field['problem']): Field['problem'] {
  return (text) => {
    const found = problem(text)
    return found === undefined ? undefined : `${subject} ${found}`
  }
}
