// The commands of programs: token, status, watch, reject and exec.
import type { ClientToken, TokenClientError } from '../client/index.ts'
import { textOf } from '../delivery/token-files.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { errorMessage, exitStatus, UsageError } from '../lib/error.ts'
import { readLimited } from '../lib/input.ts'
import { FINGERPRINT_LENGTH, type RejectVerdict } from '../protocol.ts'
import { ask, askToken, openClient, remediesFor, withReason } from '../terminal/ask.ts'
import type { Invocation, RunCommand } from '../terminal/command.ts'
import { formatStatus } from '../terminal/format-status.ts'
import { MAX_TOKEN_LENGTH, TOKEN } from '../token/token.ts'

/** Each ends with a newline, and JSON has all that is known of the token. */
const formats: Readonly<Record<string, (token: ClientToken) => string>> = {
  ...textOf,
  raw: ({ accessToken }) => `${accessToken}\n`,
  json: (token) => `${JSON.stringify(token)}\n`,
}

/** Prints the access token and nothing else. */
export const token: RunCommand = async (invocation) => {
  const format = formats[String(invocation.options['format'] ?? 'raw')]
  invocation.stdout.write(format?.(await askToken(invocation)) ?? '')
  return exitStatus.ok
}

/** Shows the state of the daemon and the remedy of its last failure, for people and for programs. */
export const status: RunCommand = async (invocation) => {
  const { options, stdout } = invocation
  const answer = await ask(invocation, (client) => client.status())
  if (options['json'] === true) stdout.write(`${escapeUnsafe(JSON.stringify(answer))}\n`)
  else {
    const remedies = await remediesFor(answer.daemon, invocation)
    stdout.write(formatStatus(answer, { nowMs: Date.now(), remedies }))
  }
  if (answer.state === 'refused') return exitStatus.noPermission
  return answer.token === null ? exitStatus.tryAgain : exitStatus.ok
}

/** Prints one line of JSON now and at each change, until a line finds no reader. */
export const watch: RunCommand = async (invocation) => {
  const { stdout, stderr } = invocation
  using client = openClient(invocation)
  const { promise, resolve, reject: fail } = Promise.withResolvers<number>()
  let hasAnswered = false
  const print = (line: object): void => {
    hasAnswered = true
    stdout.write(`${escapeUnsafe(JSON.stringify(line))}\n`)
  }
  client.subscribe(print)
  let reported: TokenClientError | undefined
  client.link.onChange(() => {
    const { fault, isLive } = client.link.view()
    if (fault?.code === 'closed' || fault?.message === reported?.message) return
    reported = fault
    if (fault === undefined) return
    const { code, message, reason } = fault
    if (isLive) print({ code, message, reason })
    else
      void withReason(fault, invocation).then((error) =>
        hasAnswered ? stderr.write(`${escapeUnsafe(errorMessage(error))}\n`) : fail(error),
      )
  })
  // `main` reports the error; a reader that has closed the pipe is none.
  stdout.once('error', () => resolve(exitStatus.ok))
  return await promise
}

const FINGERPRINT = new RegExp(`^[0-9a-f]{${FINGERPRINT_LENGTH}}$`)

const verdicts: Readonly<Record<RejectVerdict, string>> = {
  replaced: 'it is not the current token: take the current one',
  refreshing: 'another token is being fetched',
  held: 'it is too soon after the last report',
  unchanged: 'the service gave the same token again: the refusal has another cause, such as a missing right',
  refused: 'the service refuses the account: `kyc-tokend status` says what to do',
}

/** Reports a token that the service refused. */
export const reject: RunCommand = async (invocation) => {
  const named = await namedToken(invocation)
  const { verdict, retryAfterSeconds } = await ask(invocation, async (client) =>
    client.reject(named ?? { fingerprint: (await client.get({ waitSeconds: 1 })).fingerprint }),
  )
  // The verdict of a newer daemon is shown as it is.
  const meaning = Object.hasOwn(verdicts, verdict) ? `: ${verdicts[verdict]}` : ''
  const after =
    retryAfterSeconds === undefined ? '' : ` (it is asked in ${formatDuration(retryAfterSeconds * 1_000)})`
  invocation.stdout.write(`${verdict}${meaning}${after}\n`)
  return verdict === 'refused' ? exitStatus.noPermission : exitStatus.ok
}

/** The token or fingerprint on the command line or on stdin; undefined: the current one. */
async function namedToken({
  positionals,
  stdin,
}: Invocation): Promise<string | { fingerprint: string } | undefined> {
  const [named] = positionals
  if (positionals.length > 1) throw new UsageError('reject takes one fingerprint, or - for a token on stdin.')
  if (named === undefined) return undefined
  if (FINGERPRINT.test(named)) return { fingerprint: named }
  if (named !== '-')
    throw new UsageError(
      `reject takes a fingerprint (${FINGERPRINT_LENGTH} hex digits), and not a token: give the token on stdin ` +
        '(kyc-tokend reject -), because arguments can be read by others.',
    )
  // A token and its end of line.
  const bytes = await readLimited(stdin as AsyncIterable<Buffer>, { maxBytes: MAX_TOKEN_LENGTH + 2 })
  const given = bytes?.toString().trim() ?? ''
  if (TOKEN.test(given)) return given
  throw new UsageError('There is no token on stdin: give the token alone, as `kyc-tokend token` prints it.')
}

/** env(1): finds the command in PATH, and says in the usual way why it cannot be run (126, 127). */
const ENV = '/usr/bin/env'
/** Signals that Node ignores from its start; a program that is executed would, too (signal(7)). */
const IGNORED_BY_NODE = ['SIGPIPE', 'SIGXFSZ'] as const
/** A name that a shell can read (POSIX, 3.216). */
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/
/** Before the names of Node's settings, which /usr/bin/kyc-tokend takes away from this program. */
const OF_CALLER = /^KYC_TOKEND_CALLER_/

/** Becomes another command that has the token in its environment. */
export const exec: RunCommand = async (invocation) => {
  const { positionals, options, env } = invocation
  // env(1) would take another word for a variable.
  if (!/^[^=]+$/.test(positionals[0] ?? ''))
    throw new UsageError('exec needs a command, without "=" in its name: kyc-tokend exec -- CMD …')
  const variable = String(options['env'] ?? 'KYC_ACCESS_TOKEN')
  if (!VARIABLE.test(variable))
    throw new UsageError(
      '--env takes the name of a variable: letters, digits and _, and no digit at its beginning.',
    )
  const { accessToken } = await askToken(invocation)
  for (const signal of IGNORED_BY_NODE) process.once(signal, ignore).off(signal, ignore)
  return process.execve!(ENV, ['env', '--', ...positionals], { ...callersOwn(env), [variable]: accessToken })
}

/** libuv gives a signal its default action back when its last listener goes. */
function ignore(): void {}

/** The environment as the caller has made it. */
function callersOwn(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const settings = Object.entries(env).map(([name, value]) => [name.replace(OF_CALLER, ''), value])
  return Object.fromEntries(settings) as NodeJS.ProcessEnv
}
