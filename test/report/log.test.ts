import { fstatSync } from 'node:fs'
import { assert, jsonValue, property, string } from 'fast-check'
import { expect, test } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createLog, type LogSettings } from '../../src/report/log.ts'
import { createMemoryStream } from '../support/memory-stream.ts'

const clock = createSystemClock()
const { dev, ino } = fstatSync(0, { bigint: true })

function openLog(
  options: Partial<LogSettings> & { env?: NodeJS.ProcessEnv; traits?: object; secrets?: () => string[] } = {},
) {
  const { env = {}, traits = {}, secrets = () => [], ...settings } = options
  const stream = Object.assign(createMemoryStream(), traits)
  const log = createLog({
    level: 'info',
    format: 'auto',
    stream,
    env,
    clock,
    secrets,
    ...settings,
  })
  return { ...log, stream }
}

test('a record less urgent than the level is not written, and a reload changes that', async () => {
  const { log, close, reconfigure, stream } = openLog({ format: 'text', level: 'notice' })
  log('info', 'Unwanted', { event: 'no' })
  reconfigure({ level: 'debug', format: 'json' })
  log('debug', 'Wanted', { event: 'yes' })
  await close()
  expect(stream.lines().map((line) => JSON.parse(line) as unknown)).toEqual([
    expect.objectContaining({ level: 'debug', message: 'Wanted', event: 'yes' }),
  ])
})

test.each([
  ['text on a terminal', { traits: { isTTY: true } }, /^\d{4}-\d\d-\d\dT\S+Z info Hello event=hello$/],
  [
    'text for the journal',
    { traits: { fd: 0 }, env: { JOURNAL_STREAM: `${dev}:${ino}` } },
    /^<6>Hello event=hello$/,
  ],
  ['json elsewhere', {}, /^\{.*\}$/],
  ['json where the journal is elsewhere', { traits: { fd: 0 }, env: { JOURNAL_STREAM: '1:2' } }, /^\{/],
  ['json where the descriptor is closed', { traits: { fd: 9_999 }, env: { JOURNAL_STREAM: '1:2' } }, /^\{/],
])('auto: %s', async (_, options, line) => {
  const { log, close, stream } = openLog(options)
  log('info', 'Hello', { event: 'hello' })
  await close()
  expect(stream.lines()[0]).toMatch(line)
})

test('what no one reads is dropped beyond 1 MiB, and one record says how much', async () => {
  const { log, lost, stream } = openLog({ format: 'json' })
  stream.stall()
  for (let count = 0; count < 20_000; count += 1)
    log('info', 'Flood', { event: 'flood', count, filler: 'x'.repeat(100) })
  expect(lost()).toBeGreaterThan(10_000)
  expect(stream.writableLength).toBeLessThan(1024 * 1024 + 1)
  const dropped = lost()
  stream.flow()
  await expect.poll(() => stream.lines().at(-1)).toContain('log-records-lost')
  expect(JSON.parse(stream.lines().at(-1) ?? '')).toMatchObject({ level: 'warning', dropped })
  expect(stream.lines()).toHaveLength(20_000 - dropped + 1)
  log('info', 'On', { event: 'on' })
  expect(stream.lines().at(-1)).toContain('"On"')
  expect(lost()).toBe(dropped)
})

test('a stream that fails is survived, and its records are counted as lost', async () => {
  const { log, close, lost, stream } = openLog()
  stream.destroy(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }))
  log('info', 'Into the void', { event: 'void' })
  await expect.poll(lost).toBe(1)
  log('info', 'Into the void', { event: 'void' })
  await close()
  expect(lost()).toBe(2)
})

test('closing waits a second for a reader that has stopped, and leaves no exit listeners', async () => {
  const before = process.listenerCount('exit')
  const { log, close, stream } = openLog()
  stream.stall()
  log('info', 'One', { event: 'one' })
  log('info', 'Two', { event: 'two' })
  const from = performance.now()
  await close()
  expect(performance.now() - from).toBeLessThan(5_000)
  expect(performance.now() - from).toBeGreaterThan(900)
  expect(process.listenerCount('exit')).toBe(before)
})

const WALL_MS = Date.UTC(2026, 10, 20, 12, 0, 5, 250)
const FIELDS = {
  event: 'fetch-failed',
  reason: 'network',
  attempts: 2,
  status: null,
  detail: 'no route to host',
}
interface LineOptions {
  isJournal?: boolean
  secrets?: string[]
}

/** The line of one record. */
function lineOf(
  format: LogSettings['format'],
  fields: Record<string, unknown> = {},
  { isJournal = false, secrets = [] }: LineOptions = {},
): string {
  const stream = Object.assign(createMemoryStream(), isJournal ? { fd: 0 } : {})
  const env = isJournal ? { JOURNAL_STREAM: `${dev}:${ino}` } : {}
  const options = { level: 'debug', format, stream, env, secrets: () => secrets } as const
  const fixed = { ...clock, now: () => ({ bootMs: 0, wallMs: WALL_MS }) }
  createLog({ ...options, clock: fixed }).log('warning', 'Fetching a token failed', { ...FIELDS, ...fields })
  return stream.lines()[0]!
}

test('for the journal: the level as prefix, the sentence, the fields that have a value as words', () => {
  expect(lineOf('text', { cause: undefined }, { isJournal: true })).toBe(
    '<4>Fetching a token failed event=fetch-failed reason=network attempts=2 detail="no route to host"',
  )
})

test('for programs: time, level, message, event and the fields, an error without its stack', () => {
  expect(JSON.parse(lineOf('json', { error: new TypeError('bad') }))).toEqual({
    time: '2026-11-20T12:00:05.250Z',
    level: 'warning',
    message: 'Fetching a token failed',
    ...FIELDS,
    error: 'bad',
  })
  // Under systemd the journal takes the priority from before it.
  expect(lineOf('json', {}, { isJournal: true })).toBe(`<4>${lineOf('json')}`)
})

test.for(['text', 'json'] as const)(
  '%s: a record is one line, without secrets or control characters',
  (format) => {
    assert(
      property(jsonValue(), string({ unit: 'binary' }), (value, text) => {
        const line = lineOf(format, { value, text })
        expect(line).not.toMatch(/[\x00-\x1f\x7f-\x9f\u2028\u2029\u202e]/)
        if (format === 'json') expect(JSON.parse(line)).toMatchObject({ text })
      }),
    )

    const secret = 'p"ss wörd+/42'
    const base64 = Buffer.from(secret).toString('base64')
    const echoes = {
      wrapped: new Secret(secret),
      echoed: `you sent ${secret}!`,
      url: `?key=${encodeURIComponent(secret)}`,
      basic: base64,
      error: new Error(`refused: ${secret}`),
      list: [{ deep: secret }],
    }
    const hidden = lineOf(format, echoes, { secrets: [secret] })
    for (const text of ['wörd', encodeURIComponent(secret), base64.replace(/=+$/, '')])
      expect(hidden).not.toContain(text)
    expect(hidden.match(/\[secret\]/g)).toHaveLength(6)
  },
)

test.for(['text', 'json'] as const)(
  '%s: a secret that is a common word changes values of fields and nothing else',
  (format) => {
    const secrets = ['Fetching', 'fetch-failed', 'no-tokens', 'expirySource', 'kyc']
    const fields = { expirySource: 'jwt', detail: 'no-tokens for kyc-tokend' }
    const line = lineOf(format, fields, { secrets: secrets.toSorted() })
    expect(line).toContain('Fetching a token failed')
    expect(line).toMatch(/expirySource"?[=:]"?jwt/)
    expect(line).not.toContain('no-tokens')
    expect(line).toContain('kyc-tokend')
    expect(line).toMatch(/event"?[=:]"?fetch-failed/)
  },
)
