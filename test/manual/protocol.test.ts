// The fields of answers in kyc-tokend-protocol(7), and the metrics, against the answers of a daemon that has everything.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { answerFields, fieldFacts } from '../../systemd/man/protocol-fields.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { connectRaw } from '../support/ipc-client.ts'
import { isWithoutRedis, startRedis } from '../support/redis.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { httpAsk } from '../support/outside.ts'
import { startExample, type Example } from './example.ts'
import { listEntries } from './manual.ts'

const SHAPES: Readonly<Record<string, (value: unknown) => boolean>> = {
  instant: (value) => typeof value === 'string' && new Date(value).toISOString() === value,
  integer: Number.isInteger,
  boolean: (value) => typeof value === 'boolean',
  object: (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
  '16 hex digits': (value) => /^[0-9a-f]{16}$/.test(String(value)),
  'list of objects': (value) => Array.isArray(value),
  'list of integers': (value) => Array.isArray(value) && value.every(Number.isInteger),
  'list of texts': (value) => Array.isArray(value) && value.every((each) => typeof each === 'string'),
}
const isText = (value: unknown): boolean => typeof value === 'string'

/** Each value of the answer by its path, as the table has it. */
function valuesOf(value: unknown, path = ''): [path: string, value: unknown][] {
  if (Array.isArray(value))
    return value.flatMap((each) => (typeof each === 'object' ? valuesOf(each, `${path}[]`) : []))
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, each]) => {
    const at = path === '' ? name : `${path}.${name}`
    return [[at, each] as [string, unknown], ...(at === 'token' ? [] : valuesOf(each, at))]
  })
}

/** Holds an answer against its table: every field is there, of its type, and each that is not may be absent. */
function expectFields(type: keyof typeof answerFields, answer: Record<string, unknown>): void {
  const rows = new Map(fieldFacts(answerFields[type]).map((fact) => [fact.path, fact]))
  const values = valuesOf(answer).filter(([path]) => path !== 'id')
  for (const [path, value] of values) {
    const row = rows.get(path)
    expect(row, `${type}: the table has no ${path}`).toBeDefined()
    if (value === null) expect(row?.meaning, `${type}: ${path} is null`).toContain('null:')
    else
      expect((SHAPES[row!.type] ?? isText)(value), `${type}: ${path} is ${JSON.stringify(value)}`).toBe(true)
    const choices = [...row!.type.matchAll(/`([^`]+)`/g)].map(([, choice]) => choice)
    if (choices.length > 1 && value !== null) expect(choices, path).toContain(value)
  }
  const there = new Set(values.map(([path]) => path))
  const objects = new Set(values.flatMap(([path, value]) => (SHAPES['object']!(value) ? [path] : [])))
  for (const [path, { meaning }] of rows) {
    const parent = path.includes('.') ? path.slice(0, path.lastIndexOf('.')) : undefined
    const isDue = parent === undefined || objects.has(parent)
    if (isDue && !there.has(path)) expect(meaning, `${type} has no ${path}`).toContain('absent:')
  }
}

test.skipIf(isWithoutRedis('the fields of answers'))(
  'every metric is in the manual, and every field of every answer, with its type, and null or absent when it says so',
  { timeout: 60_000 },
  async () => {
    const { daemon, service } = await startWhole()
    const client = await connectRaw(daemon.ipcPath)
    const seen = new Set<string>()
    let asked = 0
    const ask = async (type: string, data: object = {}): Promise<Record<string, unknown>> => {
      client.ask(type, { id: String(asked), ...data })
      const frame = await client.frame(asked)
      asked += 1
      expectFields(frame!.type as keyof typeof answerFields, frame!.data)
      seen.add(frame!.type)
      return frame!.data
    }
    expect(listEntries('metrics')).toEqual(metricRows((await httpAsk(daemon, '/metrics')).body))
    const { fingerprint } = await ask('token.get', { waitSeconds: 10, client: 'the-test' })
    await ask('token.reject', { fingerprint })
    await ask('token.reject', { fingerprint: '0123456789abcdef' })
    await ask('refresh.request')
    await ask('alert.test')
    await ask('alert.test')
    const status = await ask('status.get')
    expect(status).toMatchObject({
      share: { state: 'connected' },
      daemon: { credentials: { what: 'certificate' } },
    })
    expect(valuesOf(status).map(([path]) => path)).toEqual(
      expect.arrayContaining(['readers[].count', 'files[].path']),
    )
    await ask('reload.request')
    // A pair that is refused, and a service that refuses the account.
    service.answer({ status: 500, json: { detail: 'Your account is not active' } })
    daemon.configure({ credentials: { apiKey: 'key', apiSecret: 'another-secret-of-the-test' } })
    const { pair } = await ask('reload.request')
    expect(pair).toBe('refused')
    expect((await ask('refresh.request'))['outcome']).toBe('failed')
    const refused = await ask('status.get')
    expect(refused).toMatchObject({
      state: 'refused',
      alert: { reason: 'account-inactive' },
      candidate: { attempts: 2 },
    })
    writeFileSync(join(daemon.directory, 'kyc-tokend.config.json'), '{')
    await ask('reload.request')
    await ask('nothing.known')
    expect([...seen].toSorted()).toEqual(Object.keys(answerFields).toSorted())
  },
)

/** A daemon whose configuration has all that gives its answers and metrics further fields. */
async function startWhole(): Promise<Example> {
  const directory = await tempDirectory('memory')
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  // Of one that lives for less than 90 days the end is no metric.
  const notAfterMs = Date.now() + 100 * 86_400_000
  const { cert, key } = createCertificate(createAuthority(), { names: ['client.example'], notAfterMs })
  writeFileSync(join(directory, 'client.pem'), cert)
  writeFileSync(join(directory, 'client.key'), key, { mode: 0o600 })
  const settings = {
    credentials: { apiKey: 'key', apiSecret: 'a-secret-of-the-test', expiresAt: '2099-03-01' },
    request: { clientCertificate: { certFile: 'client.pem', key: { file: 'client.key' } } },
    share: { servers: [join(redis.directory, 'redis.sock')] },
    ipc: { maxConnectionsPerUser: 1, maxConnections: 1 },
  }
  return startExample(settings, directory)
}

/** Name, labels and meaning of each metric, in the order of the text. */
function metricRows(text: string): string[][] {
  const metric = /^# HELP (\S+) (.*)\n# TYPE .*\n(?:\S+?\{(.*?)\} )?/gm
  return [...text.matchAll(metric)].map(([, name = '', help = '', labels = '']) => {
    const names = [...labels.matchAll(/(\w+)=/g)].map(([, label]) => label)
    return [`${name}${names.length === 0 ? '' : `{${names.join(',')}}`}`, help]
  })
}
