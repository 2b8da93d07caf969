// Prometheus' alert rules, on series as a daemon has them: each fires in its case and in no other.
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { block, listEntries, pages } from '../manual/manual.ts'
import { lacks } from '../support/lacks.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const RULES = new URL('../../systemd/prometheus/kyc-tokend.rules.yml', import.meta.url).pathname

/** Values by name, one a minute, in promtool's notation: `1x9 0x30` is 1 ten times, then 0; `_` is none. */
type Series = Readonly<Record<string, string>>
const ALWAYS = 'x120'
/** A token's age at the first scrape after its refresh. */
const AGE_S = 8
const DAY_S = 86_400

const usable = 'kyc_tokend_token_usable'
const lifetime = 'kyc_tokend_token_lifetime_seconds'
const expiry = 'kyc_tokend_token_expiry_timestamp_seconds'
const lastSuccess = 'kyc_tokend_last_success_timestamp_seconds'
const inactive = 'kyc_tokend_alert{reason="account-inactive"}'
const onDisk = 'kyc_tokend_credentials_refused_on_disk'
const failing = 'kyc_tokend_fetches_total{outcome="transient",reason="timeout"}'
const dropped = 'kyc_tokend_dropped_clients_total{socket="ipc",reason="stalled"}'
const shared = 'kyc_tokend_share_connected'

/** A daemon that got a token of this life at the beginning, in s, and refreshes it in time. */
function healthy(lifeS: number): Series {
  const refreshEveryS = Math.max(60, Math.floor((lifeS * 2) / 180) * 60)
  /** In the minute of a refresh, and in those until the next one, what it was then. */
  const stepping = (firstS: number): string =>
    Array.from({ length: 121 }, (_, minute) => firstS + minute * 60 - ((minute * 60) % refreshEveryS)).join(
      ' ',
    )
  return {
    up: `1${ALWAYS}`,
    [usable]: `1${ALWAYS}`,
    [lifetime]: `${lifeS}${ALWAYS}`,
    [expiry]: stepping(lifeS - AGE_S),
    [lastSuccess]: stepping(-AGE_S),
    [inactive]: `0${ALWAYS}`,
    'kyc_tokend_alert{reason="no-token"}': `0${ALWAYS}`,
    [onDisk]: `0${ALWAYS}`,
    'kyc_tokend_fetches_total{outcome="ok",reason="none"}': `1+1${ALWAYS}`,
    [failing]: `0${ALWAYS}`,
    'kyc_tokend_dropped_clients_total{socket="ipc",reason="idle"}': `0+3${ALWAYS}`,
    [dropped]: `0${ALWAYS}`,
    [shared]: `1${ALWAYS}`,
  }
}
/** It asks without getting another token: that of an hour expires at minute 60. */
const unrefreshed: Series = {
  [expiry]: `3600${ALWAYS}`,
  [lastSuccess]: `0${ALWAYS}`,
  [usable]: '1x59 0x60',
}
const tokenless: Series = {
  [usable]: '0 0 _ 0 0 _ 0 0 _ 0 0',
  ...Object.fromEntries([lifetime, expiry, lastSuccess].map((absent) => [absent, '_'])),
}
const endsIn = (days: number): Series => ({
  kyc_tokend_credentials_expiry_timestamp_seconds: `${days * DAY_S}${ALWAYS}`,
})

/** The minute, what differs from a healthy daemon whose tokens live for an hour, and the alert. */
const cases: readonly (readonly [name: string, minute: number, series: Series, alert: string | null])[] = [
  ['a healthy daemon', 120, {}, null],
  ['tokens of 20 s', 120, healthy(20), null],
  ['tokens of a day', 120, healthy(DAY_S), null],
  ['a refusal, also once its token is gone', 70, { ...unrefreshed, [inactive]: '0x9 1x110' }, 'Refused'],
  ['a refresh that is overdue', 47, unrefreshed, 'NotRefreshed'],
  ['a token shortly before its end', 55, unrefreshed, 'TokenExpiring'],
  ['no token any more', 70, unrefreshed, 'NoToken'],
  ['no token from the start, with restarts', 10, tokenless, 'NoToken'],
  ['secret files with a refused pair', 30, { [onDisk]: '0x9 1x110' }, 'CredentialsRefused'],
  ['a pair that ends in two months', 30, endsIn(60), null],
  ['a pair that ends within a month', 30, endsIn(29), 'CredentialsExpire'],
  ['more failures than tokens', 30, { [failing]: `0+2${ALWAYS}` }, 'ServiceFailing'],
  ['a client that does not read its answers', 30, { [dropped]: '0x20 1x100' }, 'ClientsDropped'],
  ['one dropped before the first scrape of a start', 30, { [dropped]: '0x20 _x1 1x100' }, 'ClientsDropped'],
  ['a shared store that is lost', 30, { [shared]: '1x9 0x110' }, 'ShareLost'],
  ['a daemon that is down', 30, { up: '1x20 0x100' }, 'Down'],
]

/** A unit test of promtool: the alert that fires at this minute. */
function unitTest([name, minute, series, alert]: (typeof cases)[number], of = healthy(3_600)): object {
  /** The labels that Prometheus gives to what it scrapes. */
  const target = 'instance="host:9477",job="kyc-tokend"'
  const labelled = (metric: string): string =>
    metric.includes('{') ? metric.replace('}', `,${target}}`) : `${metric}{${target}}`
  return {
    name,
    interval: '1m',
    input_series: Object.entries({ ...of, ...series }).map(([metric, values]) => ({
      series: labelled(metric),
      values,
    })),
    promql_expr_test: [
      {
        expr: 'group by (alertname) (ALERTS{alertstate="firing"})',
        eval_time: `${minute}m`,
        exp_samples: alert === null ? [] : [{ labels: `{alertname="KycTokend${alert}"}`, value: 1 }],
      },
    ],
  }
}

function promtool(...words: string[]): string {
  const { stdout, stderr } = spawnSync('promtool', words, { encoding: 'utf8', maxBuffer: 1e8 })
  return `${stdout}${stderr}`
}

describe.skipIf(lacks('promtool'))('the alert rules', () => {
  test('fire each in its case and in no other', async () => {
    const file = join(await tempDirectory(), 'test.yml')
    const tests = [...cases.map((each) => unitTest(each)), unitTest(['no target', 30, {}, 'NotScraped'], {})]
    // JSON is YAML.
    writeFileSync(file, JSON.stringify({ rule_files: [RULES], evaluation_interval: '1m', tests }))
    expect(promtool('test', 'rules', file)).toContain('SUCCESS')
  })

  test('are valid, and the manual has all of them, and a configuration of Prometheus for them', async () => {
    expect(promtool('check', 'rules', RULES)).toContain('SUCCESS')
    const { groups } = parse(readFileSync(RULES, 'utf8')) as {
      groups: { rules: { alert?: string; labels?: { severity: string } }[] }[]
    }
    const alerts = groups.flatMap(({ rules }) => rules).filter(({ alert }) => alert !== undefined)
    const tested = [...cases.flatMap(([, , , alert]) => alert ?? []), 'NotScraped']
    expect(new Set(alerts.map(({ alert }) => alert))).toEqual(
      new Set(tested.map((name) => `KycTokend${name}`)),
    )
    const page = pages().find(({ path }) => path === 'systemd/man/monitoring.md')!.text
    const critical = alerts.filter(({ labels }) => labels?.severity === 'critical')
    expect([...page.matchAll(/`(KycTokend\w+)`/g)].map(([, name]) => name)).toEqual(
      critical.map(({ alert }) => alert),
    )
    const file = join(await tempDirectory(), 'prometheus.yml')
    const { code } = block('prometheus-config')
    writeFileSync(file, code)
    expect(promtool('check', 'config', '--syntax-only', file)).toContain('SUCCESS')
    expect(parse(code)).toMatchObject({ scrape_configs: [{ job_name: 'kyc-tokend' }] })
  })

  test.each(['kyc-tokend.rules.yml', 'kyc-tokend.dashboard.json'])(
    '%s asks for metrics that there are',
    (name) => {
      const text = readFileSync(new URL(`../../systemd/prometheus/${name}`, import.meta.url), 'utf8')
      // With a colon before it, it is a recording rule.
      const asked = [...text.matchAll(/(?<![:\w])(kyc_tokend_\w+)/g)].map(([, metric = '']) =>
        metric.replace(/_(?:bucket|sum|count)$/, ''),
      )
      const known = listEntries('metrics').map(([metric]) => metric.replace(/\{.*/, ''))
      expect(asked.length).toBeGreaterThan(10)
      expect(known).toEqual(expect.arrayContaining(asked))
    },
  )
})
