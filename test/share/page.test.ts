// The manual's page of fleets against the code: examples, the line of rights, metrics.
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { inspectConfig } from '../../src/config/load.ts'
import { createMetrics } from '../../src/report/metrics.ts'
import { aclLine } from '../../src/share/redis-store.ts'
import { useConfigFiles } from '../support/config-files.ts'
import { createKeeperWorld } from '../support/keeper-world.ts'
import { bare, tableRows } from '../manual/manual.ts'

const page = readFileSync(new URL('../../systemd/man/fleet.md', import.meta.url), 'utf8')
const blocks = (language: string): string[] =>
  [...page.matchAll(/```(\w*)\n([\s\S]*?)```/g)].flatMap(([, of, text = '']) => (of === language ? text : []))
const configFiles = useConfigFiles()

test('the examples are configurations without a fault', async () => {
  const examples = blocks('json')
  expect(examples).toHaveLength(2)
  for (const text of examples) {
    configFiles.write('share-password', 'a-password-4711')
    const credentials = { apiKey: 'key-0815', apiSecret: 'a-secret-of-24-characters' }
    const config = { baseUrl: 'https://api.example.com', credentials, ...(JSON.parse(text) as object) }
    const { faults, warnings } = await inspectConfig({
      configPath: configFiles.write('c.json', config),
      env: {},
    })
    expect({ faults, warnings }).toEqual({ faults: [], warnings: [] })
  }
})

test('the line of rights is the one that check prints', () => {
  const line = aclLine({ user: 'kyc', prefix: 'kyc-tokend', database: 0, cluster: false })
  expect(blocks('').map((text) => text.trim())).toContain(line)
})

test('the metrics are those of a host that shares', () => {
  const { keeper } = createKeeperWorld()
  const share = { state: 'connected', hosts: 3, outcomes: { asked: 1 }, unreadable: 0 } as const
  const sample = {
    version: '1',
    startedAtMs: 0,
    residentBytes: 0,
    servers: { ipc: null, http: null },
    files: { writes: 0, repairs: 0, errors: 0 },
    logRecordsLost: 0,
    isFaultyOnDisk: false,
    alert: null,
    share,
  }
  const { body } = createMetrics({ keeper, sample: () => sample })()
  const rendered = [...body.matchAll(/^# HELP (kyc_tokend_share_\w+) (.*)$/gm)]
  const listed = tableRows('share-metrics').map(([name, help]) => [bare(name).replace(/\{.*/, ''), help])
  expect(listed).toEqual(rendered.map(([, name, help]) => [name, help]))
})
