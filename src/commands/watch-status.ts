// The status as it changes: repainted each second at a terminal, a line for each event elsewhere.
import type { Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { TokenClient } from '../client/index.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorMessage } from '../lib/error.ts'
import type { StatusResult } from '../protocol.ts'
import { notUnderSystemd, systemdStateOf } from '../host/alert-command.ts'
import { namedSocket, withReason } from '../terminal/ask.ts'
import type { Invocation } from '../terminal/command.ts'
import { cutTo, formatStatus, screenOf } from '../terminal/format-status.ts'
import { isTerminal } from '../terminal/prompt.ts'

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

export interface Event {
  readonly text: string
  /** When it happened, ISO 8601; undefined: just now. */
  readonly happenedAt?: string | null | undefined
}

/** True if the terminal can be repainted. */
export function canPaint({ stdout, env }: Pick<Invocation, 'stdout' | 'env'>): boolean {
  return isTerminal(stdout) && env['TERM'] !== 'dumb'
}

/** Shows the status until the signal is aborted. Resolves with the last status, or null if there was none. */
export async function watchStatus(
  client: TokenClient,
  options: Pick<Invocation, 'options' | 'stdout' | 'env' | 'signal'> & {
    /** Last lines of the picture, which have at most so many columns. */
    footer?: (columns: number) => readonly string[]
    /** Further events; this function removes those that it shows. */
    notes?: Event[]
  },
): Promise<StatusResult | null> {
  const { stdout, env, signal, footer = () => ['Ctrl-C ends it.'], notes = [] } = options
  const paints = canPaint(options)
  const socket = namedSocket(options)
  const lines: string[] = []
  let last: StatusResult | null = null
  let systemd = notUnderSystemd
  let problem: string | null = null

  function note(events: readonly Event[]): void {
    const added = linesOf(events)
    lines.push(...added)
    if (!paints) for (const line of added) stdout.write(`${line}\n`)
  }

  async function poll(): Promise<void> {
    try {
      const status = await client.status()
      if (status.daemon.pid !== last?.daemon.pid) systemd = await systemdStateOf(status.daemon)
      const events = changes.map((change) => change(status, last)).filter((event) => event !== false)
      note([...notes.splice(0), ...events])
      last = status
      problem = null
    } catch (error) {
      const reason = await withReason(error, options)
      if (last === null) throw reason
      const text = escapeUnsafe(errorMessage(reason))
      note([...notes.splice(0), ...(problem === text ? [] : [{ text }])])
      problem = text
    }
  }

  if (paints) stdout.write(ENTER)
  try {
    while (!signal.aborted) {
      await poll()
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
    const text = formatStatus(status, { nowMs: Date.now(), systemd, socket, isCut: true, ...screen })
    const top = [...(problem === null ? [] : [problem]), ...text.trimEnd().split('\n')]
    const picture = pictureOf({ top, lines, bottom: ['', ...footer(screen.columns)] }, rows)
    const cut = picture.map((line) => `${cutTo(line, screen.columns)}${CLEAR_LINE}`)
    stdout.write(`${REPAINT}${cut.join('\n')}${CLEAR_BELOW}`)
  }
}

/** A line for each event with its time, the earliest first. */
function linesOf(events: readonly Event[]): string[] {
  const now = new Date().toISOString()
  const dated = events.map(({ text, happenedAt }) => ({
    text,
    // None is shown at a time that is still to come.
    happenedAt: happenedAt && happenedAt < now ? happenedAt : now,
  }))
  const sorted = dated.toSorted((one, other) => (one.happenedAt < other.happenedAt ? -1 : 1))
  return sorted.map(({ text, happenedAt }) => `${happenedAt.slice(0, 19)}Z  ${escapeUnsafe(text)}`)
}

/** What of a status, of events and of last lines fits into so many rows. */
function pictureOf(
  { top, lines, bottom }: Readonly<Record<'top' | 'lines' | 'bottom', readonly string[]>>,
  rows: number,
): string[] {
  const space = rows - bottom.length - 1
  const shown = top.slice(0, space - Math.min(lines.length, LEAST_EVENTS))
  const latest = lines.slice(-Math.min(LAST_EVENTS, space - shown.length))
  return [...shown, '', ...latest, ...bottom].slice(0, rows)
}

/** `before` is null at first. */
type Change = (after: StatusResult, before: StatusResult | null) => Event | false
/** Each gives the event of one kind of change between two statuses, or false. */
const changes: readonly Change[] = [
  (after, before) =>
    after.state !== before?.state && { text: `state ${after.state}`, happenedAt: stateAt(after, before) },
  ({ token }, before) =>
    token === null && before?.token
      ? { text: 'no usable token any more', happenedAt: before.token.expiresAt }
      : false,
  ({ token }, before) =>
    token !== null &&
    token.fingerprint !== before?.token?.fingerprint && {
      text: `token ${token.generation} (${token.fingerprint}), good until ${token.expiresAt.slice(11, 19)}Z`,
      happenedAt: token.obtainedAt,
    },
  ({ failure, service }, before) =>
    failure !== null &&
    (failure.reason !== before?.failure?.reason || failure.attempts > before.failure.attempts) && {
      text: `attempt ${failure.attempts} failed: ${failure.reason}, ${failure.detail}`,
      happenedAt: service.lastRequestAt,
    },
  ({ alert }, before) =>
    alert === null && before?.alert ? { text: `alert over: ${before.alert.reason}` } : false,
  ({ alert }, before) =>
    alert !== null &&
    alert.reason !== before?.alert?.reason && {
      text: `alert raised: ${alert.reason}`,
      happenedAt: alert.since,
    },
]

/** When the state began, as far as the status says it. */
function stateAt({ state, token, service, daemon }: StatusResult, before: StatusResult | null) {
  if (state === 'starting') return daemon.startedAt
  if (state === 'expired') return before?.token?.expiresAt
  if (state !== 'ready') return service.lastRequestAt
  // The same token again may have ended a failure.
  return before === null ? token?.obtainedAt : (service.lastSuccessAt ?? token?.obtainedAt)
}
