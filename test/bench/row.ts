// One row of the table: what was measured of whom, how it compares, and what that says about its bar.
import { median, noiseOf, type Samples } from './rounds.ts'

export type Verdict = 'met' | 'within noise' | 'missed' | 'no bar'
export type Bar = { readonly atLeast: number } | { readonly atMost: number }

export interface Row {
  readonly what: string
  readonly unit: string
  /** What the daemon is compared with. */
  readonly against: string
  readonly ours: number
  readonly bare: number | null
  readonly jitless: number | null
  /** `ratio`: ours by bare. `difference`: ours less bare. `value`: ours, alone. */
  readonly compared: 'ratio' | 'difference' | 'value'
  readonly result: number
  readonly jitlessResult: number | null
  /** How far `result` is off, give or take. */
  readonly noise: number
  readonly bar: Bar | null
  readonly verdict: Verdict
}

interface Told {
  readonly what: string
  readonly unit: string
  readonly against?: string
  readonly bar?: Bar
}

const AGAINST = 'bare server'

/** Ours by bare, round for round; the median of that. */
export function ratioRow({ ours, bare, jitless }: Samples<number>, told: Told): Row {
  return row('ratio', { ours, bare, jitless }, told, (one, other) => one / other)
}

/** Ours less bare. Both in the row's unit. */
export function differenceRow({ ours, bare, jitless }: Samples<number>, told: Told): Row {
  return row('difference', { ours, bare, jitless }, told, (one, other) => one - other)
}

/** Ours alone, with what the others have for information. */
export function valueRow({ ours, bare, jitless }: Samples<number>, told: Told): Row {
  return row('value', { ours, bare, jitless }, told, (one) => one)
}

function row(
  compared: Row['compared'],
  { ours, bare, jitless }: Samples<number>,
  { what, unit, against = AGAINST, bar }: Told,
  compare: (one: number, other: number) => number,
): Row {
  const compareAll = (values: readonly number[]): number[] =>
    values.map((value, round) => compare(value, bare[round] ?? NaN))
  const results = compareAll(ours)
  const result = median(results)
  const noise = noiseOf(results)
  return {
    what,
    unit,
    against,
    ours: median(ours),
    bare: bare.length === 0 ? null : median(bare),
    jitless: jitless.length === 0 ? null : median(jitless),
    compared,
    result,
    jitlessResult: jitless.length === 0 ? null : median(compareAll(jitless)),
    noise,
    bar: bar ?? null,
    verdict: bar === undefined ? 'no bar' : verdictOf(result, noise, bar),
  }
}

function verdictOf(result: number, noise: number, bar: Bar): Verdict {
  const missedBy = 'atLeast' in bar ? bar.atLeast - result : result - bar.atMost
  if (missedBy <= 0) return 'met'
  return missedBy <= noise ? 'within noise' : 'missed'
}
