// status: the daemon's state, for people and for programs; once, repainted each second, or a line for each account of this host.
import { existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Writable } from 'node:stream'
import { accountNames, systemSocket } from '../lib/account.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus, UsageError, UserError, errorMessage } from '../lib/error.ts'
import type { StatusResult } from '../protocol.ts'
import type { TokenClient } from '../client/index.ts'
import { ask, openClient, withReason } from './ask.ts'
import type { Invocation, RunCommand } from './command.ts'
import { formatStatus, screenOf, cutTo } from './format-status.ts'
import { configuredAccounts, isConfigured, systemdStateOf, notUnderSystemd } from './systemd.ts'
import { isTerminal } from './prompt.ts'

/** Exit statuses of `--all`, the worst first. */
const RANKS: readonly number[] = [exitStatus.noPermission, exitStatus.tryAgain, exitStatus.unavailable]

export const run: RunCommand = async (invocation) => {
  const { options, env, stdout } = invocation
  if (options['all'] === true) return allAccounts(invocation)
  if (options['watch'] === true) {
    using client = openClient(invocation)
    const last = await watchStatus(client, invocation)
    return last === null ? exitStatus.unavailable : exitStatusOf(last)
  }
  const status = await ask(invocation, (client) => client.status())
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
  // Its directory, or its socket, may be gone.
  const accounts = new Set([...accountNames(), ...configuredAccounts()])
  const daemons = [
    ...(existsSync(socket) || isConfigured(undefined) ? [{ account: null, named: { socket } }] : []),
    ...[...accounts].toSorted().map((account) => ({ account, named: { account } })),
  ]
  if (daemons.length === 0)
    throw new UserError(
      'There is no daemon of the system here: `sudo kyc-tokend setup`.',
      exitStatus.unavailable,
    )
  const results = await Promise.all(
    daemons.map(async ({ account, named }) => {
      try {
        const status = await ask({ options: named, env: {} }, (client) => client.status())
        return { account, status, problem: null, exit: exitStatusOf(status), cells: cellsOf(status) }
      } catch (error) {
        if (!(error instanceof UserError)) throw error
        const { message: problem, status: exit } = error
        return { account, status: null, problem, exit, cells: [problem] }
      }
    }),
  )
  const rows = results.map(({ account, cells }) => [account ?? '(default)', ...cells])
  // The last cell of a row is not padded.
  const widths = [0, 1, 2].map((at) => Math.max(...rows.map((row) => (row[at + 1] && row[at]?.length) || 0)))
  const lines =
    options['json'] === true
      ? results.map(({ account, status, problem }) => JSON.stringify({ account, status, problem }))
      : rows.map((row) => row.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join('  '))
  for (const line of lines) stdout.write(`${escapeUnsafe(line).trimEnd()}\n`)
  const statuses = results.map(({ exit }) => exit)
  return RANKS.find((rank) => statuses.includes(rank)) ?? statuses.find((status) => status !== 0) ?? 0
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

const EVERY_MS = 1_000
const LAST_EVENTS = 8
const USUAL_ROWS = 24
/** The number of events that are always shown, even if lines of the status are left out for them. */
const LEAST_EVENTS = 3
/** Switches to the alternate screen without a cursor, and back. */
const ENTER = '\u001b[?1049h\u001b[?25l'
const LEAVE = '\u001b[?25h\u001b[?1049l'
const REPAINT = '\u001b[H'
const CLEAR_LINE = '\u001b[K'
const CLEAR_BELOW = '\u001b[J'

/** Shows the status until the signal is aborted. Resolves with the last status, or null if there was none. */
export async function watchStatus(
  client: TokenClient,
  options: Pick<Invocation, 'options' | 'stdout' | 'env' | 'signal'> & {
    /** Last lines of the picture. */
    footer?: readonly string[]
    /** Further events; this function removes those that it shows. */
    notes?: string[]
  },
): Promise<StatusResult | null> {
  const { stdout, env, signal, footer = ['Ctrl-C ends it.'], notes = [] } = options
  const paints = isTerminal(stdout)
  const events: string[] = []
  let last: StatusResult | null = null
  let systemd = notUnderSystemd
  let problem: string | null = null
  const note = (sentence: string): void => {
    const line = `${new Date().toISOString().slice(0, 19)}Z  ${escapeUnsafe(sentence)}`
    events.push(line)
    if (!paints) stdout.write(`${line}\n`)
  }

  async function look(): Promise<void> {
    try {
      const status = await client.status()
      if (status.daemon.pid !== last?.daemon.pid) systemd = await systemdStateOf(status.daemon)
      for (const change of changes) {
        const event = change(status, last)
        if (event !== false) note(event)
      }
      last = status
      problem = null
    } catch (error) {
      const reason = await withReason(error, options)
      if (last === null) throw reason
      if (problem !== errorMessage(reason)) note(errorMessage(reason))
      problem = errorMessage(reason)
    }
  }

  if (paints) stdout.write(ENTER)
  try {
    while (!signal.aborted) {
      // A note comes before what follows from it.
      for (const event of notes.splice(0)) note(event)
      await look()
      if (paints && last !== null) paint(last)
      await sleep(EVERY_MS, undefined, { signal }).catch(() => undefined)
    }
  } finally {
    if (paints) stdout.write(LEAVE)
  }
  return last

  function paint(status: StatusResult): void {
    const rows = (stdout as Writable & { rows?: number }).rows || USUAL_ROWS
    const screen = screenOf(stdout, env)
    const text = formatStatus(status, { nowMs: Date.now(), systemd, isCut: true, ...screen })
    const top = [...(problem === null ? [] : [problem]), ...text.trimEnd().split('\n')]
    const bottom = ['', ...footer]
    const space = rows - bottom.length - 1
    const shown = top.slice(0, space - Math.min(events.length, LEAST_EVENTS))
    const latest = events.slice(-Math.min(LAST_EVENTS, space - shown.length))
    const lines = [...shown, '', ...latest, ...bottom].slice(0, rows)
    const cut = lines.map((line) => `${cutTo(line, screen.columns)}${CLEAR_LINE}`)
    stdout.write(`${REPAINT}${cut.join('\n')}${CLEAR_BELOW}`)
  }
}

type Change = (after: StatusResult, before: StatusResult | null) => string | false
/** Each gives the sentence about one kind of change between two statuses, or false. The former status is null at first. */
const changes: readonly Change[] = [
  ({ state }, before) => state !== before?.state && `state ${state}`,
  ({ token }, before) => (token === null && before?.token ? 'no usable token any more' : false),
  ({ token }, before) =>
    token !== null &&
    token.fingerprint !== before?.token?.fingerprint &&
    `token ${token.generation} (${token.fingerprint}), good until ${token.expiresAt.slice(11, 19)}Z`,
  ({ failure }, before) =>
    failure !== null &&
    (failure.reason !== before?.failure?.reason || failure.attempts > before.failure.attempts) &&
    `attempt ${failure.attempts} failed: ${failure.reason}, ${failure.detail}`,
  ({ alert }, before) => (alert === null && before?.alert ? `alert over: ${before.alert.reason}` : false),
  ({ alert }, before) =>
    alert !== null && alert.reason !== before?.alert?.reason && `alert raised: ${alert.reason}`,
]
