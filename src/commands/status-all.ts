// `status --all`: a line for each account of this host, and the worst exit status.
import { existsSync } from 'node:fs'
import { join } from 'node:path'

import { accountNames } from '../lib/account.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { SYSTEM_RUNTIME_DIRECTORY } from '../lib/paths.ts'
import type { StatusResult } from '../protocol.ts'
import { ask } from './ask.ts'
import type { Invocation } from './command.ts'

/** The worst first. */
const RANKS: readonly number[] = [exitStatus.noPermission, exitStatus.tryAgain, exitStatus.unavailable]

export async function statusOfAll(
  invocation: Invocation,
  statusOf: (status: StatusResult) => number,
): Promise<number> {
  const { stdout, options } = invocation
  const system = join(SYSTEM_RUNTIME_DIRECTORY, 'ipc.sock')
  const daemons = [
    ...(existsSync(system) ? [{ name: '(default)', options: { socket: system } }] : []),
    ...accountNames().map((name) => ({ name, options: { account: name } })),
  ]
  if (daemons.length === 0)
    throw new UserError(
      'There is no daemon of the system here: `sudo kyc-tokend setup`.',
      exitStatus.unavailable,
    )
  const results = await Promise.all(
    daemons.map(async (daemon) => {
      try {
        const status = await ask(daemon, (client) => client.status())
        return { name: daemon.name, status, exit: statusOf(status), line: lineOf(status) }
      } catch (error) {
        if (!(error instanceof UserError)) throw error
        return { name: daemon.name, status: null, exit: error.status, line: error.message }
      }
    }),
  )
  const width = Math.max(...results.map(({ name }) => name.length))
  for (const { name, status, line } of results)
    stdout.write(
      options['json'] === true
        ? `${escapeUnsafe(JSON.stringify({ account: name === '(default)' ? null : name, status, problem: status === null ? line : null }))}\n`
        : `${name.padEnd(width)}  ${escapeUnsafe(line)}\n`,
    )
  return worstOf(results.map(({ exit }) => exit))
}

/** 77 before 75 before 69 before any other; 0 where all are well. */
function worstOf(statuses: readonly number[]): number {
  return RANKS.find((rank) => statuses.includes(rank)) ?? statuses.find((status) => status !== 0) ?? 0
}

function lineOf({ state, token, failure, alert }: StatusResult): string {
  const left =
    token === null ? 'no token' : `${formatDuration(Date.parse(token.expiresAt) - Date.now())} left`
  const why = failure === null ? '' : `  ${failure.reason}: ${failure.detail}`
  return `${state.padEnd(8)}  ${left}${alert === null ? '' : '  ALERT'}${why}`
}
