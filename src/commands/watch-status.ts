// `status --watch` and the demo: the status repainted each second with the last events; on a pipe, a line for each event.
import { setTimeout as sleep } from 'node:timers/promises'
import type { Writable } from 'node:stream'

import type { TokenClient } from '../client/index.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorMessage } from '../lib/error.ts'
import type { StatusResult } from '../protocol.ts'
import { asUserError } from './ask.ts'
import type { Invocation } from './command.ts'
import { cutTo, formatStatus, screenOf } from './format-status.ts'
import { notUnderSystemd, systemdStateOf } from './systemd.ts'
import { isTerminal } from './prompt.ts'

const EVERY_MS = 1_000
const LAST_EVENTS = 8
const USUAL_ROWS = 24
/** Events that stay in sight before lines of the status go. */
const LEAST_EVENTS = 3
/** The alternate screen without a cursor, and back. */
const ENTER = '\u001b[?1049h\u001b[?25l'
const LEAVE = '\u001b[?25h\u001b[?1049l'
const REPAINT = '\u001b[H'
const CLEAR_LINE = '\u001b[K'
const CLEAR_BELOW = '\u001b[J'

/** Until the signal is aborted; gives the last status, or null if there was none. */
export async function watchStatus(
  client: TokenClient,
  options: Pick<Invocation, 'stdout' | 'env' | 'signal'> & {
    /** Last lines of the picture. */
    footer?: readonly string[]
    /** Further events, which are taken out of it. */
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
      if (last === null) throw asUserError(error)
      if (problem !== errorMessage(error)) note(errorMessage(error))
      problem = errorMessage(error)
    }
  }

  if (paints) stdout.write(ENTER)
  try {
    while (!signal.aborted) {
      await look()
      for (const event of notes.splice(0)) note(event)
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
/** Events between two statuses, of which the former is null at first: sentences without an instant. */
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
