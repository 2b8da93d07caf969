// What is wrong with a configuration: each fault with its key path and its remedy, all of them at once.
import { exitStatus, UserError } from '../lib/error.ts'

export interface Fault {
  /** Key path such as `tokenFiles[0].mode`; empty where it is about the file as a whole. */
  readonly at: string
  /** What is wrong and the remedy. Never the value of a setting. */
  readonly sentence: string
}

/** Where faults and warnings are written down while a configuration is judged. */
export interface Verdicts {
  fault(at: string, sentence: string): void
  warn(at: string, sentence: string): void
}

/** A configuration that cannot be used (status 78). The message holds all faults, each on a line. */
export class ConfigFaults extends UserError {
  readonly faults: readonly Fault[]
  /** The file that was judged, absolute; undefined where none was found. */
  readonly file: string | undefined
  constructor(faults: readonly Fault[], file: string | undefined) {
    super(inWords(faults, file), exitStatus.configuration)
    this.faults = faults
    this.file = file
  }
}

export function tellFault({ at, sentence }: Fault): string {
  return at === '' ? sentence : `${at}: ${sentence}`
}

function inWords(faults: readonly Fault[], file: string | undefined): string {
  const [first, ...others] = faults.map(tellFault)
  if (file === undefined) return [first, ...others].join('\n')
  if (others.length === 0) return `${file}: ${first}`
  return [`${file} has ${faults.length} faults:`, first, ...others].join('\n  ')
}

/** A key path as people write it: `tokenFiles[0].mode`. */
export function keyPath(segments: readonly PropertyKey[]): string {
  return segments
    .map((segment) => (typeof segment === 'number' ? `[${segment}]` : `.${String(segment)}`))
    .join('')
    .replace(/^\./, '')
}

/** Something others chose, made fit for a line on a terminal: control characters shown as JSON shows them, and cut. */
export function printable(text: string): string {
  const shown = JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text)
  return shown.replace(/[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]/g, '?')
}
