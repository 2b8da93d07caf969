// What `check` finds, a line each, and a last line that says how it went.
import type { Writable } from 'node:stream'
import { styleText } from 'node:util'
import type { Finding } from '../host/finding.ts'
import { behindOtherPair } from '../host/place-commands.ts'
import { capitalized, escapeUnsafe } from '../lib/display-text.ts'
import { counted } from '../terminal/format-status.ts'

export type Report = ReturnType<typeof createReport>

const STYLES = {
  ok: { mark: 'ok     ', style: 'green' },
  warning: { mark: 'warning', style: 'yellow' },
  fault: { mark: 'FAULT  ', style: 'red' },
  failure: { mark: 'FAILED ', style: 'red' },
} as const

/** The command whose output it is. */
type Reader = 'check' | 'setup'

function isShownTo(reader: Reader, subject: string, level: Finding['level']): boolean {
  if (reader === 'check') return true
  // `setup` starts the sockets next.
  if (subject === 'sockets' && level === 'warning') return false
  return subject === 'service' || level !== 'ok'
}

/** One line for each finding; in colour on a terminal. */
export function createReport(stdout: Writable, reader: Reader) {
  const counts = { ok: 0, warning: 0, fault: 0, failure: 0 }
  let isBehindPair = false
  return {
    /** From here on a restart is named behind the other pair in the files, which that would use. */
    putBehindOtherPair(): void {
      isBehindPair = true
    },
    say(subject: string, ...findings: readonly Finding[]): void {
      for (const { level, sentence } of findings) {
        counts[level] += 1
        if (!isShownTo(reader, subject, level)) continue
        const shown = isBehindPair ? behindOtherPair(sentence) : sentence
        const mark = styleText(STYLES[level].style, STYLES[level].mark, { stream: stdout })
        stdout.write(`${mark}  ${subject.padEnd(13)}  ${escapeUnsafe(shown)}\n`)
      }
    },
    faults: () => counts.fault,
    /** Says how it went, in one line. */
    end(): void {
      if (reader !== 'check') return
      const parts = [
        ...(counts.fault === 0 && counts.failure === 0 ? ['No fault'] : []),
        ...(counts.fault > 0 ? [counted(counts.fault, 'fault')] : []),
        ...(counts.failure > 0 ? ['the service gave no token'] : []),
        ...(counts.warning > 0 ? [counted(counts.warning, 'warning')] : []),
      ]
      stdout.write(`\n${capitalized(parts.join(', '))}.\n`)
    },
  }
}
