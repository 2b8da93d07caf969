// Metrics for Prometheus: one table of names, types, help and values, written in the text format at each scrape.
import { createHistogram } from '../lib/histogram.ts'
import type { Phase } from '../protocol.ts'
import type { CurrentAlert } from '../token/alert.ts'
import type { FetchOutcome, Reason } from '../token/outcome.ts'
import { dueAtMs, phaseOf, usableToken } from '../token/state.ts'
import {
  counter,
  gauge,
  histogram,
  type Context,
  type Metric,
  type MetricsSample,
  type ServerSample,
} from './metric.ts'
import { histogramValues, metricText, type Value } from './prometheus-text.ts'
import { SHARE_METRICS } from './share-metrics.ts'
import type { KeeperView } from './subscribe-until.ts'

const PHASES = Object.keys({
  starting: 0,
  ready: 0,
  degraded: 0,
  expired: 0,
  refused: 0,
} satisfies Record<Phase, 0>)
const ALERT_REASONS = Object.keys({
  'account-inactive': 0,
  'account-not-found': 0,
  rejected: 0,
  'no-token': 0,
} satisfies Record<CurrentAlert['reason'], 0>)
const OUTCOMES: Readonly<Record<Reason | 'none', FetchOutcome['kind']>> = {
  none: 'ok',
  'rate-limited': 'transient',
  'server-error': 'transient',
  'malformed-answer': 'transient',
  network: 'transient',
  timeout: 'transient',
  tls: 'transient',
  rejected: 'transient',
  'account-inactive': 'permanent',
  'account-not-found': 'permanent',
}

const METRICS: readonly Metric[] = [
  gauge('kyc_tokend_state', '1 for the state of the daemon, 0 for the others.', ({ state, now }) =>
    oneOf('state', PHASES, phaseOf(state, now)),
  ),
  gauge('kyc_tokend_alert', '1 while an alert with this reason is raised, else 0.', ({ sample }) =>
    oneOf('reason', ALERT_REASONS, sample.alert?.reason),
  ),
  gauge('kyc_tokend_token_usable', '1 while a usable token is held, else 0.', ({ state, now }) =>
    Number(usableToken(state, now) !== null),
  ),
  gauge(
    'kyc_tokend_token_lifetime_seconds',
    'Life of the token that was obtained last, known or assumed.',
    ({ state }) => state.token && state.token.lifeMs / 1000,
  ),
  gauge(
    'kyc_tokend_token_expiry_timestamp_seconds',
    'Time at which the token expires, or its assumed life ends.',
    ({ state, now }) => state.token && wallSeconds(state.token.expiresAtMs, now),
  ),
  gauge(
    'kyc_tokend_last_success_timestamp_seconds',
    'Time at which the service last gave a token, also before a restart.',
    ({ state, now }) => state.lastSuccessAt && wallSeconds(state.lastSuccessAt.bootMs, now),
  ),
  gauge(
    'kyc_tokend_next_attempt_timestamp_seconds',
    'Time of the next attempt; absent while none is planned.',
    ({ state, now }) => (Number.isFinite(dueAtMs(state)) ? wallSeconds(dueAtMs(state), now) : null),
  ),
  counter('kyc_tokend_requests_total', 'Requests to the service.', ({ state }) => state.requests),
  counter(
    'kyc_tokend_fetches_total',
    'Finished attempts to get a token, by outcome and reason.',
    ({ fetches }) =>
      Object.entries(OUTCOMES).map(([reason, outcome]) => ({
        labels: { outcome, reason },
        value: fetches.get(reason as Reason | 'none') ?? 0,
      })),
  ),
  histogram(
    'kyc_tokend_fetch_duration_seconds',
    'Duration of finished attempts to get a token.',
    ({ durations }) => histogramValues(durations),
  ),
  gauge(
    'kyc_tokend_connections',
    'Connections of clients.',
    bySocket(({ connections }) => connections),
  ),
  gauge(
    'kyc_tokend_subscribers',
    'Clients with a subscription.',
    bySocket(({ subscribers }) => subscribers),
  ),
  counter(
    'kyc_tokend_reads_total',
    'Tokens handed out.',
    bySocket(({ reads }) => reads),
  ),
  counter(
    'kyc_tokend_rejects_total',
    'Reports of refused tokens by clients, by verdict.',
    bySocketAnd('verdict', ({ rejects }) => rejects),
  ),
  counter(
    'kyc_tokend_dropped_clients_total',
    'Connections of clients that the daemon closed, by reason.',
    bySocketAnd('reason', ({ dropped }) => dropped),
  ),
  counter('kyc_tokend_file_writes_total', 'Token files written.', ({ sample }) => sample.files.writes),
  counter(
    'kyc_tokend_file_repairs_total',
    'Token files restored after another program changed them.',
    ({ sample }) => sample.files.repairs,
  ),
  counter(
    'kyc_tokend_file_errors_total',
    'Token files that could not be written.',
    ({ sample }) => sample.files.errors,
  ),
  counter(
    'kyc_tokend_log_records_lost_total',
    'Log records lost because the log was not read or its disk was full.',
    ({ sample }) => sample.logRecordsLost,
  ),
  gauge('kyc_tokend_build_info', 'The version that runs.', ({ sample }) => [
    { labels: { version: sample.version }, value: 1 },
  ]),
  gauge(
    'kyc_tokend_start_time_seconds',
    'Time at which the daemon started.',
    ({ sample }) => sample.startedAtMs / 1000,
  ),
  gauge(
    'kyc_tokend_resident_memory_bytes',
    'Resident memory of the daemon.',
    ({ sample }) => sample.residentBytes,
  ),
  ...SHARE_METRICS,
]

/** In seconds: up to the longest `request.timeout` that makes sense. */
const DURATION_BOUNDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, Infinity]

/**
 * Counts attempts from here on. Returns the function that renders all metrics in Prometheus' text format (version 0.0.4).
 */
export function createMetrics({
  keeper,
  sample,
}: {
  keeper: KeeperView
  sample: () => MetricsSample
}): () => { contentType: string; body: string } {
  const fetches = new Map<Reason | 'none', number>()
  const requests = createHistogram(DURATION_BOUNDS)
  keeper.onEvent((event) => {
    if (event.type !== 'attempted' || event.outcome.kind === 'postponed') return
    const reason = event.outcome.kind === 'ok' ? 'none' : event.outcome.reason
    fetches.set(reason, (fetches.get(reason) ?? 0) + 1)
    if (event.tookMs !== null) requests.observe(event.tookMs / 1000)
  })
  return () => {
    const durations = requests.observations()
    const context = { sample: sample(), fetches, durations, state: keeper.state(), now: keeper.now() }
    const body = METRICS.map((metric) => metricText(metric, metric.read(context))).join('')
    return { contentType: 'text/plain; version=0.0.4; charset=utf-8', body }
  }
}

function wallSeconds(bootMs: number, now: Context['now']): number {
  return (now.wallMs + bootMs - now.bootMs) / 1000
}

function oneOf(label: string, names: readonly string[], current: string | undefined): Value[] {
  return names.map((name) => ({ labels: { [label]: name }, value: Number(name === current) }))
}

function bySocket(read: (server: ServerSample) => number): Metric['read'] {
  return ({ sample }) =>
    socketsOf(sample).map(([socket, server]) => ({ labels: { socket }, value: read(server) }))
}

function bySocketAnd(
  label: string,
  read: (server: ServerSample) => Readonly<Record<string, number>>,
): Metric['read'] {
  return ({ sample }) =>
    socketsOf(sample).flatMap(([socket, server]) =>
      Object.entries(read(server)).map(([name, value]) => ({ labels: { socket, [label]: name }, value })),
    )
}

function socketsOf({ servers }: MetricsSample): [string, ServerSample][] {
  return Object.entries(servers).filter((entry): entry is [string, ServerSample] => entry[1] !== null)
}
