// `status --watch`: the status repainted each second with the last events; on a pipe, one line for each event.
import { setTimeout as sleep } from 'node:timers/promises'

import type { TokenClient } from '../client/index.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorMessage } from '../lib/error.ts'
import type { StatusResult } from '../protocol.ts'
import { asUserError } from './ask.ts'
import type { Invocation } from './command.ts'
import { formatStatus } from './format-status.ts'
import { factsOf, noFacts } from './host-facts.ts'
import { isTerminal } from './prompt.ts'
import { eventsBetween } from './status-events.ts'

const EVERY_MS = 1_000
const LAST_EVENTS = 8
/** The alternate screen without a cursor, and back. */
const ENTER = '\u001b[?1049h\u001b[?25l'
const LEAVE = '\u001b[?25h\u001b[?1049l'
const REPAINT = '\u001b[H'
const CLEAR_LINE = '\u001b[K'
const CLEAR_BELOW = '\u001b[J'

/** Until the signal is aborted; gives the last status, or null where there was none. */
export async function watchStatus(
  client: TokenClient,
  options: Pick<Invocation, 'stdout' | 'signal'> & {
    hasColour: boolean
    /** Last lines of the picture. */
    footer?: string
    /** Further events since the last call. */
    notes?: () => readonly string[]
  },
): Promise<StatusResult | null> {
  const { stdout, signal, hasColour, footer = 'Ctrl-C ends it.', notes = () => [] } = options
  const paints = isTerminal(stdout)
  const events: string[] = []
  let last: StatusResult | null = null
  let facts = noFacts
  const note = (sentence: string): void => {
    const line = `${new Date().toISOString().slice(0, 19)}Z  ${escapeUnsafe(sentence)}`
    events.push(line)
    if (!paints) stdout.write(`${line}\n`)
  }
  let problem: string | null = null

  async function look(): Promise<void> {
    const status = await client.status().catch((error: unknown) => {
      const failure = asUserError(error)
      if (last === null) throw failure
      return errorMessage(failure)
    })
    if (typeof status === 'string') {
      if (problem !== status) note(status)
      problem = status
      return
    }
    if (status.daemon.pid !== last?.daemon.pid) facts = await factsOf(status.daemon)
    for (const event of eventsBetween(last, status)) note(event)
    last = status
    problem = null
  }

  if (paints) stdout.write(ENTER)
  try {
    while (!signal.aborted) {
      await look()
      for (const event of notes()) note(event)
      if (paints && last !== null) paint(formatStatus(last, { nowMs: Date.now(), hasColour, facts }))
      await sleep(EVERY_MS, undefined, { signal }).catch(() => undefined)
    }
  } finally {
    if (paints) stdout.write(LEAVE)
  }
  return last

  function paint(text: string): void {
    const lines = [
      ...(problem === null ? [] : [problem, '']),
      ...text.trimEnd().split('\n'),
      '',
      ...events.slice(-LAST_EVENTS),
      '',
      ...footer.split('\n'),
    ]
    stdout.write(`${REPAINT}${lines.map((line) => `${line}${CLEAR_LINE}\n`).join('')}${CLEAR_BELOW}`)
  }
}
