// The manual's page of a fleet against the code: examples, the line of rights, metrics.
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { inspectConfig } from '../../src/config/load.ts'
import { createMetrics } from '../../src/report/metrics.ts'
import { aclLine, createTelemetry } from '../../src/share/telemetry.ts'
import { useConfigFiles } from '../support/config-files.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { createKeeperWorld } from '../support/keeper-world.ts'
import { bare, tableRows } from '../manual/manual.ts'

const page = readFileSync(new URL('../../systemd/man/fleet.md', import.meta.url), 'utf8')
const blocks = [...page.matchAll(/```(\w*)\n([\s\S]*?)```/g)].map(([, language, text]) => ({
  language,
  text: text ?? '',
}))

const configFiles = useConfigFiles()

test('the examples are configurations without a fault', async () => {
  const examples = blocks.filter(({ language }) => language === 'json')
  expect(examples).toHaveLength(2)
  for (const { text } of examples) {
    configFiles.write('share-password', 'a-password-4711')
    const base = {
      baseUrl: 'https://api.example.com',
      credentials: { apiKey: 'key-0815', apiSecret: 'a-secret-of-24-characters' },
    }
    const configPath = configFiles.write('c.json', { ...base, ...(JSON.parse(text) as object) })
    const { faults, warnings } = await inspectConfig({ configPath, env: {} })
    expect({ faults, warnings }).toEqual({ faults: [], warnings: [] })
  }
})

test('the line of rights is the one that check prints', () => {
  const line = blocks.find(({ text }) => text.startsWith('ACL SETUSER'))
  expect(line?.text.trim()).toBe(aclLine({ user: 'kyc', prefix: 'kyc-tokend', database: 0, cluster: false }))
})

test('the metrics are those of a host that shares', () => {
  const { keeper } = createKeeperWorld()
  const share = {
    ...createTelemetry({
      server: '',
      log: () => undefined,
      clock: createFakeClock(),
      share: { user: null, prefix: '', database: 0, cluster: false },
    }).sample(),
    state: 'connected',
    hosts: 3,
  } as const
  const files = { writes: 0, repairs: 0, errors: 0 }
  const sample = {
    version: '1',
    startedAtMs: 0,
    residentBytes: 0,
    servers: { ipc: null, http: null },
    files,
    logRecordsLost: 0,
    isFaultyOnDisk: false,
    alert: null,
    share,
  }
  const { body } = createMetrics({ keeper, sample: () => sample })()
  const rendered = [...body.matchAll(/^# HELP (kyc_tokend_share_\w+) (.*)\n# TYPE \S+ (\w+)$/gm)]
  const listed = tableRows('share-metrics').map(([name, type, , help]) => [bare(name), help, type])
  expect(listed).toEqual(rendered.map(([, name, help, type]) => [name, help, type]))
})
