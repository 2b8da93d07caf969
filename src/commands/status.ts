// status: the daemon's state, for people and for programs; of one daemon, or a line for each account of this host.
import { existsSync } from 'node:fs'

import { ACCOUNT_VARIABLE, accountNames, isAccountName, systemSocket } from '../lib/account.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus, UsageError, UserError } from '../lib/error.ts'
import type { StatusResult } from '../protocol.ts'
import { ask, openClient } from './ask.ts'
import type { Invocation, RunCommand } from './command.ts'
import { formatStatus, screenOf } from './format-status.ts'
import { factsOf, whyNotRunning } from './systemd.ts'

/** Exit statuses of `--all`, the worst first. */
const RANKS: readonly number[] = [exitStatus.noPermission, exitStatus.tryAgain, exitStatus.unavailable]

export const run: RunCommand = async (invocation) => {
  const { options, env, stdout } = invocation
  if (options['all'] === true) return allAccounts(invocation)
  if (options['watch'] === true) return watch(invocation)
  const status = await ask(invocation, (client) => client.status()).catch(async (error: unknown) => {
    throw await withReason(error, invocation)
  })
  if (options['json'] === true) stdout.write(`${escapeUnsafe(JSON.stringify(status))}\n`)
  else {
    const facts = await factsOf(status.daemon)
    stdout.write(formatStatus(status, { nowMs: Date.now(), facts, ...screenOf(stdout, env) }))
  }
  return exitStatusOf(status)
}

async function watch(invocation: Invocation): Promise<number> {
  const { watchStatus } = await import('./watch-status.ts')
  const client = openClient(invocation)
  try {
    const last = await watchStatus(client, invocation)
    return last === null ? exitStatus.unavailable : exitStatusOf(last)
  } finally {
    client.close()
  }
}

async function allAccounts({ options, stdout }: Invocation): Promise<number> {
  const excluded = ['socket', 'account', 'watch'].find((name) => options[name] !== undefined)
  if (excluded !== undefined)
    throw new UsageError(`--all and --${excluded} are both given: leave one of them out.`)
  const system = systemSocket(undefined)
  const daemons = [
    ...(existsSync(system) ? [{ account: null, named: { socket: system } }] : []),
    ...accountNames().map((account) => ({ account, named: { account } })),
  ]
  if (daemons.length === 0)
    throw new UserError(
      'There is no daemon of the system here: `sudo kyc-tokend setup`.',
      exitStatus.unavailable,
    )
  const results = await Promise.all(
    daemons.map(async ({ account, named }) => {
      try {
        const status = await ask({ options: named }, (client) => client.status())
        return { account, status, problem: null, exit: exitStatusOf(status), cells: cellsOf(status) }
      } catch (error) {
        if (!(error instanceof UserError)) throw error
        const { message } = error
        return { account, status: null, problem: message, exit: error.status, cells: [message] }
      }
    }),
  )
  const rows = results.map(({ account, cells }) => [account ?? '(default)', ...cells])
  // The last cell of a row may be as long as it is.
  const widths = [0, 1, 2].map((at) => Math.max(...rows.map((row) => (row[at + 1] && row[at]?.length) || 0)))
  for (const [index, { account, status, problem }] of results.entries()) {
    const line = rows[index]!.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join('  ')
    const text = options['json'] === true ? JSON.stringify({ account, status, problem }) : line
    stdout.write(`${escapeUnsafe(text).trimEnd()}\n`)
  }
  const statuses = results.map(({ exit }) => exit)
  return RANKS.find((rank) => statuses.includes(rank)) ?? statuses.find((status) => status !== 0) ?? 0
}

/** State, life that is left, and what is wrong. */
function cellsOf({ state, token, failure, alert }: StatusResult): string[] {
  const left =
    token === null ? 'no token' : `${formatDuration(Date.parse(token.expiresAt) - Date.now())} left`
  const why = failure === null ? [] : [`${failure.reason}: ${failure.detail}`]
  return [state, left, [...(alert === null ? [] : ['ALERT']), ...why].join('  ')]
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
