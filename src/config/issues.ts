// Faults and warnings of a configuration: each with its key path and its remedy, all of them at once.
import { escapeUnsafe } from '../lib/display-text.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import type { Hidden } from '../host/finding.ts'

export interface ConfigIssue {
  /** Key path such as `tokenFiles[0].mode`; empty if it is about the file as a whole. */
  readonly at: string
  /** The fault and its remedy. Never the value of a setting. */
  readonly sentence: string
  /** The file that is not there, or may not be read. */
  readonly hidden?: Hidden | undefined
}

/** Collects the faults and warnings of a configuration. */
export function createDiagnostics() {
  const faults: ConfigIssue[] = []
  const warnings: ConfigIssue[] = []
  return {
    faults: faults as readonly ConfigIssue[],
    warnings: warnings as readonly ConfigIssue[],
    /** Returns null, the value of a faulty setting. */
    fault(at: string, sentence: string, hidden?: Hidden): null {
      faults.push({ at, sentence, hidden })
      return null
    },
    warn: (at: string, sentence: string): void => void warnings.push({ at, sentence }),
  }
}
export type Collected = ReturnType<typeof createDiagnostics>
export type Diagnostics = Pick<Collected, 'fault' | 'warn'>

/** A configuration that cannot be used (status 78). The message holds all faults, each on a line. */
export class ConfigError extends UserError {
  readonly faults: readonly ConfigIssue[]
  /** Absolute; undefined if none was found. */
  readonly file: string | undefined
  constructor(faults: readonly ConfigIssue[], file: string | undefined) {
    super(inWords(faults, file).join('\n'), exitStatus.configuration)
    this.faults = faults
    this.file = file
  }

  override get lines(): readonly string[] {
    return inWords(this.faults, this.file)
  }
}

export function formatIssue({ at, sentence }: ConfigIssue): string {
  return at === '' ? sentence : `${at}: ${sentence}`
}

function inWords(faults: readonly ConfigIssue[], file: string | undefined): string[] {
  const sentences = faults.map(formatIssue)
  if (file === undefined) return sentences
  if (sentences.length === 1) return [`${file}: ${sentences.join('')}`]
  return [`${file} has ${faults.length} faults:`, ...sentences.map((sentence) => `  ${sentence}`)]
}

/** A key path as people write it: `tokenFiles[0].mode`. A key with other characters is made printable. */
export function keyPath(segments: readonly PropertyKey[]): string {
  const named = (key: string): string => (/^[\w$-]{1,64}$/.test(key) ? key : printable(key))
  return segments
    .map((segment) => (typeof segment === 'number' ? `[${segment}]` : `.${named(String(segment))}`))
    .join('')
    .replace(/^\./, '')
}

/** A text of others for one line of a terminal: as JSON, without control characters, and cut. */
export function printable(text: string): string {
  return escapeUnsafe(JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text))
}
