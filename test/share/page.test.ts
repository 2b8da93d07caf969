// The manual's page of fleets against the code: examples and the line of rights.
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { aclLine } from '../../src/share/store.ts'
import { settingsOf } from '../support/redis.ts'
import { useConfigFiles } from '../support/config-files.ts'

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
    const { read } = await loadConfig({ configPath: configFiles.write('c.json', config), env: {} })
    expect(read.warnings).toEqual([])
  }
})

test('the line of rights is the one that check prints', () => {
  const line = aclLine(settingsOf({ address: { path: '/x' } }, { user: 'kyc' }))
  expect(blocks('').map((text) => text.trim())).toContain(line)
})
