import { describe, expect, it } from 'vitest'

import { formatIssue } from '../../src/config/issues.ts'
import { configJsonSchema } from '../../src/config/json-schema.ts'
import { validateDocument } from '../../src/config/schema.ts'
import { settingRows } from '../../systemd/man/setting-rows.ts'
import { smallConfig } from '../support/config-files.ts'

const faultsOf = (document: unknown): string[] => validateDocument(document).faults.map(formatIssue)
const withSettings = (settings: object): object => ({ ...smallConfig(), ...settings })

describe('the shape of a configuration', () => {
  it.each([
    [{ refresh: { maxAge: 900 } }, /^refresh\.maxAge: .*write "500ms", "30s"/],
    [{ request: { timeout: '15' } }, /^request\.timeout: .*with its unit/],
    [{ refresh: { maxAge: '59s' } }, /^refresh\.maxAge: must be from "1m" to "24h"/],
    [{ tokenFiles: [{ path: 't', mode: 640 }] }, /^tokenFiles\[0\]\.mode: .*octal digits: write "0600"/],
    [{ ipc: { mode: '06400' } }, /^ipc\.mode: .*octal digits/],
    [{ tokenFiles: [{ path: 't', mode: '0666' }] }, /mode: must let its owner.* must not let others write/],
    [{ log: { level: 'warn' } }, /^log\.level: must be one of .*"warning"/],
    [{ runDirectry: '/x' }, /^runDirectry: is an unknown key: did you mean "runtimeDirectory"\?/],
    [{ ipc: { zzzzzzz: 1 } }, /^ipc\.zzzzzzz: .*known here are path, mode, group, allow/],
    [{ 'a\u001b[31m': 1 }, /^"a\\u001b\[31m": is an unknown key: remove it; known here are baseUrl/],
    [{ [`${'x'.repeat(80)}yz`]: 1 }, /^"x{80}…": is an unknown key/],
    [{ http: true }, /^http: must be an object, or false/],
    [{ alerts: { remindAfter: '1h' } }, /^alerts\.remindAfter: must be a list/],
    [{ ipc: { maxConnections: 1.5 } }, /^ipc\.maxConnections: must be a whole number/],
    [{ ipc: { allow: { users: ['-x'] } } }, /^ipc\.allow\.users\[0\]: must be the name or the number of/],
    [{ ipc: { group: 2 ** 32 - 1 } }, /^ipc\.group: must be the name or the number of a group$/],
    [{ tokenFiles: [{ path: '~/token' }] }, /^tokenFiles\[0\]\.path: must not begin with "~"/],
    [{ log: [] }, /^log: must be an object/],
  ])('refuses %j, with the key path and the remedy', (settings, sentence) => {
    const faults = faultsOf(withSettings(settings))
    expect(faults).toHaveLength(1)
    expect(faults[0]).toMatch(sentence)
  })

  it.each([
    ['http://api.example.com', /https:\/\/, because the secret would cross the network/],
    ['ftp://api.example.com', /must be a whole URL/],
    ['https:api.example.com', /must be a whole URL/],
    ['https://user:hunter2@api.example.com', /must not hold a user name or password/],
    ['https://api.example.com/?', /remove the query/],
    ['https://api.example.com/#x', /the fragment/],
    ['http://evillocalhost', /https:\/\//],
    ['http://127.0.0.1.example.com', /https:\/\//],
  ])('refuses the base URL %s without quoting it', (baseUrl, sentence) => {
    const faults = faultsOf({ ...smallConfig(), baseUrl })
    expect(faults).toHaveLength(1)
    expect(faults[0]).toMatch(sentence)
    expect(faults[0]).not.toContain('hunter2')
  })
  it.each(['https://api.example.com/v1/', 'http://localhost:1', 'http://127.9.9.9', 'http://[::1]:8080/x'])(
    'takes the base URL %s',
    (baseUrl) => {
      expect(faultsOf({ ...smallConfig(), baseUrl })).toEqual([])
    },
  )

  const unfit = [
    '',
    5,
    {},
    { file: '' },
    { file: 'a', env: 'B' },
    { credential: '../x' },
    { credential: '..' },
  ]
  const quoting = [{ env: 'sk-live-HUSH' }, { HUSH: 'HUSH' }, { file: 'HUSH', HUSH: 1 }]
  it.each([...unfit, ...quoting])('refuses the secret source %j and quotes nothing of it', (apiSecret) => {
    const faults = faultsOf({ ...smallConfig(), credentials: { apiKey: 'k', apiSecret } })
    expect(faults).toHaveLength(1)
    expect(faults[0]).toMatch(/^credentials\.apiSecret(?:\.\w+)?: must be a secret source: write a string/)
    expect(faults[0]).not.toContain('HUSH')
  })

  it.each(['.hidden', '..x', 'a@b:c'])('takes the name %j of a credential', (credential) => {
    const credentials = { apiKey: 'k', apiSecret: { credential } }
    expect(faultsOf({ ...smallConfig(), credentials })).toEqual([])
  })

  it.each([null, []])('refuses %j as a whole', (document) => {
    expect(faultsOf(document)).toEqual(['must be an object: write it as { … }'])
  })

  it('takes no key of the prototype for a setting', () => {
    const document = JSON.parse(
      `{"__proto__":{"log":{}},${JSON.stringify(smallConfig()).slice(1)}`,
    ) as unknown
    expect(faultsOf(document)).toEqual(['must not have the key "__proto__": remove it'])
    expect(faultsOf(withSettings({ constructor: {} }))).toHaveLength(1)
  })
})

describe('what is made from the schema', () => {
  it('is a JSON Schema that names every setting with its meaning', () => {
    const schema = configJsonSchema()
    expect(schema['$schema']).toContain('draft-07')
    expect(schema['required']).toEqual(['baseUrl', 'credentials'])
    expect(schema).toMatchObject({
      additionalProperties: false,
      properties: { ipc: { additionalProperties: false }, log: { additionalProperties: false } },
    })
    const properties = Object.entries(schema['properties'] as Record<string, { description?: string }>)
    const unexplained = properties.filter(([, { description = '' }]) => description === '')
    expect(unexplained.map(([name]) => name)).toEqual(['$schema', 'credentials'])
  })
  it('has a meaning for each row of the manual', () => {
    expect(settingRows().filter(({ meaning }) => meaning === '')).toEqual([])
  })
})
