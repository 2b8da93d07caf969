// status: the daemon's state, for people and for programs, or a line for each account of this host.
import { existsSync } from 'node:fs'
import { accountNames, systemSocket } from '../host/account.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { programName } from '../host/paths.ts'
import type { StatusResult } from '../protocol.ts'
import { systemdStateOf } from '../host/alert-command.ts'
import { ask, bothGiven, namedSocket } from '../terminal/ask.ts'
import type { Invocation, RunCommand } from '../terminal/command.ts'
import { formatStatus, screenOf } from '../terminal/format-status.ts'
import { configuredAccounts, isConfigured } from '../host/system-config.ts'

/** Exit statuses of `--all`, the worst first. */
const RANKS: readonly number[] = [exitStatus.noPermission, exitStatus.tryAgain, exitStatus.unavailable]

export const run: RunCommand = async (invocation) => {
  const { options, env, stdout } = invocation
  if (options['all'] === true) return allAccounts(invocation)
  const status = await ask(invocation, (client) => client.status())
  if (options['json'] === true) stdout.write(`${escapeUnsafe(JSON.stringify(status))}\n`)
  else {
    const systemd = await systemdStateOf(status.daemon)
    const socket = namedSocket(invocation)
    stdout.write(formatStatus(status, { nowMs: Date.now(), systemd, socket, ...screenOf(stdout, env) }))
  }
  return exitStatusOf(status)
}

/** A line for each daemon of this host. The exit status is the worst of theirs. */
async function allAccounts({ options, stdout }: Invocation): Promise<number> {
  const excluded = ['socket', 'account'].find((name) => options[name] !== undefined)
  if (excluded !== undefined) throw bothGiven(`--all and --${excluded}`)
  const daemons = daemonsOfHost()
  if (daemons.length === 0)
    throw new UserError(
      `There is no daemon of the system here: \`sudo ${programName()} setup\`.`,
      exitStatus.unavailable,
    )
  const answers = await Promise.all(daemons.map(askOne))
  const lines =
    options['json'] === true
      ? answers.map(({ account, status, problem }) => JSON.stringify({ account, status, problem }))
      : aligned(answers.map(({ account, cells }) => [account ?? '(default)', ...cells]))
  for (const line of lines) stdout.write(`${escapeUnsafe(line).trimEnd()}\n`)
  const exits = answers.map(({ exit }) => exit)
  return RANKS.find((rank) => exits.includes(rank)) ?? exits.find((exit) => exit !== exitStatus.ok) ?? 0
}

/** `account`: null for the default one. */
interface DaemonOfHost {
  readonly account: string | null
  /** The options that name it. */
  readonly named: { readonly socket: string } | { readonly account: string }
}

/** Those that run or are configured: the socket of one that does not run may be gone. */
function daemonsOfHost(): DaemonOfHost[] {
  const socket = systemSocket(undefined)
  const accounts = new Set([...accountNames(), ...configuredAccounts()])
  return [
    ...(existsSync(socket) || isConfigured(undefined) ? [{ account: null, named: { socket } }] : []),
    ...[...accounts].toSorted().map((account) => ({ account, named: { account } })),
  ]
}

async function askOne({ account, named }: DaemonOfHost) {
  try {
    const status = await ask({ options: named, env: {} }, (client) => client.status())
    return { account, status, problem: null, exit: exitStatusOf(status), cells: cellsOf(status) }
  } catch (error) {
    if (!(error instanceof UserError)) throw error
    const { message: problem, status: exit } = error
    return { account, status: null, problem, exit, cells: [problem] }
  }
}

/** The rows as lines with aligned columns. The last cell of a row may be long, and widens no column. */
function aligned(rows: readonly (readonly string[])[]): string[] {
  const widthOf = (column: number): number =>
    Math.max(...rows.map((row) => (column < row.length - 1 ? row[column]!.length : 0)))
  return rows.map((row) => row.map((cell, column) => cell.padEnd(widthOf(column))).join('  '))
}

/** The cells of a row: state, remaining life, and what is wrong. */
function cellsOf({ state, token, failure, alert }: StatusResult): string[] {
  const left =
    token === null ? 'no token' : `${formatDuration(Date.parse(token.expiresAt) - Date.now())} left`
  const why = failure === null ? '' : `${failure.reason}: ${failure.detail}`
  return [state, left, alert === null ? why : `ALERT  ${why}`]
}

function exitStatusOf(status: StatusResult): number {
  if (status.state === 'refused') return exitStatus.noPermission
  return status.token === null ? exitStatus.tryAgain : exitStatus.ok
}
