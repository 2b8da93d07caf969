// Prometheus' text format (version 0.0.4): names, labels, values, and histograms.
import type { Observations } from '../lib/histogram.ts'

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
