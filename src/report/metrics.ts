// Metrics for Prometheus: one table of names, help and values, written in the text format 0.0.4.
import type { Instant } from '../lib/clock.ts'
import type { FileCounts } from '../files/managed-file.ts'
import {
  permanentReasons,
  transientReasons,
  type Phase,
  type Reason,
  type StatusResult,
} from '../protocol.ts'
import type { FetchOutcome } from '../token/outcome.ts'
import type { CurrentAlert } from '../token/current-alert.ts'
import { nextAttemptAtMs, phaseOf, serviceOf, usableToken, type TokenState } from '../token/selectors.ts'
import type { KeeperView } from '../token/keeper.ts'

/** Values of the other components; counts are since the start. */
export interface MetricsSample {
  readonly version: string
  /** Start of the process, in ms since the epoch. */
  readonly startedAtMs: number
  readonly residentBytes: number
  /** By socket; null: there is no such socket. */
  readonly servers: { readonly ipc: ServerSample | null; readonly http: ServerSample | null }
  readonly files: FileCounts
  readonly logRecordsLost: number
  readonly alert: CurrentAlert | null
  /** The secret files hold a refused pair, or one of them or the configuration cannot be used. */
  readonly isFaultyOnDisk: boolean
  /** When the credentials end, ISO 8601; null: not known, or a program renews them. */
  readonly credentialsEnd?: { readonly expiresAt: string } | null
  /** Null: this host does not share its token. */
  readonly share: ShareSample | null
}
interface ShareSample extends Pick<NonNullable<StatusResult['share']>, 'state'> {
  /** Outcomes by the way on which they came. */
  readonly outcomes: Readonly<Record<string, number>>
}
interface ServerSample {
  readonly connections: number
  readonly subscribers: number
  /** Tokens handed out. */
  readonly reads: number
  /** Reports of refused tokens, by verdict. */
  readonly rejects: Readonly<Record<string, number>>
  /** Connections that the daemon closed, by reason. */
  readonly dropped: Readonly<Record<string, number>>
}

interface Value {
  /** Follows the name: `_bucket`, say. */
  readonly suffix?: string
  readonly labels?: Readonly<Record<string, string>>
  readonly value: number
}
/** `values` null: the metric is absent. A gauge of 0 would be a wrong value, for an instant the year 1970. */
type Metric = readonly [name: string, help: string, values: number | readonly Value[] | null]

const PHASES: readonly Phase[] = ['starting', 'ready', 'degraded', 'expired', 'refused']
const ALERT_REASONS: readonly CurrentAlert['reason'][] = [...permanentReasons, 'rejected', 'no-token']
/** The kind of outcome by reason. */
const OUTCOMES = new Map<Reason | 'none', FetchOutcome['kind']>([
  ['none', 'ok'],
  ...transientReasons.map((reason) => [reason, 'transient'] as const),
  ...permanentReasons.map((reason) => [reason, 'permanent'] as const),
])
/** In seconds: up to the longest `request.timeout` that makes sense. */
const DURATION_BOUNDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, Infinity]

/** Counts attempts from here on. Returns the function that renders all metrics. */
export function createMetrics({ keeper, sample }: { keeper: KeeperView; sample: () => MetricsSample }) {
  const fetches = new Map<Reason | 'none', number>()
  /** Attempts by the upper bound of their duration. */
  const durations = DURATION_BOUNDS.map(() => 0)
  let durationSum = 0
  keeper.onEvent((event) => {
    if (event.type !== 'attempted' || event.outcome.kind === 'postponed') return
    const reason = event.outcome.kind === 'ok' ? 'none' : event.outcome.reason
    fetches.set(reason, (fetches.get(reason) ?? 0) + 1)
    if (event.tookMs === null) return
    const seconds = event.tookMs / 1000
    durations[DURATION_BOUNDS.findIndex((bound) => seconds <= bound)]! += 1
    durationSum += seconds
  })

  function attemptMetrics(requests: number): Metric[] {
    const ended = Array.from(OUTCOMES, ([reason, outcome]) => ({
      labels: { outcome, reason },
      value: fetches.get(reason) ?? 0,
    }))
    const took = histogramValues(durations, durationSum)
    return [
      ['requests_total', 'Requests to the service.', requests],
      ['fetches_total', 'Finished attempts to get a token, by outcome and reason.', ended],
      ['fetch_duration_seconds', 'Duration of finished attempts to get a token.', took],
    ]
  }

  /** Names without `kyc_tokend_`. Counters end in `_total`, and what has observations is a histogram. */
  function metrics(): Metric[] {
    const { servers, files, share, ...daemon } = sample()
    const state = keeper.state()
    return [
      ...tokenMetrics(state, keeper.now(), daemon),
      ...attemptMetrics(serviceOf(state).requests),
      ...clientMetrics(servers),
      ...processMetrics(files, daemon),
      ...(share === null ? [] : shareMetrics(share)),
    ]
  }

  return () => ({
    contentType: 'text/plain; version=0.0.4; charset=utf-8',
    body: metrics().map(metricText).join(''),
  })
}

type DaemonSample = Omit<MetricsSample, 'servers' | 'files' | 'share'>

function tokenMetrics(state: TokenState, now: Instant, daemon: DaemonSample): Metric[] {
  const { token } = state
  const { lastSuccessAt } = serviceOf(state)
  const phase = phaseOf(state, now)
  const dueMs = nextAttemptAtMs(state, now)
  const wallSeconds = (bootMs: number): number => (now.wallMs + bootMs - now.bootMs) / 1000
  return [
    ['state', '1 for the state of the daemon, 0 for the others.', oneOf('state', PHASES, phase)],
    [
      'alert',
      '1 while an alert with this reason is raised, else 0.',
      oneOf('reason', ALERT_REASONS, daemon.alert?.reason),
    ],
    ['token_usable', '1 while a usable token is held, else 0.', Number(usableToken(state, now) !== null)],
    [
      'token_lifetime_seconds',
      'Life of the token that was obtained last, known or assumed.',
      token && token.lifeMs / 1000,
    ],
    [
      'token_expiry_timestamp_seconds',
      'Time at which the token expires, or its assumed life ends.',
      token && wallSeconds(token.expiresAtMs),
    ],
    [
      'last_success_timestamp_seconds',
      'Time at which the service last gave a token, also before a restart.',
      lastSuccessAt && wallSeconds(lastSuccessAt.bootMs),
    ],
    [
      'next_attempt_timestamp_seconds',
      'Time of the next attempt; absent while none is planned.',
      Number.isFinite(dueMs) && dueMs > now.bootMs ? wallSeconds(dueMs) : null,
    ],
    [
      'credentials_refused_on_disk',
      '1 while a restart would use a refused key or secret, or fail for the files, else 0.',
      Number(daemon.isFaultyOnDisk),
    ],
    [
      'credentials_expiry_timestamp_seconds',
      'Time at which key and secret, or the client certificate, end; absent if it is not known.',
      daemon.credentialsEnd ? Date.parse(daemon.credentialsEnd.expiresAt) / 1000 : null,
    ],
  ]
}

function clientMetrics(servers: MetricsSample['servers']): Metric[] {
  const bySocket = (read: (server: ServerSample) => readonly Value[]): Value[] =>
    Object.entries(servers).flatMap(([socket, server]: [string, ServerSample | null]) =>
      server === null
        ? []
        : read(server).map(({ labels, value }) => ({ labels: { socket, ...labels }, value })),
    )
  return [
    ['connections', 'Connections of clients.', bySocket(({ connections: value }) => [{ value }])],
    ['subscribers', 'Clients with a subscription.', bySocket(({ subscribers: value }) => [{ value }])],
    ['reads_total', 'Tokens handed out.', bySocket(({ reads: value }) => [{ value }])],
    [
      'rejects_total',
      'Reports of refused tokens by clients, by verdict.',
      bySocket(({ rejects }) => countsBy('verdict', rejects)),
    ],
    [
      'dropped_clients_total',
      'Connections of clients that the daemon closed, by reason.',
      bySocket(({ dropped }) => countsBy('reason', dropped)),
    ],
  ]
}

function processMetrics(files: MetricsSample['files'], daemon: DaemonSample): Metric[] {
  return [
    ['file_writes_total', 'Token files written.', files.writes],
    ['file_repairs_total', 'Token files restored after another program changed them.', files.repairs],
    ['file_errors_total', 'Token files that could not be written.', files.errors],
    ['log_records_lost_total', 'Log records lost because the log was not read.', daemon.logRecordsLost],
    ['build_info', 'The version that runs.', [{ labels: { version: daemon.version }, value: 1 }]],
    ['start_time_seconds', 'Time at which the daemon started.', daemon.startedAtMs / 1000],
    ['resident_memory_bytes', 'Resident memory of the daemon.', daemon.residentBytes],
  ]
}

function shareMetrics({ state, outcomes }: ShareSample): Metric[] {
  return [
    ['share_connected', '1 while the shared store can be used, else 0.', Number(state === 'connected')],
    ['share_outcomes_total', 'Outcomes by the way on which they came.', countsBy('how', outcomes)],
  ]
}

/** The text of one metric with help and type; empty without a value. Labels need no escapes. */
function metricText([ending, help, measured]: Metric): string {
  const name = `kyc_tokend_${ending}`
  const values: readonly Value[] = typeof measured === 'number' ? [{ value: measured }] : (measured ?? [])
  if (values.length === 0) return ''
  const isHistogram = values[0]?.suffix !== undefined
  const type = isHistogram ? 'histogram' : name.endsWith('_total') ? 'counter' : 'gauge'
  const lines = values.map(({ suffix = '', labels = {}, value }) => {
    const pairs = Object.entries(labels).map(([label, text]) => `${label}="${text}"`)
    return `${name}${suffix}${pairs.length === 0 ? '' : `{${pairs.join(',')}}`} ${value}\n`
  })
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`
}

/** In Prometheus each bucket includes the counts of the smaller ones. */
function histogramValues(counts: readonly number[], sum: number): Value[] {
  let total = 0
  const buckets = DURATION_BOUNDS.map((bound, index) => {
    total += counts[index] ?? 0
    const le = Number.isFinite(bound) ? String(bound) : '+Inf'
    return { suffix: '_bucket', labels: { le }, value: total }
  })
  return [...buckets, { suffix: '_sum', value: sum }, { suffix: '_count', value: total }]
}

function oneOf(label: string, names: readonly string[], current: string | undefined): Value[] {
  return names.map((name) => ({ labels: { [label]: name }, value: Number(name === current) }))
}

function countsBy(label: string, counts: Readonly<Record<string, number>>): Value[] {
  return Object.entries(counts).map(([name, value]) => ({ labels: { [label]: name }, value }))
}
