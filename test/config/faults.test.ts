// The faults of a configuration: each with its key path and its remedy, all at once, and none with a value.
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { validateDocument } from '../../src/config/document.ts'
import { ConfigError, formatIssue } from '../../src/config/faults.ts'
import { configJsonSchema } from '../../src/config/json-schema.ts'
import { loadConfig } from '../../src/config/load.ts'
import { settingRows } from '../../systemd/man/setting-rows.ts'
import { refusalOf, serviceEnv as env, smallConfig, useConfigFiles } from '../support/config-files.ts'

const files = useConfigFiles()
const HUSH = 'hush-7f3a'
const faultsOf = (document: unknown): string[] => validateDocument(document).faults.map(formatIssue)

/** A document with a wrong value at this key path. */
function wrongAt(key: string): object {
  const names = key.replaceAll('[]', '.0').split('.')
  const value = names.reduceRight<unknown>(
    (inner, name) => (name === '0' ? [inner] : { [name]: inner }),
    [[HUSH]],
  )
  return { ...smallConfig(), ...(value as object) }
}

it('each setting with a wrong value says what it must be', async () => {
  const told = settingRows().map(({ key }) => {
    const at = key.replaceAll('[]', '[0]')
    return faultsOf(wrongAt(key)).find((fault) => fault.startsWith(at)) ?? `${at}: nothing`
  })
  await expect(`${told.join('\n')}\n`).toMatchFileSnapshot('sentences.txt')
  expect(told.join()).not.toMatch(/hush|nothing/)
})

const share = (settings: object): object => ({
  share: { servers: ['redis.example.com:6379'], key: '0123456789abcdef', ...settings },
})
const service = (settings: object): object => ({ service: settings })
const tokenFile = (settings: object): object => ({ tokenFiles: [{ path: 't', ...settings }] })
/** One fault each. */
const faulty: object[] = [
  // Beyond a limit.
  { refresh: { maxAge: '59s' } },
  { alerts: { contact: 'x'.repeat(201) } },
  { alerts: { contact: 'Ada\u001b[2J' } },
  { tokenFiles: [{ path: 't', mode: '0666' }] },
  { ipc: { group: 2 ** 32 - 1 } },
  { ipc: { allow: { users: ['-x'] } } },
  { credentials: { apiKey: 'k' } },
  { service: { preset: 'oauth2' } },
  { service: { parameters: { a: { file: 'x', [HUSH]: 1 } } } },
  { credentials: { apiKey: 'k', apiSecret: 's', expiresAt: '2027-02-30T12:00Z' } },
  { share: { servers: [`redis://:${HUSH}@h:1`] } },
  { share: { servers: [] } },
  { baseUrl: 'http://api.example.com' },
  { baseUrl: `https://u:${HUSH}@api.example.com` },
  { baseUrl: 'https://api.example.com/?' },
  { request: { proxy: { url: `http://u:${HUSH}@h` } } },
  { service: { tokenUrl: '//evil.example/x' } },
  // Gone since 2.x.
  { ipc: { path: 'x' } },
  { http: { path: 'x' } },
  { tokenFiles: [{ path: 't', format: 'template', template: '/t' }] },
  { tokenFiles: [{ path: 't', format: 'template', template: '${accessToken}' }] },
  { service: { expires: 'x' } },
  { service: { refusals: [{ status: 200, says: 'x', reason: 'account-inactive' }] } },
  { log: { format: 'journal' } },
  { share: { servers: ['h:1'], host: 'x' } },
  { share: { servers: ['h:1'], tls: { keyFile: 'x' } } },
  // Unknown.
  { runDirectry: '/x' },
  { ipc: { zzzzzzz: HUSH } },
  { 'a\u001b[31m': 1 },
  { [`${'x'.repeat(80)}yz`]: 1 },
  { share: { servers: ['h:1'], sentinel: { name: 'm', pasword: HUSH } } },
  // Between settings.
  { request: { trust: 'file' } },
  { request: { proxy: { url: 'http://p:1', password: 'hushhush' } } },
  { runtimeDirectory: '/srv' },
  tokenFile({ format: 'template' }),
  tokenFile({ group: 'no-such-group' }),
  tokenFile({ path: 'alert.json' }),
  { tokenFiles: [{ path: 't' }, { path: './x/../t' }] },
  tokenFile({ path: '/run/kyc-tokend/x' }),
  { credentials: { apiKey: 'key-0815', apiSecret: null } },
  { credentials: { apiKey: null, apiSecret: 'secret-1' } },
  service({ headers: { Host: 'hushhush' } }),
  service({ headers: { authorization: 'hushhush' } }),
  service({ headers: { 'X-A': 'hush\r\nhush' } }),
  service({ use: { header: 'Content-Length' } }),
  service({ send: 'assertion' }),
  service({ send: 'assertion', assertion: {} }),
  share({ key: 'hush' }),
  share({ tls: false, password: 'hushhush' }),
  share({ asks: false }),
  share({ servers: ['a:1', 'b:1'] }),
  {
    ...share({ key: null }),
    credentials: { apiKey: 'key-0815', apiSecret: null },
    service: { names: { apiSecret: null } },
  },
]

it.each(faulty)('%j is one fault, with its remedy', async (settings) => {
  const { faults } = await refusalOf(files.load(settings))
  expect(faults).toHaveLength(1)
  const fault = formatIssue(faults[0]!).replaceAll(files.directory, '')
  expect(fault).not.toMatch(/hush|[\u0000-\u001f]/)
  told.push(fault)
})
const told: string[] = []
it('and all of them read aloud', async () => {
  await expect(`${told.join('\n')}\n`).toMatchFileSnapshot('faults.txt')
})

it('all faults of shape are told at once, and then all others', async () => {
  const settings = {
    credentials: { apiKey: { env: 'NOT_SET' }, apiSecret: 'secret-1' },
    tokenFiles: [{ path: 't', group: 'no-such-group' }],
    request: { trust: 'file' },
  }
  const { faults, message } = await refusalOf(files.load(settings))
  const all = ['request.caFile', 'credentials.apiKey', 'tokenFiles[0].group']
  expect(faults.map(({ at }) => at)).toEqual(all)
  expect(message).toMatch(/ has 3 faults:\n {2}request\.caFile: .*\n {2}credentials.*\n {2}tokenFiles/)
  const shape = await refusalOf(files.load({ ...settings, log: 5, retry: { maxDelay: 1, delay: 1 } }))
  expect(shape.faults.map(({ at }) => at)).toEqual(['retry.delay', 'retry.maxDelay', 'log'])
})

it.each(['https://api.example.com/v1/', 'http://localhost:1', 'http://127.9.9.9', 'http://[::1]:8080/x'])(
  'takes the base URL %s',
  (baseUrl) => expect(faultsOf({ ...smallConfig(), baseUrl })).toEqual([]),
)

const KEYS = ['credentials', 'apiSecret', 'request', 'proxy', 'url', 'path', 'ipc', 'service', '__proto__']

it('nothing else is thrown, and no value is told, whatever the file', async () => {
  const anyValue = fc.letrec<{ node: unknown }>((tie) => ({
    node: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      fc.constantFrom(HUSH, '', null, 5, true, { env: `${HUSH}-` }, { file: [HUSH] }, `${HUSH}\n`),
      fc.array(tie('node'), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom(...KEYS), tie('node'), { maxKeys: 4 }),
    ),
  })).node
  const anyContent = fc.oneof(
    fc.uint8Array(),
    fc.string(),
    anyValue.map((value) => JSON.stringify(value)),
  )
  await fc.assert(
    fc.asyncProperty(anyContent, fc.constantFrom('c.json', 'c.yaml'), async (content, name) => {
      const configPath = files.write(name, typeof content === 'string' ? content : Buffer.from(content))
      const error: unknown = await loadConfig({ configPath, env }).catch((thrown: unknown) => thrown)
      expect(error).toBeInstanceOf(ConfigError)
      expect((error as Error).message).not.toContain(HUSH)
    }),
    { numRuns: 300 },
  )
})

it('the JSON Schema refuses unknown keys', () => {
  expect(configJsonSchema()).toMatchObject({
    $schema: expect.stringContaining('draft-07') as string,
    required: ['baseUrl', 'credentials'],
    additionalProperties: false,
    properties: { ipc: { additionalProperties: false }, log: { additionalProperties: false } },
  })
})
