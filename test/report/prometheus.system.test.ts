// A real Prometheus scrapes a real daemon's metrics socket: rules and dashboard find what they ask for.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { credentials, startDaemon, withSockets } from '../support/daemon.ts'
import { freshToken, serviceOf, tokenOf } from '../support/outside.ts'
import { freePort, startRedis, whyNoRedis } from '../support/redis.ts'
import { granting } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const FOLDER = new URL('../../systemd/prometheus/', import.meta.url).pathname
const RULES = join(FOLDER, 'kyc-tokend.rules.yml')
const why =
  spawnSync('prometheus', ['--version']).status === 0
    ? whyNoRedis()
    : 'there is no prometheus (package prometheus)'
if (why !== undefined)
  process.stderr.write(`Prometheus' rules and dashboard are not tested with a daemon: ${why}\n`)

interface Panel {
  readonly id: number
  readonly title: string
  readonly targets: readonly { readonly expr: string }[]
}
interface Dashboard {
  /** The last one is a closed row of panels, which Grafana does not draw for those without `share`. */
  readonly panels: readonly (Panel & { readonly panels?: readonly Panel[] })[]
  readonly templating: { readonly list: readonly { readonly type: string; readonly query: unknown }[] }
}
interface RuleGroups {
  readonly groups: readonly {
    readonly rules: readonly { readonly name: string; readonly health: string; readonly lastError?: string }[]
  }[]
}

const dashboard = JSON.parse(readFileSync(join(FOLDER, 'kyc-tokend.dashboard.json'), 'utf8')) as Dashboard

describe.skipIf(why !== undefined)('a Prometheus that scrapes the metrics socket', () => {
  test('has data for every query of the dashboard and every rule', { timeout: 120_000 }, async () => {
    const address = await startScrapedDaemon()
    const prometheus = await startPrometheus(address)
    const query = async (expr: string): Promise<number> => {
      const { result } = (await prometheus('query', { query: expr })) as { result: unknown[] }
      return result.length
    }
    // A rate needs two scrapes.
    await expectUntil('several scrapes', async () => {
      const results = await query('count_over_time(kyc_tokend_share_connected[1m]) > 3')
      return results === 1
    })

    const panels: Panel[] = dashboard.panels.flatMap((panel) => panel.panels ?? [panel])
    const ids = panels.map(({ id }) => id)
    expect(ids).toEqual([...new Set(ids)])
    const queries = panels.flatMap(({ title, targets }) =>
      targets.map(({ expr }) => ({ title, expr: withVariables(expr) })),
    )
    expect(queries.length).toBeGreaterThan(25)
    for (const { title, expr } of queries) expect(await query(expr), `${title}: ${expr}`).toBeGreaterThan(0)
    const variables = dashboard.templating.list.filter(({ type }) => type === 'query')
    expect(variables).toHaveLength(2)
    for (const variable of variables) {
      const [, selector = ''] =
        /^label_values\((.+), \w+\)$/.exec((variable.query as { query: string }).query) ?? []
      expect(await query(withVariables(selector)), selector).toBeGreaterThan(0)
    }

    const rules = await expectUntil('an evaluation of every rule', async () => {
      const { groups } = (await prometheus('rules')) as RuleGroups
      const all = groups.flatMap((group) => group.rules)
      return all.every(({ health }) => health !== 'unknown') && all
    })
    expect(rules.length).toBeGreaterThan(10)
    for (const { name, health, lastError } of rules)
      expect({ name, health, lastError: lastError ?? '' }).toEqual({ name, health: 'ok', lastError: '' })
    // An alert without data is normal; a selector without data is a mistake.
    const selectors = readFileSync(RULES, 'utf8').match(
      /\b(?:up|(?:instance:)?kyc_tokend_\w+(?::\w+)?)(?:\{[^}]*\})?/g,
    )
    for (const selector of new Set(selectors)) expect(await query(selector), selector).toBeGreaterThan(0)

    const { body } = await overTcp(address, '/metrics')
    const shown = JSON.stringify(dashboard)
    for (const [, name = ''] of body.matchAll(/^# TYPE (\w+)/gm))
      expect(shown.includes(name), `${name} is in the dashboard`).toBe(true)
    for (const path of ['/v1/token', '/v1/status', '/v1/authorization'])
      expect((await overTcp(address, path)).status, path).toBe(404)
    for (const path of ['/healthz', '/readyz']) expect((await overTcp(address, path)).status, path).toBe(200)
  })
})

/** As Grafana replaces them, with all jobs and hosts chosen. */
function withVariables(expr: string): string {
  return expr.replaceAll('$__rate_interval', '30s').replaceAll(/\$(job|instance)\b/g, '.*')
}

async function overTcp(address: string, path: string): Promise<{ status: number; body: string }> {
  const response = await fetch(`http://${address}${path}`)
  return { status: response.status, body: await response.text() }
}

/** A daemon whose token is refreshed all the time, with a shared store; gives the address of its metrics. */
async function startScrapedDaemon(): Promise<string> {
  const service = await serviceOf(() => granting(freshToken(4)))
  const redis = await startRedis()
  onTestFinished(async () => redis.stop())
  const directory = await tempDirectory()
  const config = {
    credentials: { ...credentials, expiresAt: '2099-12-31' },
    share: { servers: [join(redis.directory, 'redis.sock')] },
  }
  const httpPath = join(directory, 'http.sock')
  const address = `127.0.0.1:${await freePort()}`
  const program = withSockets(`ipc=${join(directory, 'ipc.sock')}`, `http=${httpPath}`, `metrics=${address}`)
  startDaemon({ directory, baseUrl: service.url, config, program })
  await expectUntil('the sockets', () => existsSync(httpPath))
  await tokenOf({ httpPath })
  return address
}

/** Its API: the data of an answer. It scrapes twice a second, and ends with the test. */
async function startPrometheus(
  target: string,
): Promise<(path: string, parameters?: Record<string, string>) => Promise<unknown>> {
  const directory = await tempDirectory()
  const config = join(directory, 'prometheus.yml')
  writeFileSync(
    config,
    JSON.stringify({
      global: { scrape_interval: '500ms', scrape_timeout: '500ms', evaluation_interval: '1s' },
      rule_files: [RULES],
      scrape_configs: [{ job_name: 'kyc-tokend', static_configs: [{ targets: [target] }] }],
    }),
  )
  const listen = `127.0.0.1:${await freePort()}`
  const words = [
    `--config.file=${config}`,
    `--storage.tsdb.path=${directory}/data`,
    `--web.listen-address=${listen}`,
  ]
  const child = spawn('prometheus', words, { stdio: 'ignore' })
  const ended = once(child, 'close')
  // Before its directory is removed.
  onTestFinished(async () => {
    child.kill('SIGTERM')
    await ended
  })
  await expectUntil('Prometheus', async () => {
    const answer = await fetch(`http://${listen}/-/ready`).catch(() => undefined)
    return answer?.status === 200
  })
  return async (path, parameters = {}) => {
    const response = await fetch(
      `http://${listen}/api/v1/${path}?${new URLSearchParams(parameters).toString()}`,
    )
    const { data, error } = (await response.json()) as { data?: unknown; error?: string }
    if (error !== undefined) throw new Error(`${parameters['query']}: ${error}`)
    return data
  }
}
