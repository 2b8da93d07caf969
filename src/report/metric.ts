// A metric: its name and help, and how its value is read from a sample of the components.
import type { Observations } from '../lib/histogram.ts'
import type { CurrentAlert } from '../token/alert.ts'
import type { Reason } from '../token/outcome.ts'
import type { MetricType, Value } from './prometheus-text.ts'
import type { KeeperView } from './subscribe-until.ts'

/** Values of the other components; counts are since the start. */
export interface MetricsSample {
  readonly version: string
  /** Start of the process, in ms since the epoch. */
  readonly startedAtMs: number
  readonly residentBytes: number
  /** By socket; null: there is no such socket. */
  readonly servers: { readonly ipc: ServerSample | null; readonly http: ServerSample | null }
  readonly files: { readonly writes: number; readonly repairs: number; readonly errors: number }
  readonly logRecordsLost: number
  readonly alert: CurrentAlert | null
  /** Null: this host does not share its token. */
  readonly share: ShareSample | null
}
export interface ShareSample {
  readonly state: 'connected' | 'alone' | 'denied'
  readonly hosts: number | null
  /** Outcomes by the way on which they came. */
  readonly outcomes: Readonly<Record<string, number>>
  readonly staleWrites: number
  readonly unreadable: number
  /** In seconds. */
  readonly lag: Observations
}
export interface ServerSample {
  readonly connections: number
  readonly subscribers: number
  /** Tokens handed out. */
  readonly reads: number
  /** Reports of refused tokens, by verdict. */
  readonly rejects: Readonly<Record<string, number>>
  /** Connections that the daemon closed, by reason. */
  readonly dropped: Readonly<Record<string, number>>
}

export interface Metric {
  readonly name: string
  readonly type: MetricType
  readonly help: string
  /** null: absent, because a gauge without a value would be 0, for an instant the year 1970. */
  readonly read: (context: Context) => number | readonly Value[] | null
}
const metricsOf =
  (type: MetricType) =>
  (name: string, help: string, read: Metric['read']): Metric => ({ name, type, help, read })
export const gauge = metricsOf('gauge')
export const counter = metricsOf('counter')
export const histogram = metricsOf('histogram')

export interface Context {
  readonly sample: MetricsSample
  readonly fetches: ReadonlyMap<Reason | 'none', number>
  /** Of requests, in seconds. */
  readonly durations: Observations
  readonly state: ReturnType<KeeperView['state']>
  readonly now: ReturnType<KeeperView['now']>
}
