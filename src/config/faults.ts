// The faults of a configuration: each with its key path and its remedy, all of them at once.
import { escapeUnsafe } from '../lib/display-text.ts'
import { exitStatus, UserError } from '../lib/error.ts'

export interface ConfigIssue {
  /** Key path such as `tokenFiles[0].mode`; empty if it is about the file as a whole. */
  readonly at: string
  /** The fault and its remedy. Never the value of a setting. */
  readonly sentence: string
}

/** A configuration that cannot be used (status 78). The message holds all faults, each on a line. */
export class ConfigError extends UserError {
  readonly faults: readonly ConfigIssue[]
  /** Absolute; undefined: none was found. */
  readonly file: string | undefined
  constructor(faults: readonly ConfigIssue[], file: string | undefined) {
    // A path may hold a line break.
    const shown = escapeUnsafe(file ?? '')
    const start = faults.length === 1 ? `${shown}: ` : `${shown} has ${faults.length} faults:\n  `
    super((file ? start : '') + faults.map(formatIssue).join('\n  '), exitStatus.configuration)
    this.faults = faults
    this.file = file
  }
}

export function formatIssue({ at, sentence }: ConfigIssue): string {
  return at === '' ? sentence : `${at}: ${sentence}`
}

/** A key path as people write it: `tokenFiles[0].mode`. A key with other characters is shown as JSON, and cut. */
export function keyPath(segments: readonly PropertyKey[]): string {
  const named = (key: string): string =>
    /^[\w$-]{1,64}$/.test(key) ? key : escapeUnsafe(JSON.stringify(key.slice(0, 80)))
  const words = segments.map((key) => (typeof key === 'number' ? `[${key}]` : `.${named(String(key))}`))
  return words.join('').replace(/^\./, '')
}
