// reject: reports a token that the service answered with 401.
import { exitStatus, UsageError } from '../lib/error.ts'
import { formatDuration } from '../lib/duration.ts'
import { readLimited } from '../lib/input.ts'
import { programName } from '../host/paths.ts'
import { FINGERPRINT_LENGTH, type RejectResult, type RejectVerdict } from '../protocol.ts'
import { ask } from '../terminal/ask.ts'
import type { Invocation, RunCommand } from '../terminal/command.ts'
import { MAX_TOKEN_LENGTH, TOKEN } from '../token/token.ts'

const FINGERPRINT = new RegExp(`^[0-9a-f]{${FINGERPRINT_LENGTH}}$`)
/** What comes before it in requests, and in what `token --format header` (by default) and `--format env` print. */
const BEFORE_TOKEN = /^(?:(?:Authorization: *)?Bearer +|KYC_ACCESS_TOKEN=)/i
/** A token, its prefix, and its end of line. */
const MAX_STDIN_BYTES = MAX_TOKEN_LENGTH + 64

const verdicts: Readonly<Record<RejectVerdict, (result: RejectResult) => string>> = {
  replaced: () => `It is not the current token: take the current one (${programName()} token).`,
  refreshing: () => 'Another token is being fetched.',
  held: ({ retryAfterSeconds = 0 }) =>
    `Too soon after the last report: the service is asked in ${formatDuration(retryAfterSeconds * 1_000)}.`,
  unchanged: () =>
    'The service gave the same token again: the refusal has another cause, such as a missing right.',
  refused: () => `The service refuses the account: \`${programName()} status\` says what to do.`,
}

export const reject: RunCommand = async (invocation) => {
  const named = await namedToken(invocation)
  const result = await ask(invocation, async (client) =>
    client.reject(named ?? { fingerprint: (await client.get({ waitSeconds: 1 })).fingerprint }),
  )
  invocation.stdout.write(`${result.verdict}: ${meaningOf(result)}\n`)
  return result.verdict === 'refused' ? exitStatus.noPermission : exitStatus.ok
}

/** The verdict of a newer daemon is shown as it is. */
function meaningOf(result: RejectResult): string {
  const { verdict } = result
  return Object.hasOwn(verdicts, verdict) ? verdicts[verdict](result) : 'the daemon says no more.'
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
      `reject takes a fingerprint (${FINGERPRINT_LENGTH} hex digits, as status shows it), and not a ` +
        'token: give the token on stdin (kyc-tokend reject -), because arguments can be read by others.',
    )
  const bytes = await readLimited(stdin as AsyncIterable<Buffer>, { maxBytes: MAX_STDIN_BYTES })
  const line = bytes?.toString().trim() ?? ''
  const token = line.replace(BEFORE_TOKEN, '').replace(/^'(.*)'$/, '$1')
  if (TOKEN.test(token)) return token
  throw new UsageError('There is no token on stdin: give the token alone, as `kyc-tokend token` prints it.')
}
