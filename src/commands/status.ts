// status: the daemon's state, for people and for programs.
import { ACCOUNT_VARIABLE, isAccountName } from '../lib/account.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { exitStatus, UsageError, UserError } from '../lib/error.ts'
import type { StatusResult } from '../protocol.ts'
import { ask, openClient } from './ask.ts'
import type { Invocation, RunCommand } from './command.ts'
import { formatStatus } from './format-status.ts'
import { factsOf, whyNotRunning } from './host-facts.ts'
import { isTerminal } from './prompt.ts'

export const run: RunCommand = async (invocation) => {
  const { options, env, stdout } = invocation
  if (options['all'] === true) return allAccounts(invocation)
  const hasColour = isTerminal(stdout) && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb'
  if (options['watch'] === true) return watch(invocation, hasColour)
  const status = await ask(invocation, (client) => client.status()).catch(async (error: unknown) => {
    throw await withReason(error, invocation)
  })
  if (options['json'] === true) stdout.write(`${escapeUnsafe(JSON.stringify(status))}\n`)
  else
    stdout.write(formatStatus(status, { nowMs: Date.now(), hasColour, facts: await factsOf(status.daemon) }))
  return exitStatusOf(status)
}

async function allAccounts(invocation: Invocation): Promise<number> {
  const excluded = ['socket', 'account', 'watch'].find((name) => invocation.options[name] !== undefined)
  if (excluded !== undefined)
    throw new UsageError(`--all and --${excluded} are both given: leave one of them out.`)
  const { statusOfAll } = await import('./status-all.ts')
  return statusOfAll(invocation, exitStatusOf)
}

async function watch(invocation: Invocation, hasColour: boolean): Promise<number> {
  const { watchStatus } = await import('./watch-status.ts')
  const { stdout, signal } = invocation
  const client = openClient(invocation)
  try {
    const last = await watchStatus(client, { stdout, signal, hasColour })
    return last === null ? exitStatus.unavailable : exitStatusOf(last)
  } finally {
    client.close()
  }
}

/** Without a daemon, the reason why the unit does not run, and its remedy, come before the error. */
async function withReason(error: unknown, { options, env }: Invocation): Promise<unknown> {
  const isAway =
    error instanceof UserError &&
    [exitStatus.unavailable, exitStatus.configuration].includes(error.status as 69 | 78)
  const isElsewhere = options['socket'] !== undefined || (env['KYC_TOKEND_SOCKET'] ?? '') !== ''
  if (!isAway || isElsewhere) return error
  const account = (options['account'] as string | undefined) ?? env[ACCOUNT_VARIABLE]
  const why = await whyNotRunning(account !== undefined && isAccountName(account) ? account : undefined, {
    isMisconfigured: error.status === exitStatus.configuration,
  })
  return why === undefined ? error : new UserError(`${why} ${error.message}`, error.status, { cause: error })
}

function exitStatusOf(status: StatusResult): number {
  if (status.state === 'refused') return exitStatus.noPermission
  return status.token === null ? exitStatus.tryAgain : exitStatus.ok
}
