// The example with every setting: it is loaded, and so it is with all of it turned on.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { parse } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { validateDocument } from '../../src/config/document.ts'
import { settingRows } from '../../systemd/man/setting-rows.ts'
import { serviceEnv, useConfigFiles } from '../support/config-files.ts'
import { EXAMPLES } from './manual.ts'

const text = readFileSync(join(EXAMPLES, 'all-settings.yaml'), 'utf8')
const files = useConfigFiles()

test('it is a configuration, with the defaults', async () => {
  files.write('api-key', 'the-key-0815')
  files.write('api-secret', 'a-secret-of-the-test')
  const configPath = files.write('kyc-tokend.config.yaml', text)
  const config = await loadConfig({ configPath, env: serviceEnv })
  expect(config).toMatchObject({ service: { baseUrl: 'https://api.example.com' } })
})

test('with everything turned on it has each setting, and no fault of its shape', () => {
  const whole = parse(text.replaceAll(/^( *)#(?=\S)/gm, '$1')) as Record<string, unknown>
  expect(validateDocument(whole).faults).toEqual([])
  for (const { key } of settingRows()) {
    const value = key.split('.').reduce<unknown>((node, name) => {
      const inner = (node as Record<string, unknown>)[name.replace('[]', '')]
      return name.endsWith('[]') ? (inner as unknown[])[0] : inner
    }, whole)
    expect(value, key).toBeDefined()
  }
})
