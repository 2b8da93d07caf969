// How a command asks the daemon: finds its socket, reads durations, and turns what goes wrong into a sentence and a status.
import { TokenClient, TokenClientError, type TokenClientErrorCode, type TokenResult } from '../client.ts'
import { parseDuration } from '../lib/duration.ts'
import { exitStatus, UserError, type ExitStatus } from '../lib/error.ts'
import { MAX_MIN_VALID_SECONDS, MAX_WAIT_SECONDS } from '../protocol.ts'
import type { Invocation } from './command.ts'

/** Exit status of each error (contract, section 8). */
const statuses: Readonly<Record<TokenClientErrorCode, ExitStatus>> = {
  'no-token-yet': exitStatus.tryAgain,
  expired: exitStatus.tryAgain,
  busy: exitStatus.tryAgain,
  'account-inactive': exitStatus.noPermission,
  'account-not-found': exitStatus.noPermission,
  denied: exitStatus.noPermission,
  misconfigured: exitStatus.configuration,
  'bad-request': exitStatus.usage,
  'daemon-unreachable': exitStatus.unavailable,
  timeout: exitStatus.unavailable,
  closed: exitStatus.internal,
}

/** A client for the socket that the invocation means. */
export function openClient(invocation: Invocation): TokenClient {
  const named = invocation.options['socket'] as string | undefined
  if (named === '')
    throw new UserError('--socket is empty: name the socket, or leave it out', exitStatus.usage)
  return new TokenClient({ name: 'kyc-tokend', ...(named !== undefined && { socketPath: named }) })
}

/** Asks one question. Throws UserError for all that the daemon or its absence answers. */
export async function ask<T>(
  invocation: Invocation,
  question: (client: TokenClient) => Promise<T>,
): Promise<T> {
  const client = openClient(invocation)
  try {
    return await question(client)
  } catch (error) {
    throw asUserError(error)
  } finally {
    client.close()
  }
}

/** The token as the options `--min-valid` and `--wait` want it. */
export async function askToken(invocation: Invocation): Promise<TokenResult> {
  const minValidSeconds = secondsOf(invocation, {
    option: 'min-valid',
    otherwise: 0,
    max: MAX_MIN_VALID_SECONDS,
  })
  const waitSeconds = secondsOf(invocation, { option: 'wait', otherwise: 10, max: MAX_WAIT_SECONDS })
  return ask(invocation, (client) => client.get({ minValidSeconds, waitSeconds }))
}

/** A TokenClientError as the UserError it is to a person; anything else as it is. */
export function asUserError(error: unknown): unknown {
  return error instanceof TokenClientError
    ? new UserError(error.message, statuses[error.code], { cause: error })
    : error
}

function secondsOf(
  invocation: Invocation,
  { option, otherwise, max }: { option: string; otherwise: number; max: number },
): number {
  const text = invocation.options[option]
  if (typeof text !== 'string') return otherwise
  const ms = parseDuration(text)
  if (ms === undefined || ms > max * 1_000)
    throw new UserError(
      `--${option} takes a duration such as 30s or 5m, up to ${max < 3_600 ? `${max}s` : `${max / 3_600}h`}.`,
      exitStatus.usage,
    )
  return ms / 1_000
}
