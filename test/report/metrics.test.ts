import { execFileSync } from 'node:child_process'
import { expect, onTestFinished, test } from 'vitest'
import type { MetricsSample } from '../../src/report/metrics.ts'
import { createMetrics } from '../../src/report/metrics.ts'
import { failures } from '../support/failures.ts'
import { createKeeperWorld, type KeeperWorld } from '../support/keeper-world.ts'
import { lacks } from '../support/lacks.ts'

const sample: MetricsSample = {
  version: '1.2.3',
  startedAtMs: 1_700_000_000_500,
  residentBytes: 45_000_000,
  servers: {
    ipc: {
      connections: 3,
      subscribers: 2,
      reads: 17,
      rejects: { refreshing: 1, held: 0 },
      dropped: { slow: 4 },
    },
    http: null,
  },
  files: { writes: 5, repairs: 1, errors: 0 },
  logRecordsLost: 9,
  isFaultyOnDisk: false,
  alert: null,
  share: null,
}

function measured(
  changes: Partial<MetricsSample> = {},
): KeeperWorld & { metrics: ReturnType<typeof createMetrics> } {
  const world = createKeeperWorld()
  onTestFinished(world.stop)
  return {
    ...world,
    metrics: createMetrics({ keeper: world.keeper, sample: () => ({ ...sample, ...changes }) }),
  }
}

/** The value of each series by its name and labels; promtool judges the format. */
function parse(body: string): Map<string, number> {
  return new Map(
    [...body.matchAll(/^(\w+(?:\{.*\})?) (\S+)$/gm)].map(([, key = '', value]) => [key, Number(value)]),
  )
}

function valuesOf(metrics: ReturnType<typeof createMetrics>): Map<string, number> {
  return parse(metrics().body)
}

test('before the first token: starting, no expiry, and no instants of 1970', () => {
  const { metrics } = measured()
  const { contentType, body } = metrics()
  expect(contentType).toBe('text/plain; version=0.0.4; charset=utf-8')
  const values = parse(body)
  expect(values.size).toBeGreaterThan(30)
  expect(body.endsWith('\n')).toBe(true)
  expect(values.get('kyc_tokend_state{state="starting"}')).toBe(1)
  expect(values.get('kyc_tokend_state{state="ready"}')).toBe(0)
  expect(values.get('kyc_tokend_token_usable')).toBe(0)
  expect(body).not.toContain('timestamp')
})

test.skipIf(lacks('promtool'))('promtool has nothing against it', () => {
  const { metrics } = measured()
  const { body } = metrics()
  expect(() => execFileSync('promtool', ['check', 'metrics'], { input: body })).not.toThrow()
})

test('with a token: state, expiry, next attempt and counts, and not the token itself', async () => {
  const { metrics, keeper, start, clock } = measured()
  start()
  await clock.advance(0)
  const values = valuesOf(metrics)
  const wallSeconds = clock.now().wallMs / 1000
  expect(values.get('kyc_tokend_state{state="ready"}')).toBe(1)
  expect(values.get('kyc_tokend_token_expiry_timestamp_seconds')).toBe(wallSeconds + 3_600)
  expect(values.get('kyc_tokend_last_success_timestamp_seconds')).toBe(wallSeconds)
  expect(values.get('kyc_tokend_next_attempt_timestamp_seconds')).toBeGreaterThan(wallSeconds + 2_000)
  expect(values.get('kyc_tokend_requests_total')).toBe(1)
  expect(values.get('kyc_tokend_token_usable')).toBe(1)
  expect(values.get('kyc_tokend_token_lifetime_seconds')).toBe(3_600)
  expect(values.get('kyc_tokend_fetches_total{outcome="ok",reason="none"}')).toBe(1)
  // Another host of the fleet has waited for this one.
  keeper.offer({ kind: 'ok', accessToken: 'of another', askedBy: 'web-7' })
  await clock.advance(0)
  expect(metrics().body).toContain('\nkyc_tokend_fetches_total{outcome="ok",reason="none"} 2\n')
  expect(metrics().body).toContain('\nkyc_tokend_fetch_duration_seconds_count 1\n')
  const { accessToken, fingerprint } = keeper.state().token!
  for (const text of [accessToken, fingerprint]) expect(metrics().body).not.toContain(text)
})

test('fetches are counted by outcome and reason', async () => {
  const { metrics, answer, start, clock } = measured()
  answer(failures.network)
  start()
  await clock.advance(10_000)
  answer(failures.notFound)
  await clock.advance(60_000)
  const values = valuesOf(metrics)
  expect(values.get('kyc_tokend_fetches_total{outcome="transient",reason="network"}')).toBeGreaterThan(2)
  expect(values.get('kyc_tokend_fetches_total{outcome="permanent",reason="account-not-found"}')).toBe(1)
  expect(values.get('kyc_tokend_fetch_duration_seconds_count')).toBeGreaterThan(3)
  expect(values.get('kyc_tokend_fetch_duration_seconds_bucket{le="+Inf"}')).toBe(
    values.get('kyc_tokend_fetch_duration_seconds_count'),
  )
  expect(values.has('kyc_tokend_next_attempt_timestamp_seconds')).toBe(false)
})

test('what the other parts count is reported as it is, and scrapes do not add up', () => {
  const { metrics } = measured({ alert: { reason: 'no-token' } as MetricsSample['alert'] })
  metrics()
  const values = valuesOf(metrics)
  expect(Object.fromEntries(values)).toMatchObject({
    'kyc_tokend_connections{socket="ipc"}': 3,
    'kyc_tokend_subscribers{socket="ipc"}': 2,
    'kyc_tokend_reads_total{socket="ipc"}': 17,
    'kyc_tokend_rejects_total{socket="ipc",verdict="refreshing"}': 1,
    'kyc_tokend_dropped_clients_total{socket="ipc",reason="slow"}': 4,
    kyc_tokend_file_writes_total: 5,
    kyc_tokend_file_repairs_total: 1,
    kyc_tokend_file_errors_total: 0,
    kyc_tokend_log_records_lost_total: 9,
    'kyc_tokend_alert{reason="no-token"}': 1,
    'kyc_tokend_alert{reason="rejected"}': 0,
    'kyc_tokend_build_info{version="1.2.3"}': 1,
    kyc_tokend_start_time_seconds: 1_700_000_000.5,
    kyc_tokend_resident_memory_bytes: 45_000_000,
  })
  expect([...values.keys()].some((name) => name.includes('http'))).toBe(false)
})

test('the end of the credentials is an instant in seconds, and absent where it is not known', () => {
  const name = 'kyc_tokend_credentials_expiry_timestamp_seconds'
  const soon = 'kyc_tokend_credentials_expire_soon'
  const of = (isNear: boolean) =>
    valuesOf(measured({ credentialsEnd: { expiresAt: '2027-03-02T00:00:00.000Z', isNear } }).metrics)
  expect([of(false).get(name), of(false).get(soon)]).toEqual([1_803_945_600, 0])
  expect([of(true).get(name), of(true).get(soon)]).toEqual([1_803_945_600, 1])
  expect(valuesOf(measured({ credentialsEnd: null }).metrics).has(name)).toBe(false)
})

test('a request counts in every bucket that its duration does not exceed', async () => {
  const { metrics, answer, start, clock } = measured()
  answer(async (signal) => {
    await clock.sleep(3_000, signal)
    return failures.network
  })
  start()
  await clock.advance(3_500)
  const values = valuesOf(metrics)
  const bucket = (le: string): number | undefined =>
    values.get(`kyc_tokend_fetch_duration_seconds_bucket{le="${le}"}`)
  expect([bucket('2.5'), bucket('5'), bucket('60'), bucket('+Inf')]).toEqual([0, 1, 1, 1])
  expect(values.get('kyc_tokend_fetch_duration_seconds_sum')).toBe(3)
})

test('a host that shares its token has the metrics of the shared store', () => {
  const outcomes = { asked: 3, adopted: 7, alone: 0 }
  const { body } = measured({ share: { state: 'connected', hosts: 214, outcomes, unreadable: 2 } }).metrics()
  expect(parse(body).get('kyc_tokend_share_connected')).toBe(1)
  for (const line of [
    'kyc_tokend_share_hosts 214',
    'kyc_tokend_share_outcomes_total{how="adopted"} 7',
    'kyc_tokend_share_unreadable_total 2',
  ])
    expect(body.split('\n')).toContain(line)
  expect(measured().metrics().body).not.toContain('kyc_tokend_share')
})
