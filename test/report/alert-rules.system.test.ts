// Prometheus' alert rules, on series of the real keeper and metrics: each fires in its case and in no other.
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import type { MetricsSample } from '../../src/report/metrics.ts'
import { bare, block, tableRows } from '../manual/manual.ts'
import { failures } from '../support/failures.ts'
import { scrapedSeries, type ScrapedDaemon, type Series } from '../support/scraped-daemon.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const RULES = new URL('../../systemd/prometheus/kyc-tokend.rules.yml', import.meta.url).pathname
/** The metrics that the rules use. */
const names = new Set(readFileSync(RULES, 'utf8').match(/\bkyc_tokend_\w+/g))
const hasPromtool = spawnSync('promtool', ['--version']).status === 0
if (!hasPromtool)
  process.stderr.write('Alert rules are not tested: there is no promtool (package prometheus)\n')

const lives = [
  { life: '20 s', lifeSeconds: 20, intervalSeconds: 2 },
  { life: '10 min', lifeSeconds: 600, intervalSeconds: 15 },
  { life: '24 h', lifeSeconds: 86_400, intervalSeconds: 60 },
]
interface RuleFile {
  readonly groups: readonly {
    readonly rules: readonly { readonly alert?: string; readonly labels?: { readonly severity: string } }[]
  }[]
}
interface Life {
  readonly lifeSeconds: number
  readonly intervalSeconds: number
}

type Story = (daemon: ScrapedDaemon, life: Life) => Promise<void>
/** Several refreshes, and all windows of the rules. */
const longTime = ({ lifeSeconds }: Life): number => Math.max(1_500, lifeSeconds * 1.2)

const putOff = {
  kind: 'transient',
  reason: 'rate-limited',
  detail: 'Too many requests',
  status: 429,
  retryAfterMs: 3_600_000,
} as const

const cases: readonly { name: string; alert: string; story: Story }[] = [
  {
    name: 'the account is inactive',
    alert: 'KycTokendRefused',
    async story(daemon, life) {
      await daemon.pass(120)
      daemon.answer(() => failures.inactive)
      await daemon.pass(longTime(life))
    },
  },
  {
    name: 'the service rejects the requests',
    alert: 'KycTokendRefused',
    async story(daemon, life) {
      await daemon.pass(120)
      daemon.answer(() => failures.rejected)
      await daemon.pass(longTime(life))
    },
  },
  {
    name: 'the daemon starts while the service is away',
    alert: 'KycTokendNoToken',
    async story(daemon) {
      daemon.answer(() => failures.network)
      await daemon.pass(1_800)
    },
  },
  {
    name: 'the service gives the same token again until shortly before its end',
    alert: 'KycTokendTokenExpiring',
    async story(daemon, life) {
      const same = daemon.token()
      daemon.answer(() => same)
      await daemon.passUntil(() => daemon.age() > 0.9)
      daemon.answer(daemon.token)
      await daemon.refresh()
      await daemon.pass(longTime(life))
    },
  },
  {
    name: 'the service asks to be left alone until an operator refreshes',
    alert: 'KycTokendNotRefreshed',
    async story(daemon, life) {
      await daemon.pass(60)
      await daemon.passUntil(() => daemon.age() < 0.3)
      daemon.answer(() => putOff)
      await daemon.passUntil(() => daemon.age() > 0.79)
      daemon.answer(daemon.token)
      await daemon.refresh()
      await daemon.pass(longTime(life))
    },
  },
  {
    name: 'most requests fail, and the token is refreshed in time',
    alert: 'KycTokendServiceFailing',
    async story(daemon, life) {
      let asked = 0
      const answersOneInThree = (): ReturnType<typeof daemon.token> => {
        asked += 1
        return asked % 3 === 0 ? daemon.token() : failures.timeout
      }
      await daemon.pass(60)
      daemon.answer(answersOneInThree)
      if (life.lifeSeconds > 3_600) {
        // Long lives have few requests: the service is away for an hour.
        daemon.answer(() => failures.timeout)
        await daemon.passUntil(() => daemon.age() > 0.5)
        await daemon.passUntil(() => daemon.age() > 0.7)
        daemon.answer(daemon.token)
      }
      await daemon.pass(longTime(life))
    },
  },
  {
    name: 'the files hold a pair that the service refused',
    alert: 'KycTokendCredentialsRefused',
    async story(daemon) {
      await daemon.pass(120)
      daemon.sample({ isFaultyOnDisk: true })
      await daemon.pass(1_500)
    },
  },
  {
    name: 'the key and secret end within a week',
    alert: 'KycTokendCredentialsExpire',
    async story(daemon) {
      daemon.sample({ credentialsEndAt: new Date(30 * 86_400_000).toISOString() })
      await daemon.pass(120)
      daemon.sample({ credentialsEndAt: new Date(6 * 86_400_000).toISOString() })
      await daemon.pass(300)
    },
  },
  {
    name: 'a client does not read its answers',
    alert: 'KycTokendClientsDropped',
    async story(daemon) {
      await daemon.pass(120)
      daemon.sample({ servers: { ipc: dropping({ stalled: 1 }), http: null } })
      await daemon.pass(1_500)
    },
  },
  {
    name: 'the shared store cannot be reached',
    alert: 'KycTokendShareLost',
    async story(daemon) {
      daemon.sample({ share: sharing({ state: 'connected' }) })
      await daemon.pass(600)
      daemon.sample({ share: sharing({ state: 'alone' }) })
      await daemon.pass(1_500)
    },
  },
  {
    name: 'the shared store has a record that does not open',
    alert: 'KycTokendShareUnreadable',
    async story(daemon) {
      daemon.sample({ share: sharing({ state: 'connected' }) })
      await daemon.pass(600)
      daemon.sample({ share: sharing({ state: 'connected', unreadable: 1 }) })
      await daemon.pass(1_500)
    },
  },
  {
    name: 'the daemon is down',
    alert: 'KycTokendDown',
    async story(daemon) {
      await daemon.pass(600)
      await daemon.restart(600)
      await daemon.pass(1_500)
    },
  },
]

function dropping(dropped: Record<string, number>): MetricsSample['servers']['ipc'] {
  return { connections: 0, subscribers: 0, reads: 0, rejects: {}, dropped: { idle: 0, ...dropped } }
}

function sharing(change: Partial<NonNullable<MetricsSample['share']>>): MetricsSample['share'] {
  return { state: 'connected', hosts: 3, outcomes: {}, unreadable: 0, ...change }
}

describe.skipIf(!hasPromtool)('the alert rules', () => {
  test('are valid', () => {
    expect(promtool('check', 'rules', RULES)).toContain('SUCCESS')
  })

  test('the manual has all of them, and a configuration of Prometheus for them', async () => {
    const { groups } = parse(readFileSync(RULES, 'utf8')) as RuleFile
    const alerts = groups.flatMap(({ rules }) => rules).filter(({ alert }) => alert !== undefined)
    expect(tableRows('alert-rules').map(([name, severity]) => [bare(name), severity])).toEqual(
      alerts.map(({ alert, labels }) => [alert, labels?.severity]),
    )
    const file = join(await tempDirectory(), 'prometheus.yml')
    const { code } = block('prometheus-config')
    writeFileSync(file, code)
    expect(promtool('check', 'config', '--syntax-only', file)).toContain('SUCCESS')
    expect(parse(code)).toMatchObject({ scrape_configs: [{ job_name: 'kyc-tokend' }] })
  })

  describe.each(lives)('with tokens that live for $life', (life) => {
    test.each(cases)('$name: $alert and no other', async ({ story, alert }) => {
      await expectFired(await record(life, (daemon) => story(daemon, life)), life, { ever: [alert] })
    })

    test('in normal life, over restarts, none fires', async () => {
      const recorded = await record(life, async (daemon) => {
        await daemon.pass(longTime(life))
        await daemon.restart(life.intervalSeconds)
        daemon.sample({ servers: { ipc: dropping({ idle: 7 }), http: null } })
        await daemon.pass(longTime(life))
      })
      await expectFired(recorded, life, { ever: [] })
    })

    test('through an outage they follow one another, to no token, and end with it', async () => {
      const outage: Story = async (daemon) => {
        await daemon.pass(60)
        daemon.answer(() => failures.network)
        await daemon.passUntil(() => daemon.age() > 1)
        await daemon.pass(600)
      }
      const during = await record(life, (daemon) => outage(daemon, life))
      const ladder = ['KycTokendNoToken', 'KycTokendNotRefreshed', 'KycTokendTokenExpiring']
      const isLong = life.lifeSeconds > 3_600
      await expectFired(during, life, {
        ever: isLong ? [...ladder, 'KycTokendServiceFailing'] : ladder,
        last: ['KycTokendNoToken'],
      })
      const over = await record(life, async (daemon) => {
        await outage(daemon, life)
        daemon.answer(daemon.token)
        await daemon.refresh()
        await daemon.pass(600)
      })
      await expectFired(over, life, { last: [] })
    })
  })

  test.each([15, 60])(
    'a token that lives shorter than the time between scrapes, %i s, raises none',
    async (seconds) => {
      const rare = { lifeSeconds: 20, intervalSeconds: seconds }
      const recorded = await record(rare, (daemon) => daemon.pass(3_600))
      await expectFired(recorded, rare, { ever: [] })
    },
  )

  describe('are not blind after a restart', () => {
    const life = lives[2]!
    test('of a daemon whose refresh is overdue', async () => {
      const recorded = await record(life, async (daemon) => {
        daemon.answer(() => putOff)
        await daemon.pass(0)
        daemon.answer(daemon.token)
        await daemon.refresh()
        daemon.answer(() => putOff)
        await daemon.passUntil(() => daemon.age() > 0.77)
        await daemon.restart(60)
        await daemon.pass(120)
      })
      await expectFired(recorded, life, { last: ['KycTokendNotRefreshed'] })
    })

    test('of a daemon that is refused', async () => {
      const recorded = await record(life, async (daemon) => {
        await daemon.pass(60)
        daemon.answer(() => failures.notFound)
        await daemon.refresh()
        await daemon.pass(600)
        await daemon.restart(60)
        await daemon.pass(60)
      })
      await expectFired(recorded, life, { last: ['KycTokendRefused'] })
    })

    test('of one without a token that restarts again and again', async () => {
      const recorded = await record(lives[1]!, async (daemon) => {
        daemon.answer(() => failures.network)
        for (let round = 0; round < 10; round += 1) {
          await daemon.pass(60)
          await daemon.restart(45)
        }
      })
      await expectFired(recorded, lives[1]!, { ever: ['KycTokendNoToken'], last: ['KycTokendNoToken'] })
    })

    test('of one that dropped a client before the first scrape', async () => {
      const recorded = await record(life, async (daemon) => {
        await daemon.pass(600)
        daemon.sample({ servers: { ipc: dropping({ stalled: 1 }), http: null } })
        await daemon.restart(60)
        await daemon.pass(120)
      })
      await expectFired(recorded, life, { ever: ['KycTokendClientsDropped'] })
    })
  })

  test('without any target one says so', async () => {
    const recorded = { series: [{ series: 'up{job="other"}', values: '1+0x60' }], seconds: 3_600 }
    await expectFired(recorded, lives[2]!, { ever: ['KycTokendNotScraped'] })
  })
})

function record(
  life: Life,
  story: (daemon: ScrapedDaemon) => Promise<void>,
): ReturnType<typeof scrapedSeries> {
  return scrapedSeries({ ...life, names }, story)
}

/** Fails unless exactly these fired at some time, and these fire at the end. */
async function expectFired(
  { series, seconds }: { series: readonly Series[]; seconds: number },
  { intervalSeconds }: Life,
  { ever, last }: { ever?: readonly string[]; last?: readonly string[] },
): Promise<void> {
  const firing = 'ALERTS{alertstate="firing"}'
  const expected = (expr: string, alerts: readonly string[]): object => ({
    expr: `group by (alertname) (${expr})`,
    eval_time: `${seconds}s`,
    exp_samples: alerts.map((alertname) => ({ labels: `{alertname="${alertname}"}`, value: 1 })),
  })
  const file = join(await tempDirectory(), 'test.yml')
  const unitTest = {
    interval: `${intervalSeconds}s`,
    input_series: series,
    promql_expr_test: [
      ...(ever ? [expected(`count_over_time(${firing}[${seconds}s])`, ever)] : []),
      ...(last ? [expected(firing, last)] : []),
      // No token has less than nothing of its life left.
      expected(`min_over_time(instance:kyc_tokend_token_left:ratio[${seconds}s]) < 0`, []),
    ],
  }
  // JSON is YAML.
  writeFileSync(
    file,
    JSON.stringify({ rule_files: [RULES], evaluation_interval: `${intervalSeconds}s`, tests: [unitTest] }),
  )
  expect(promtool('test', 'rules', file)).toContain('SUCCESS')
}

function promtool(...words: string[]): string {
  const { stdout, stderr } = spawnSync('promtool', words, { encoding: 'utf8', maxBuffer: 1e8 })
  return `${stdout}${stderr}`
}
