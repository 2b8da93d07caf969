// reject: reports a token that the service refused.
import { exitStatus, UsageError } from '../lib/error.ts'
import { formatDuration } from '../lib/duration.ts'
import { readLimited } from '../lib/input.ts'
import { FINGERPRINT_LENGTH, type RejectVerdict } from '../protocol.ts'
import { ask } from '../terminal/ask.ts'
import type { Invocation, RunCommand } from '../terminal/command.ts'
import { MAX_TOKEN_LENGTH, TOKEN } from '../token/token.ts'

const FINGERPRINT = new RegExp(`^[0-9a-f]{${FINGERPRINT_LENGTH}}$`)
/** What comes before it in requests, and in what `token --format header` (by default) and `--format env` print. */
const BEFORE_TOKEN = /^(?:(?:Authorization: *)?Bearer +|KYC_ACCESS_TOKEN=)/i
/** A token, its prefix, and its end of line. */
const MAX_STDIN_BYTES = MAX_TOKEN_LENGTH + 64

const verdicts: Readonly<Record<RejectVerdict, string>> = {
  replaced: 'it is not the current token: take the current one',
  refreshing: 'another token is being fetched',
  held: 'it is too soon after the last report',
  unchanged: 'the service gave the same token again: the refusal has another cause, such as a missing right',
  refused: 'the service refuses the account: `kyc-tokend status` says what to do',
}

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
  const bytes = await readLimited(stdin as AsyncIterable<Buffer>, { maxBytes: MAX_STDIN_BYTES })
  const line = bytes?.toString().trim() ?? ''
  const token = line.replace(BEFORE_TOKEN, '').replace(/^'(.*)'$/, '$1')
  if (TOKEN.test(token)) return token
  throw new UsageError('There is no token on stdin: give the token alone, as `kyc-tokend token` prints it.')
}
