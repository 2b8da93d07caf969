// The report of `check`: prints findings, one line each.
import type { Writable } from 'node:stream'
import { styleText } from 'node:util'

import { capitalized, escapeUnsafe } from '../lib/display-text.ts'
import type { Finding } from '../lib/finding.ts'
import { counted } from './format-status.ts'

export interface Report {
  say(subject: string, ...findings: readonly Finding[]): void
  /** Lines for a shell, printed after all findings. */
  paste(title: string, lines: readonly string[]): void
  faults(): number
  /** Says how it went, in one line. */
  end(): void
}

const LOOKS = {
  ok: { mark: 'ok     ', style: 'green' },
  warning: { mark: 'warning', style: 'yellow' },
  fault: { mark: 'FAULT  ', style: 'red' },
  failure: { mark: 'FAILED ', style: 'red' },
} as const

/** One line for each finding; in colour on a terminal. `isBrief`: only those that ask for something. */
export function createReport(
  stdout: Writable,
  { isBrief = false, onlyFaults = false }: { isBrief?: boolean; onlyFaults?: boolean } = {},
): Report {
  const counts = { ok: 0, warning: 0, fault: 0, failure: 0 }
  const pastes: string[] = []
  return {
    say(subject, ...findings) {
      for (const { level, sentence } of findings) {
        counts[level] += 1
        if (isBrief && level === 'ok' && subject !== 'service') continue
        // Setup starts them next.
        if (isBrief && level === 'warning' && subject === 'sockets') continue
        if (onlyFaults && level !== 'fault') continue
        // At a reload, in the journal, under which the daemon's own errors are found.
        if (onlyFaults) stdout.write('<3>')
        const mark = styleText(LOOKS[level].style, LOOKS[level].mark, { stream: stdout })
        stdout.write(`${mark}  ${subject.padEnd(13)}  ${escapeUnsafe(sentence)}\n`)
      }
    },
    paste(title, lines) {
      pastes.push(`\n${title}\n\n${lines.map((line) => `${escapeUnsafe(line)}\n`).join('')}`)
    },
    faults: () => counts.fault,
    end() {
      stdout.write(pastes.join(''))
      if (isBrief || onlyFaults) return
      const isWell = counts.fault === 0 && counts.failure === 0
      const parts = [
        ...(isWell ? ['No fault'] : []),
        ...(counts.fault > 0 ? [counted(counts.fault, 'fault')] : []),
        ...(counts.failure > 0 ? ['the service gave no token'] : []),
        ...(counts.warning > 0 ? [counted(counts.warning, 'warning')] : []),
      ]
      stdout.write(`\n${capitalized(parts.join(', '))}.\n`)
    },
  }
}
