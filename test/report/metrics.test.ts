import { execFileSync } from 'node:child_process'
import { expect, onTestFinished, test } from 'vitest'
import program from '../../package.json' with { type: 'json' }
import type { MetricsSample } from '../../src/report/metrics.ts'
import { createMetrics } from '../../src/report/metrics.ts'
import { failures } from '../support/failures.ts'
import { createKeeperWorld } from '../support/keeper-world.ts'
import { lacks } from '../support/lacks.ts'

const sample: MetricsSample = {
  servers: {
    ipc: {
      connections: 3,
      subscribers: 2,
      reads: 17,
      rejects: { refreshing: 1, held: 0 },
      dropped: { stalled: 4 },
    },
    http: null,
  },
  files: { writes: 5, repairs: 1, errors: 0 },
  logRecordsLost: 9,
  isFaultyOnDisk: false,
  alert: null,
  share: null,
}

function measured(changes: Partial<MetricsSample> = {}) {
  const world = createKeeperWorld()
  onTestFinished(world.stop)
  const metrics = createMetrics({ keeper: world.keeper, sample: () => ({ ...sample, ...changes }) })
  /** The value of each series by its name, without `kyc_tokend_`, and labels; promtool judges the format. */
  const values = (): Record<string, number> =>
    Object.fromEntries(
      [...metrics().matchAll(/^kyc_tokend_(\w+(?:\{.*\})?) (\S+)$/gm)].map(([, key = '', value]) => [
        key,
        Number(value),
      ]),
    )
  return { ...world, metrics, values }
}

test('before the first token: starting, and what the other parts know; without an instant of 1970', () => {
  const { metrics, values } = measured({
    alert: { reason: 'no-token' },
    isFaultyOnDisk: true,
    credentialsEnd: { expiresAt: '2027-03-02T00:00:00.000Z' },
    share: { state: 'connected', outcomes: { asked: 3, adopted: 7, alone: 0 } },
  })
  if (!lacks('promtool'))
    expect(() => execFileSync('promtool', ['check', 'metrics'], { input: metrics() })).not.toThrow()
  expect(values()).toMatchObject({
    'state{state="starting"}': 1,
    'state{state="ready"}': 0,
    token_usable: 0,
    'connections{socket="ipc"}': 3,
    'subscribers{socket="ipc"}': 2,
    'reads_total{socket="ipc"}': 17,
    'rejects_total{socket="ipc",verdict="refreshing"}': 1,
    'dropped_clients_total{socket="ipc",reason="stalled"}': 4,
    file_writes_total: 5,
    file_repairs_total: 1,
    file_errors_total: 0,
    log_records_lost_total: 9,
    'alert{reason="no-token"}': 1,
    'alert{reason="rejected"}': 0,
    [`build_info{version="${program.version}"}`]: 1,
    start_time_seconds: performance.timeOrigin / 1000,
    credentials_refused_on_disk: 1,
    credentials_expiry_timestamp_seconds: 1_803_945_600,
    share_connected: 1,
    'share_outcomes_total{how="adopted"}': 7,
  })
  const unknown = measured()
  for (const absent of ['timestamp', 'http', 'share']) expect(unknown.metrics()).not.toContain(absent)
  expect(unknown.values()).toMatchObject({ credentials_refused_on_disk: 0 })
})

test('attempts of the running pair are counted by outcome and reason, and in every bucket that their duration does not exceed', async () => {
  const { metrics, values, answer, token, start, clock, keeper, reload } = measured()
  answer(async (signal) => {
    await clock.sleep(3_000, signal)
    return failures.network
  })
  start()
  await clock.advance(3_500)
  const bucket = (le: string): string => `fetch_duration_seconds_bucket{le="${le}"}`
  expect(values()).toMatchObject({
    'fetches_total{outcome="transient",reason="network"}': 1,
    [bucket('2.5')]: 0,
    [bucket('5')]: 1,
    [bucket('+Inf')]: 1,
    fetch_duration_seconds_sum: 3,
  })
  answer(token)
  await keeper.refresh(new AbortController().signal)
  const wallSeconds = clock.now().wallMs / 1000
  expect(values()).toMatchObject({
    'state{state="ready"}': 1,
    token_expiry_timestamp_seconds: wallSeconds + 3_600,
    last_success_timestamp_seconds: wallSeconds,
    token_usable: 1,
    token_lifetime_seconds: 3_600,
    requests_total: 2,
  })
  expect(values()['next_attempt_timestamp_seconds']).toBeGreaterThan(wallSeconds + 2_000)
  // Another host of the fleet has waited for this one.
  keeper.offer({ kind: 'ok', accessToken: 'of another', askedBy: 'web-7' })
  await clock.advance(0)
  const counted = { 'fetches_total{outcome="ok",reason="none"}': 2, fetch_duration_seconds_count: 2 }
  expect(values()).toMatchObject(counted)
  const { accessToken, fingerprint } = keeper.state().token!
  for (const text of [accessToken, fingerprint]) expect(metrics()).not.toContain(text)
  answer(failures.notFound)
  await keeper.refresh(new AbortController().signal)
  // A candidate is in the files, and is not counted.
  reload('second')
  await clock.advance(0)
  expect(values()).toMatchObject({
    'fetches_total{outcome="permanent",reason="account-not-found"}': 1,
    requests_total: 4,
    fetch_duration_seconds_count: 3,
  })
  expect(values()).not.toHaveProperty('next_attempt_timestamp_seconds')
})
