// Metrics for Prometheus: one table of names, help and values, written in the text format 0.0.4.
import program from '../../package.json' with { type: 'json' }
import type { FileCounts } from '../files/managed-file.ts'
import { permanentReasons, transientReasons, type AlertReason, type Phase, type Reason } from '../protocol.ts'
import type { KeeperView } from '../token/keeper.ts'
import type { FetchOutcome } from '../token/outcome.ts'
import { dueAtMs, phaseOf, usableToken } from '../token/selectors.ts'

/** Values of the other components; counts are since the start. */
export interface MetricsSample {
  /** By socket; null: there is no such socket. */
  readonly servers: { readonly ipc: ServerSample | null; readonly http: ServerSample | null }
  readonly files: FileCounts
  readonly logRecordsLost: number
  readonly alert: { readonly reason: string } | null
  /** The secret files hold a refused pair, or one of them or the configuration cannot be used. */
  readonly isFaultyOnDisk: boolean
  /** When the credentials end, ISO 8601; null: not known, or a program renews them. */
  readonly credentialsEnd?: { readonly expiresAt: string } | null
  /** With the outcomes by the way on which they came. Null: this host does not share its token. */
  readonly share: { readonly state: string; readonly outcomes: Readonly<Record<string, number>> } | null
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
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}
/** Null: the metric is absent. A gauge of 0 would be a wrong value, for an instant the year 1970. */
type Values = number | readonly Value[] | null
/** Counters end in `_total`. */
type Metric = readonly [nameAfterPrefix: string, help: string, values: Values]

const PHASES: readonly Phase[] = ['starting', 'ready', 'degraded', 'expired', 'refused']
const ALERT_REASONS: readonly AlertReason[] = [...permanentReasons, 'rejected', 'no-token']
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

  function metrics(): Metric[] {
    const [state, now] = [keeper.state(), keeper.now()]
    const { servers, files, share, alert, credentialsEnd, isFaultyOnDisk, logRecordsLost } = sample()
    const { token, requests, lastSuccessAt } = state
    const dueMs = dueAtMs(state, now)
    const isDue = Number.isFinite(dueMs) && dueMs > now.bootMs
    const wallSeconds = (bootMs: number): number => (now.wallMs + bootMs - now.bootMs) / 1000
    const last = lastSuccessAt && wallSeconds(lastSuccessAt.bootMs)
    const next = isDue ? wallSeconds(dueMs) : null
    const pairEnd = credentialsEnd ? Date.parse(credentialsEnd.expiresAt) / 1000 : null
    const alerts = oneOf('reason', ALERT_REASONS, alert?.reason)
    const ended = Array.from(OUTCOMES, ([reason, outcome]) => ({
      labels: { outcome, reason },
      value: fetches.get(reason) ?? 0,
    }))
    const rejects = bySocket(servers, (server) => countsBy('verdict', server.rejects))
    const dropped = bySocket(servers, (server) => countsBy('reason', server.dropped))
    const build = [{ labels: { version: program.version }, value: 1 }]
    const faulty = Number(isFaultyOnDisk)
    const connected = share && Number(share.state === 'connected')
    const how = share && countsBy('how', share.outcomes)
    return [
      ['state', '1 for the state of the daemon.', oneOf('state', PHASES, phaseOf(state, now))],
      ['alert', '1 while an alert with this reason is raised.', alerts],
      ['token_usable', '1 while a usable token is held.', Number(usableToken(state, now) !== null)],
      ['token_lifetime_seconds', 'Life of the last token, known or assumed.', token && token.lifeMs / 1000],
      ['token_expiry_timestamp_seconds', 'End of that life.', token && wallSeconds(token.expiresAtMs)],
      ['last_success_timestamp_seconds', 'When the service last gave a token; outlives a restart.', last],
      ['next_attempt_timestamp_seconds', 'Next attempt; absent while none is planned.', next],
      ['credentials_refused_on_disk', '1 while a restart would use a refused pair, or fail.', faulty],
      ['credentials_expiry_timestamp_seconds', 'End of the pair or client certificate, if known.', pairEnd],
      ['requests_total', 'Requests to the service.', requests],
      ['fetches_total', 'Finished attempts of the running pair by outcome and reason.', ended],
      ['fetch_duration_seconds', 'Duration of these attempts.', histogramOf(durations, durationSum)],
      ['connections', 'Connections of clients.', bySocket(servers, (server) => server.connections)],
      ['subscribers', 'Clients with a subscription.', bySocket(servers, (server) => server.subscribers)],
      ['reads_total', 'Tokens handed out.', bySocket(servers, (server) => server.reads)],
      ['rejects_total', 'Reports of refused tokens by verdict.', rejects],
      ['dropped_clients_total', 'Connections that the daemon closed, by reason.', dropped],
      ['file_writes_total', 'Token files written.', files.writes],
      ['file_repairs_total', 'Token files restored after a change from outside.', files.repairs],
      ['file_errors_total', 'Token files that could not be written.', files.errors],
      ['log_records_lost_total', 'Log records that nobody read in time.', logRecordsLost],
      ['build_info', 'The version that runs.', build],
      ['start_time_seconds', 'Start of the daemon.', performance.timeOrigin / 1000],
      ['resident_memory_bytes', 'Resident memory of the daemon.', process.memoryUsage.rss()],
      ['share_connected', '1 while the shared store can be used.', connected],
      ['share_outcomes_total', 'Outcomes: asked for the fleet, adopted from another host, asked alone.', how],
    ]
  }

  return (): string => metrics().map(metricText).join('')
}

/** The text of one metric with help and type; empty without a value. Labels need no escapes. */
function metricText([ending, help, measured]: Metric): string {
  const name = `kyc_tokend_${ending}`
  const all = listOf(measured)
  if (all.length === 0) return ''
  const type =
    ending === 'fetch_duration_seconds' ? 'histogram' : ending.endsWith('_total') ? 'counter' : 'gauge'
  const lines = all.map(({ suffix = '', labels, value }) => {
    const pairs = Object.entries(labels).map(([label, text]) => `${label}="${text}"`)
    return `${name}${suffix}${pairs.length === 0 ? '' : `{${pairs.join(',')}}`} ${value}\n`
  })
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`
}

function listOf(measured: Values): readonly Value[] {
  return typeof measured === 'number' ? [{ labels: {}, value: measured }] : (measured ?? [])
}

/** In Prometheus each bucket includes the counts of the smaller ones. */
function histogramOf(counts: readonly number[], sum: number): Value[] {
  let total = 0
  const buckets = DURATION_BOUNDS.map((bound, index) => {
    total += counts[index]!
    return { suffix: '_bucket', labels: { le: String(bound).replace('Infinity', '+Inf') }, value: total }
  })
  const none = { labels: {} }
  return [...buckets, { suffix: '_sum', ...none, value: sum }, { suffix: '_count', ...none, value: total }]
}

function bySocket(servers: MetricsSample['servers'], read: (server: ServerSample) => Values): Value[] {
  return (['ipc', 'http'] as const).flatMap((socket) => {
    const server = servers[socket]
    const all = listOf(server && read(server))
    return all.map(({ labels, value }) => ({ labels: { socket, ...labels }, value }))
  })
}

function oneOf(label: string, names: readonly string[], current: string | undefined): Value[] {
  return names.map((name) => ({ labels: { [label]: name }, value: Number(name === current) }))
}

function countsBy(label: string, counts: Readonly<Record<string, number>>): Value[] {
  return Object.entries(counts).map(([name, value]) => ({ labels: { [label]: name }, value }))
}
