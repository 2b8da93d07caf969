// The findings of `check`: a line each, and a last line that says how it went.
import type { Writable } from 'node:stream'
import { styleText } from 'node:util'
import { rendered } from '../host/remedy.ts'
import { capitalized, escapeUnsafe } from '../lib/display-text.ts'

export interface Finding {
  /** `failure`: the service gave no token, which is no fault of this host. */
  readonly level: 'ok' | 'warning' | 'fault' | 'failure'
  /** Without a full stop. */
  readonly sentence: string
  /** They cure it, or show more. */
  readonly commands?: readonly string[] | undefined
}

const MARKS = { ok: 'ok     ', warning: 'warning', fault: 'FAULT  ', failure: 'FAILED ' } as const
const STYLES = { ok: 'green', warning: 'yellow', fault: 'red', failure: 'red' } as const

export type Report = ReturnType<typeof createReport>

/** `isTerse`: only what is wrong is shown, and the service's answer. */
export function createReport(stdout: Writable, { isTerse = false } = {}) {
  const counts = { ok: 0, warning: 0, fault: 0, failure: 0 }
  return {
    say(subject: string, ...findings: readonly Finding[]): void {
      for (const { level, sentence, commands = [] } of findings) {
        counts[level] += 1
        if (isTerse && level === 'ok' && subject !== 'service') continue
        const mark = styleText(STYLES[level], MARKS[level], { stream: stdout })
        const text = escapeUnsafe(rendered({ text: sentence, commands }))
        stdout.write(`${mark}  ${subject.padEnd(13)}  ${text}\n`)
      }
    },
    faults: () => counts.fault,
    /** Says how it went, in one line. */
    end(): void {
      const { fault, failure, warning } = counts
      const plural = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`
      const parts = [
        fault + failure === 0 ? 'no fault' : fault > 0 && plural(fault, 'fault'),
        failure > 0 && 'the service gave no token',
        warning > 0 && plural(warning, 'warning'),
      ]
      stdout.write(`\n${capitalized(parts.filter((part) => part !== false).join(', '))}.\n`)
    },
  }
}
