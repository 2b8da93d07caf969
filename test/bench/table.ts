// Interleaved measurements of the daemon and of the least that could do the same, and the table of what came of them.
import { cpus, release } from 'node:os'

/** The daemon and the program that it is compared with, both also with the flags of the daemon's systemd unit. */
export const contestants = ['ours', 'unit', 'bare', 'bareUnit'] as const
export type Contestant = (typeof contestants)[number]
/** A contestant that was not measured has none. */
export type Samples<T = number> = Readonly<Partial<Record<Contestant, readonly T[]>>>

/** In each round everybody is measured once, so that what disturbs one disturbs all; one round more warms up. */
export async function interleaved<T>(
  rounds: number,
  all: readonly Contestant[],
  measure: (who: Contestant) => Promise<T>,
): Promise<Samples<T>> {
  const samples: Partial<Record<Contestant, T[]>> = {}
  for (let round = -1; round < rounds; round += 1)
    for (const who of round % 2 === 0 ? all : all.toReversed()) {
      const sample = await measure(who)
      if (round >= 0) (samples[who] ??= []).push(sample)
    }
  return samples
}

export function mapSamples<T>(samples: Samples<T>, pick: (sample: T) => number): Samples {
  return Object.fromEntries(Object.entries(samples).map(([who, values]) => [who, values.map(pick)]))
}

export type Bar = { readonly atLeast: number } | { readonly atMost: number }
export interface Row {
  readonly what: string
  readonly unitOfMeasure: string
  readonly samples: Samples
  /** `ratio`: against the reference, round for round. `value`: the daemon alone. */
  readonly compared?: 'ratio' | 'value'
  readonly bar?: Bar
  /** With the flags of the unit, against the reference with them, or without where it was not measured with them. */
  readonly unitBar?: Bar
}
interface Compared {
  readonly result: number
  readonly noise: number
}

function compare({ samples, compared = 'ratio' }: Row, who: 'ours' | 'unit'): Compared {
  const { bare, bareUnit = bare } = samples
  const reference = who === 'unit' ? bareUnit : bare
  const results = (samples[who] ?? []).map((value, round) =>
    compared === 'ratio' ? value / (reference?.[round] ?? NaN) : value,
  )
  return {
    result: median(results),
    // Half the distance between their quartiles.
    noise: (quantile(results, 0.75) - quantile(results, 0.25)) / 2,
  }
}

/** Rows beyond their bar by more than the noise. */
export function missed(rows: readonly Row[]): string[] {
  return rows.flatMap((row) => [
    ...(isMissed(compare(row, 'ours'), row.bar) ? [`${row.what}, default`] : []),
    ...(isMissed(compare(row, 'unit'), row.unitBar) ? [`${row.what}, unit`] : []),
  ])
}

function isMissed({ result, noise }: Compared, bar: Bar | undefined): boolean {
  if (bar === undefined) return false
  return 'atLeast' in bar ? result + noise < bar.atLeast : result - noise > bar.atMost
}

/** In Markdown. */
export function renderTable(rows: readonly Row[]): string {
  const lines = rows.map((row) => [
    row.what,
    ...contestants.map((who) => withUnit(median(row.samples[who] ?? []), row.unitOfMeasure)),
    ...(['ours', 'unit'] as const).map((who) => resultOf(row, who)),
  ])
  const head = ['', 'default', 'unit', 'bare', 'bare, unit', 'default: bare', 'unit: bare']
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`
  const on = `${cpus().length} × ${cpus()[0]?.model.trim()}, Linux ${release()}, Node ${process.version}, ${new Date().toISOString().slice(0, 10)}`
  return [on, '', line(head), line(head.map(() => '---')), ...lines.map(line), ''].join('\n')
}

function resultOf(row: Row, who: 'ours' | 'unit'): string {
  const bar = who === 'ours' ? row.bar : row.unitBar
  const words = bar === undefined ? '' : 'atLeast' in bar ? ` (≥ ${bar.atLeast})` : ` (≤ ${bar.atMost})`
  if (row.compared === 'value') return words.trim()
  const { result, noise } = compare(row, who)
  return Number.isNaN(result) ? '' : `${format(result)} ± ${format(noise)}${words}`
}

function withUnit(value: number, unit: string): string {
  return Number.isNaN(value) ? '' : `${format(value)} ${unit}`.trim()
}

function format(value: number): string {
  if (Math.abs(value) >= 1_000) return Math.round(value).toLocaleString('en')
  return value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2)
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5)
}

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((one, other) => one - other)
  const at = (sorted.length - 1) * share
  const low = sorted[Math.floor(at)] ?? NaN
  const high = sorted[Math.ceil(at)] ?? NaN
  return low + (high - low) * (at - Math.floor(at))
}
