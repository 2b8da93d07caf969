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
import { systemdStateOf, whyNotRunning } from './systemd.ts'

/** Exit statuses of `--all`, the worst first. */
const RANKS: readonly number[] = [exitStatus.noPermission, exitStatus.tryAgain, exitStatus.unavailable]

export const run: RunCommand = async (invocation) => {
  const { options, env, stdout } = invocation
  if (options['all'] === true) return allAccounts(invocation)
  if (options['watch'] === true) {
    const { watchStatus } = await import('./watch-status.ts')
    using client = openClient(invocation)
    const last = await watchStatus(client, invocation)
    return last === null ? exitStatus.unavailable : exitStatusOf(last)
  }
  const status = await ask(invocation, (client) => client.status()).catch(async (error: unknown) => {
    throw await withReason(error, invocation)
  })
  if (options['json'] === true) stdout.write(`${escapeUnsafe(JSON.stringify(status))}\n`)
  else {
    const systemd = await systemdStateOf(status.daemon)
    stdout.write(formatStatus(status, { nowMs: Date.now(), systemd, ...screenOf(stdout, env) }))
  }
  return exitStatusOf(status)
}

async function allAccounts({ options, stdout }: Invocation): Promise<number> {
  const excluded = ['socket', 'account', 'watch'].find((name) => options[name] !== undefined)
  if (excluded !== undefined)
    throw new UsageError(`--all and --${excluded} are both given: leave one of them out.`)
  const socket = systemSocket(undefined)
  const daemons = [
    ...(existsSync(socket) ? [{ account: null, named: { socket } }] : []),
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
        const { message: problem, status: exit } = error
        return { account, status: null, problem, exit, cells: [problem] }
      }
    }),
  )
  const rows = results.map(({ account, cells }) => [account ?? '(default)', ...cells])
  // The last cell of a row may be as long as it is.
  const widths = [0, 1, 2].map((at) => Math.max(...rows.map((row) => (row[at + 1] && row[at]?.length) || 0)))
  const lines =
    options['json'] === true
      ? results.map(({ account, status, problem }) => JSON.stringify({ account, status, problem }))
      : rows.map((row) => row.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join('  '))
  for (const line of lines) stdout.write(`${escapeUnsafe(line).trimEnd()}\n`)
  const statuses = results.map(({ exit }) => exit)
  return RANKS.find((rank) => statuses.includes(rank)) ?? statuses.find((status) => status !== 0) ?? 0
}

/** State, life that is left, and what is wrong. */
function cellsOf({ state, token, failure, alert }: StatusResult): string[] {
  const left =
    token === null ? 'no token' : `${formatDuration(Date.parse(token.expiresAt) - Date.now())} left`
  const why = failure === null ? '' : `${failure.reason}: ${failure.detail}`
  return [state, left, alert === null ? why : `ALERT  ${why}`]
}

/** Without a daemon, the reason why the unit does not run, and its remedy, come before the error. */
async function withReason(error: unknown, { options, env }: Invocation): Promise<unknown> {
  if (!(error instanceof UserError) || options['socket'] !== undefined || env['KYC_TOKEND_SOCKET'])
    return error
  const isMisconfigured = error.status === exitStatus.configuration
  if (!isMisconfigured && error.status !== exitStatus.unavailable) return error
  const named = (options['account'] as string | undefined) ?? env[ACCOUNT_VARIABLE] ?? ''
  const why = await whyNotRunning(isAccountName(named) ? named : undefined, { isMisconfigured })
  return why === undefined ? error : new UserError(`${why} ${error.message}`, error.status, { cause: error })
}

function exitStatusOf(status: StatusResult): number {
  if (status.state === 'refused') return exitStatus.noPermission
  return status.token === null ? exitStatus.tryAgain : exitStatus.ok
}
