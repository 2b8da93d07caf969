// Counters and gauges for Prometheus, put together when somebody asks for them; prom-client is loaded at the first scrape.
import type { Phase } from '../protocol.ts'
import type { FetchOutcome, Reason } from '../token/outcome.ts'
import { dueAtMs, heldToken, phaseOf, type Alert } from '../token/state.ts'
import type { Watched } from './follow.ts'

/** What the keeper does not know, as it is now; counts are since the start. */
export interface MetricsSample {
  readonly version: string
  /** When the process began, in ms since the epoch. */
  readonly startedAtMs: number
  readonly residentBytes: number
  /** By socket; null: there is no such socket. */
  readonly servers: { readonly ipc: ServerSample | null; readonly http: ServerSample | null }
  readonly files: { readonly writes: number; readonly repairs: number; readonly errors: number }
  readonly logRecordsLost: number
}
interface ServerSample {
  readonly connections: number
  readonly subscribers: number
  /** Tokens handed out. */
  readonly reads: number
  /** Reports of refused tokens, by verdict. */
  readonly rejects: Readonly<Record<string, number>>
  /** Clients that lost their connection, by reason. */
  readonly dropped: Readonly<Record<string, number>>
}

export interface Metrics {
  /** All of them, in Prometheus' text format. */
  render(): Promise<{ contentType: string; body: string }>
}

/** One name, and its values by labels. */
interface Family {
  readonly name: string
  readonly help: string
  readonly type: 'counter' | 'gauge'
  readonly values: readonly { readonly labels?: Readonly<Record<string, string>>; readonly value: number }[]
}

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
} satisfies Record<Alert['reason'], 0>)
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

/** Attempts are counted from here on. */
export function createMetrics({ keeper, sample }: { keeper: Watched; sample: () => MetricsSample }): Metrics {
  const fetches = new Map<Reason | 'none', number>()
  keeper.onEvent((event) => {
    if (event.type !== 'attempted') return
    const reason = event.outcome.kind === 'ok' ? 'none' : event.outcome.reason
    fetches.set(reason, (fetches.get(reason) ?? 0) + 1)
  })
  const fetchesFamily = (): Family => ({
    name: 'kyc_tokend_fetches_total',
    help: 'Attempts to get a token that are over, by outcome and reason.',
    type: 'counter',
    values: Object.entries(OUTCOMES).map(([reason, outcome]) => ({
      labels: { outcome, reason },
      value: fetches.get(reason as Reason | 'none') ?? 0,
    })),
  })
  return {
    render: async () => render([...keeperFamilies(keeper), fetchesFamily(), ...sampleFamilies(sample())]),
  }
}

function keeperFamilies(keeper: Watched): Family[] {
  const state = keeper.state()
  const now = keeper.now()
  const phase = phaseOf(state, now)
  const token = heldToken(state)
  const wallSeconds = (bootMs: number): number => (now.wallMs + bootMs - now.bootMs) / 1000
  return [
    {
      name: 'kyc_tokend_state',
      help: 'State of the daemon: 1 for the one that it is in.',
      type: 'gauge',
      values: PHASES.map((name) => ({ labels: { state: name }, value: Number(name === phase) })),
    },
    {
      name: 'kyc_tokend_alert',
      help: 'Whether an alert is raised, by reason.',
      type: 'gauge',
      values: ALERT_REASONS.map((reason) => ({
        labels: { reason },
        value: Number(state.alert?.reason === reason),
      })),
    },
    counter('kyc_tokend_requests_total', 'Requests to the service.', state.requests),
    ...instant(
      'kyc_tokend_token_expiry_timestamp_seconds',
      'When the token that is held expires, or the life assumed for it ends.',
      token && wallSeconds(token.expiresAtMs),
    ),
    ...instant(
      'kyc_tokend_last_success_timestamp_seconds',
      'When the service last gave a token, since the start.',
      state.lastSuccessAt && wallSeconds(state.lastSuccessAt.bootMs),
    ),
    ...instant(
      'kyc_tokend_next_attempt_timestamp_seconds',
      'When the service is asked next; not there while it is not asked again.',
      Number.isFinite(dueAtMs(state)) ? wallSeconds(dueAtMs(state)) : null,
    ),
  ]
}

function sampleFamilies({
  version,
  startedAtMs,
  residentBytes,
  servers,
  files,
  logRecordsLost,
}: MetricsSample): Family[] {
  const doors = Object.entries(servers).filter((entry): entry is [string, ServerSample] => entry[1] !== null)
  const bySocket = (of: (server: ServerSample) => number): Family['values'] =>
    doors.map(([socket, server]) => ({ labels: { socket }, value: of(server) }))
  const bySocketAnd = (
    label: string,
    of: (server: ServerSample) => Readonly<Record<string, number>>,
  ): Family['values'] =>
    doors.flatMap(([socket, server]) =>
      Object.entries(of(server)).map(([name, value]) => ({ labels: { socket, [label]: name }, value })),
    )
  return [
    family(
      'kyc_tokend_connections',
      'Connections of clients.',
      'gauge',
      bySocket(({ connections }) => connections),
    ),
    family(
      'kyc_tokend_subscribers',
      'Clients told of each change.',
      'gauge',
      bySocket(({ subscribers }) => subscribers),
    ),
    family(
      'kyc_tokend_reads_total',
      'Tokens handed out.',
      'counter',
      bySocket(({ reads }) => reads),
    ),
    family(
      'kyc_tokend_rejects_total',
      'Reports of clients that the service refused a token, by verdict.',
      'counter',
      bySocketAnd('verdict', ({ rejects }) => rejects),
    ),
    family(
      'kyc_tokend_dropped_clients_total',
      'Clients that lost their connection, by reason.',
      'counter',
      bySocketAnd('reason', ({ dropped }) => dropped),
    ),
    counter('kyc_tokend_file_writes_total', 'Token files written.', files.writes),
    counter(
      'kyc_tokend_file_repairs_total',
      'Token files restored after somebody changed them.',
      files.repairs,
    ),
    counter('kyc_tokend_file_errors_total', 'Token files that could not be written.', files.errors),
    counter(
      'kyc_tokend_log_records_lost_total',
      'Log records lost because nobody read the log.',
      logRecordsLost,
    ),
    family('kyc_tokend_build_info', 'The version that runs.', 'gauge', [{ labels: { version }, value: 1 }]),
    family('process_start_time_seconds', 'When the process began.', 'gauge', [{ value: startedAtMs / 1000 }]),
    family('process_resident_memory_bytes', 'Resident memory.', 'gauge', [{ value: residentBytes }]),
  ]
}

function family(name: string, help: string, type: Family['type'], values: Family['values']): Family {
  return { name, help, type, values }
}
function counter(name: string, help: string, value: number): Family {
  return family(name, help, 'counter', [{ value }])
}
/** A moment that may not be there: a gauge without a value would be the year 1970. */
function instant(name: string, help: string, seconds: number | null): Family[] {
  return seconds === null ? [] : [family(name, help, 'gauge', [{ value: seconds }])]
}

/** The counts are kept elsewhere, so a registry lives for one scrape. */
async function render(families: readonly Family[]): Promise<{ contentType: string; body: string }> {
  // A bundle has the default export of a CommonJS library and none of its names.
  const { Counter, Gauge, Registry } = (await import('prom-client')).default
  const registry = new Registry()
  for (const { name, help, type, values } of families) {
    const settings = {
      name,
      help,
      labelNames: Object.keys(values[0]?.labels ?? {}),
      registers: [registry],
    }
    const metric = type === 'counter' ? new Counter(settings) : new Gauge(settings)
    for (const { labels = {}, value } of values) metric.inc(labels, value)
  }
  return { contentType: registry.contentType, body: await registry.metrics() }
}
