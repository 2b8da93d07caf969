// The shape of a configuration: each setting with a wrong value is told with its key path and remedy, all at once.
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { formatIssue } from '../../src/config/faults.ts'
import { configJsonSchema } from '../../src/config/json-schema.ts'
import { validateDocument } from '../../src/config/document.ts'
import { smallConfig } from '../support/config-files.ts'

const HUSH = 'hush-7f3a'
const faultsOf = (document: unknown): string[] => validateDocument(document).faults.map(formatIssue)
const faultsWith = (settings: object): string[] => faultsOf({ ...smallConfig(), ...settings })

interface Node {
  readonly properties?: Record<string, Node>
  readonly items?: Node
  readonly type?: string
  readonly anyOf?: readonly Node[]
}

/** The forms of a value, with those within. */
const formsOf = (node: Node): Node[] => [node, ...(node.anyOf ?? []).flatMap(formsOf)]
const sectionOf = (node: Node): Node | undefined => formsOf(node).find(({ properties }) => properties)
const isSource = (node: Node): boolean =>
  'file' in (sectionOf(node)?.properties ?? {}) && node.type === undefined

/** A document in which each setting below this one has a wrong value, and the setting itself is of its kind. */
function wrongWithin(node: Node): unknown {
  const { properties } = sectionOf(node) ?? {}
  const isWhole = properties !== undefined && !(isSource(node) && !('algorithm' in properties))
  if (isWhole) {
    const entries = Object.entries(properties).filter(([name]) => name !== 'preset')
    return Object.fromEntries(entries.map(([name, inner]) => [name, wrongWithin(inner)]))
  }
  const list = formsOf(node).find(({ type }) => type === 'array')
  return list?.items ? [wrongWithin(list.items)] : [HUSH]
}

/** Each section as a text. */
function sectionsWrong(node: Node): unknown[] {
  return Object.entries(node.properties ?? {}).flatMap(([name, inner]) =>
    sectionOf(inner) === undefined ? [] : [{ ...smallConfig(), [name]: HUSH }],
  )
}

describe('each setting with a wrong value', () => {
  const schema = configJsonSchema() as Node

  it('reads aloud what it must be, all of them at once, and no value is shown', async () => {
    const all = faultsOf(wrongWithin(schema))
    const sections = sectionsWrong(schema).flatMap(faultsOf)
    const text = [...all, ...sections].join('\n')
    await expect(`${text}\n`).toMatchFileSnapshot('sentences.txt')
    expect(text).not.toContain(HUSH)
    expect(all.length).toBeGreaterThan(85)
  })

  it.each(['https://api.example.com/v1/', 'http://localhost:1', 'http://127.9.9.9', 'http://[::1]:8080/x'])(
    'takes the base URL %s',
    (baseUrl) => expect(faultsWith({ baseUrl })).toEqual([]),
  )
})

/** One fault each: values beyond a limit, what is gone since 2.x, and unknown keys. */
const beyond: object[] = [
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
]
const gone: object[] = [
  { ipc: { path: 'x' } },
  { http: { path: 'x' } },
  { tokenFiles: [{ path: 't', format: 'template', template: '/t' }] },
  { tokenFiles: [{ path: 't', format: 'template', template: '${accessToken}' }] },
  { service: { expires: 'x' } },
  { service: { refusals: [{ status: 200, says: 'x', reason: 'account-inactive' }] } },
  { log: { format: 'journal' } },
  { share: { servers: ['h:1'], host: 'x' } },
  { share: { servers: ['h:1'], tls: { keyFile: 'x' } } },
]
const unknown: object[] = [
  { runDirectry: '/x' },
  { ipc: { zzzzzzz: HUSH } },
  { 'a\u001b[31m': 1 },
  { [`${'x'.repeat(80)}yz`]: 1 },
  { share: { servers: ['h:1'], sentinel: { name: 'm', pasword: HUSH } } },
  { $import: 'other.json' },
]

describe.each(Object.entries({ beyond, gone, unknown }))('a setting that is %s', (name, all) => {
  const told: string[] = []
  it.each(all)('%j is told, without any value', (settings) => {
    const faults = faultsWith(settings)
    expect(faults).toHaveLength(1)
    expect(faults[0]).not.toMatch(/hush|[\u0000-\u001f]/)
    told.push(faults[0]!)
  })
  it('reads aloud', async () => {
    await expect(`${told.join('\n')}\n`).toMatchFileSnapshot(`${name}.txt`)
  })
})

it('an unknown key may be one of the prototype', () => {
  const text = `{"__proto__":{"log":{}},${JSON.stringify(smallConfig()).slice(1)}`
  expect(faultsOf(JSON.parse(text))).toEqual([expect.stringMatching(/^__proto__: is an unknown key/)])
})

const KEYS = ['credentials', 'apiSecret', 'request', 'proxy', 'url', 'path', 'ipc', 'service', '__proto__']

it('is told without any value, whatever the document', () => {
  const anyValue = fc.letrec<{ node: unknown }>((tie) => ({
    node: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      fc.constantFrom(HUSH, '', null, 5, true, { env: `${HUSH}-` }, { file: [HUSH] }, `${HUSH}\n`),
      fc.array(tie('node'), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom(...KEYS), tie('node'), { maxKeys: 4 }),
    ),
  })).node
  fc.assert(
    fc.property(anyValue, (document) => {
      expect(faultsOf(document).join()).not.toContain(HUSH)
    }),
  )
})

it('the JSON Schema refuses unknown keys, and explains each setting', () => {
  const schema = configJsonSchema()
  expect(schema['$schema']).toContain('draft-07')
  expect(schema['required']).toEqual(['baseUrl', 'credentials'])
  expect(schema).toMatchObject({
    additionalProperties: false,
    properties: { ipc: { additionalProperties: false }, log: { additionalProperties: false } },
  })
})
