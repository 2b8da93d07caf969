// One row of the table: measurements of each program, their comparison, and the verdict on its bar.
import { median, noiseOf, type Samples } from './rounds.ts'

export type Verdict = 'met' | 'within noise' | 'missed' | 'no bar'
export type Bar = { readonly atLeast: number } | { readonly atMost: number }

export interface Row {
  readonly what: string
  readonly unit: string
  /** The program that the daemon is compared with. */
  readonly against: string
  readonly ours: number
  readonly bare: number | null
  readonly sandboxed: number | null
  /** `ratio`: ours by bare. `difference`: ours less bare. `value`: ours, alone. */
  readonly compared: 'ratio' | 'difference' | 'value'
  readonly result: number
  readonly sandboxedResult: number | null
  /** The error of `result`, give or take. */
  readonly noise: number
  readonly sandboxedNoise: number
  readonly bar: Bar | null
  /** With the flags of the unit, against the same program without them. */
  readonly sandboxedBar: Bar | null
  readonly verdict: Verdict
  readonly sandboxedVerdict: Verdict
}

interface Description {
  readonly what: string
  readonly unit: string
  readonly against?: string
  readonly bar?: Bar
  readonly sandboxedBar?: Bar
}

const AGAINST = 'bare server'

/** One bar for the daemon by default and with the unit's flags. */
export function forBoth(atMost: number): Required<Pick<Description, 'bar' | 'sandboxedBar'>> {
  return { bar: { atMost }, sandboxedBar: { atMost } }
}

/** Ours by bare, round for round; the median of that. */
export function ratioRow({ ours, bare, sandboxed }: Samples<number>, described: Description): Row {
  return row('ratio', { ours, bare, sandboxed }, described, (one, other) => one / other)
}

/** Ours less bare. Both in the row's unit. */
export function differenceRow({ ours, bare, sandboxed }: Samples<number>, described: Description): Row {
  return row('difference', { ours, bare, sandboxed }, described, (one, other) => one - other)
}

/** Ours alone, with what the others have for information. */
export function valueRow({ ours, bare, sandboxed }: Samples<number>, described: Description): Row {
  return row('value', { ours, bare, sandboxed }, described, (one) => one)
}

function row(
  compared: Row['compared'],
  { ours, bare, sandboxed }: Samples<number>,
  { what, unit, against = AGAINST, bar, sandboxedBar }: Description,
  compare: (one: number, other: number) => number,
): Row {
  const compareAll = (values: readonly number[]): number[] =>
    values.map((value, round) => compare(value, bare[round] ?? NaN))
  const results = compareAll(ours)
  const result = median(results)
  const noise = noiseOf(results)
  const sandboxedResults = compareAll(sandboxed)
  const sandboxedResult = median(sandboxedResults)
  const sandboxedNoise = noiseOf(sandboxedResults)
  return {
    what,
    unit,
    against,
    ours: median(ours),
    bare: bare.length === 0 ? null : median(bare),
    sandboxed: sandboxed.length === 0 ? null : median(sandboxed),
    compared,
    result,
    sandboxedResult: sandboxed.length === 0 ? null : sandboxedResult,
    noise,
    sandboxedNoise,
    bar: bar ?? null,
    sandboxedBar: sandboxedBar ?? null,
    sandboxedVerdict:
      sandboxedBar === undefined ? 'no bar' : verdictOf(sandboxedResult, sandboxedNoise, sandboxedBar),
    verdict: bar === undefined ? 'no bar' : verdictOf(result, noise, bar),
  }
}

function verdictOf(result: number, noise: number, bar: Bar): Verdict {
  const missedBy = 'atLeast' in bar ? bar.atLeast - result : result - bar.atMost
  if (missedBy <= 0) return 'met'
  return missedBy <= noise ? 'within noise' : 'missed'
}
