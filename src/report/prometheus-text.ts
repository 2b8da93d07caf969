// Prometheus' text format (version 0.0.4): names, labels, values, and histograms.

export type MetricType = 'counter' | 'gauge' | 'histogram'
export interface Value {
  /** Follows the name: `_bucket`, say. */
  readonly suffix?: string
  readonly labels?: Readonly<Record<string, string>>
  readonly value: number
}
/** One metric with its help and type, or nothing where it has no value (null). */
export function metricText(
  { name, type, help }: { name: string; type: MetricType; help: string },
  result: number | readonly Value[] | null,
): string {
  const values = typeof result === 'number' ? [{ value: result }] : (result ?? [])
  if (values.length === 0) return ''
  const lines = values.map(
    ({ suffix = '', labels = {}, value }) => `${name}${suffix}${labelText(labels)} ${value}\n`,
  )
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`
}

/** Label values are names of this program, and need no escapes. */
function labelText(labels: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${value}"`)
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`
}

/** Numbers of observations by their upper bounds, of which the last is Infinity. */
export interface Observations {
  readonly bounds: readonly number[]
  readonly counts: readonly number[]
  readonly sum: number
}

export interface Histogram {
  observe(seconds: number): void
  values(): Value[]
}

/** Upper bounds, in seconds: up to the longest `request.timeout` that makes sense. */
const BOUNDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, Infinity]

export function createHistogram(): Histogram {
  const counts = BOUNDS.map(() => 0)
  let sum = 0
  return {
    observe(seconds) {
      sum += seconds
      counts[BOUNDS.findIndex((bound) => seconds <= bound)]! += 1
    },
    values: () => histogramValues({ bounds: BOUNDS, counts, sum }),
  }
}

/** Prometheus counts in each bucket what the smaller ones have, too. */
export function histogramValues({ bounds, counts, sum }: Observations): Value[] {
  let total = 0
  const buckets = bounds.map((bound, index) => {
    total += counts[index] ?? 0
    return {
      suffix: '_bucket',
      labels: { le: Number.isFinite(bound) ? String(bound) : '+Inf' },
      value: total,
    }
  })
  return [...buckets, { suffix: '_sum', value: sum }, { suffix: '_count', value: total }]
}
