import { fstatSync } from 'node:fs'
import { assert, jsonValue, property, string } from 'fast-check'
import { expect, test } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createLog, type LogSettings } from '../../src/report/log.ts'
import { createMemoryStream } from '../support/memory-stream.ts'

const { dev, ino } = fstatSync(0, { bigint: true })
/** The daemon's stderr is a journal's socket. */
const JOURNAL = { traits: { fd: 0 }, env: { JOURNAL_STREAM: `${dev}:${ino}` } }
const clock = { ...createSystemClock(), now: () => ({ bootMs: 0, wallMs: Date.UTC(2026, 10, 20, 12) }) }

interface Options extends Partial<LogSettings> {
  readonly env?: NodeJS.ProcessEnv
  readonly secrets?: string[]
  /** Of its stream. */
  readonly traits?: object
}

function openLog({ traits = {}, secrets = [], env = {}, level = 'info', format = 'auto' }: Options = {}) {
  const stream = Object.assign(createMemoryStream(), traits)
  return { ...createLog({ level, format, stream, env, clock, secrets: () => secrets }), stream }
}

/** The line of one record with these fields. */
function lineOf(fields: Record<string, unknown>, options: Options): string {
  const { log, stream } = openLog(options)
  log('warning', 'Fetching a token failed', { event: 'fetch-failed', ...fields })
  return stream.lines()[0]!
}

test('a record less urgent than the level is not written, and a reload changes that', () => {
  const { log, reconfigure, stream } = openLog({ format: 'text', level: 'notice' })
  log('info', 'Unwanted', { event: 'no' })
  reconfigure({ level: 'debug', format: 'json' })
  log('debug', 'Wanted', { event: 'yes' })
  expect(stream.lines().map((line) => JSON.parse(line) as unknown)).toEqual([
    expect.objectContaining({ level: 'debug', message: 'Wanted', event: 'yes' }),
  ])
})

const FIELDS = {
  attempts: 2,
  status: null,
  cause: undefined,
  detail: 'no route',
  error: new TypeError('bad'),
}
const TEXT = 'Fetching a token failed event=fetch-failed attempts=2 detail="no route" error=bad'
const JSON_FIELDS = '"event":"fetch-failed","attempts":2,"status":null,"detail":"no route","error":"bad"'
const JSON_LINE = `{"time":"2026-11-20T12:00:00.000Z","level":"warning","message":"Fetching a token failed",${JSON_FIELDS}}`

test.each<[string, Options, string]>([
  ['text on a terminal', { traits: { isTTY: true } }, `2026-11-20T12:00:00.000Z warning ${TEXT}`],
  ['text with its priority for the journal', JOURNAL, `<4>${TEXT}`],
  ['json with its priority where that is set', { ...JOURNAL, format: 'json' }, `<4>${JSON_LINE}`],
  ['json elsewhere', {}, JSON_LINE],
  ['json where the journal is elsewhere', { ...JOURNAL, env: { JOURNAL_STREAM: '1:2' } }, JSON_LINE],
  ['json where the descriptor is closed', { ...JOURNAL, traits: { fd: 9_999 } }, JSON_LINE],
])('a record is a line of sentence and fields: %s', (_, options, line) => {
  expect(lineOf(FIELDS, options)).toBe(line)
})

test('what no one reads is dropped beyond 1 MiB, delays the end by a second, and one record says how much', async () => {
  const { log, close, lost, stream } = openLog({ format: 'json' })
  stream.stall()
  for (let count = 0; count < 20_000; count += 1)
    log('info', 'Flood', { event: 'flood', count, filler: 'x'.repeat(100) })
  const dropped = lost()
  expect(dropped).toBeGreaterThan(10_000)
  expect(stream.writableLength).toBeLessThan(1024 * 1024 + 1)
  expect(stream.writableLength).toBeGreaterThan(1024 * 1024 - 1_000)
  const from = performance.now()
  await close()
  expect(performance.now() - from).toBeLessThan(5_000)
  expect(performance.now() - from).toBeGreaterThan(900)
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
  stream.leave()
  for (const count of [1, 2]) {
    log('info', 'Into the void', { event: 'void' })
    await expect.poll(lost).toBe(count)
  }
  await close()
})

test.for(['text', 'json'] as const)(
  '%s: a record is one line, without secrets or control characters',
  (format) => {
    assert(
      property(jsonValue(), string({ unit: 'binary' }), (value, text) => {
        const line = lineOf({ value, text }, { format })
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
    const hidden = lineOf(echoes, { format, secrets: [secret] })
    for (const text of ['wörd', encodeURIComponent(secret), base64.replace(/=+$/, '')])
      expect(hidden).not.toContain(text)
    expect(hidden.match(/\[secret\]/g)).toHaveLength(6)
    // A secret that is a common word changes values of fields and nothing else.
    const secrets = ['Fetching', 'expirySource', 'fetch-failed', 'kyc', 'no-tokens']
    const line = lineOf({ expirySource: 'jwt', detail: 'no-tokens for kyc-tokend' }, { format, secrets })
    expect(line).toContain('Fetching a token failed')
    expect(line).toMatch(/event"?[=:]"?fetch-failed.*expirySource"?[=:]"?jwt.*kyc-tokend/)
    expect(line).not.toContain('no-tokens')
  },
)
