import { expect, test } from 'vitest'
import { assert, jsonValue, property, string } from 'fast-check'
import { Secret } from '../../src/lib/secret.ts'
import { formatLine, type LineOptions, type LogRecord } from '../../src/report/log-line.ts'

const record: LogRecord = {
  level: 'warning',
  message: 'Fetching a token failed',
  fields: { event: 'fetch-failed', reason: 'network', attempts: 2, status: null, detail: 'no route to host' },
  wallMs: Date.UTC(2026, 10, 20, 12, 0, 5, 250),
}

function lineOf(
  format: LineOptions['format'],
  fields: Record<string, unknown> = {},
  { level = record.level, ...options }: Partial<LineOptions & Pick<LogRecord, 'level'>> = {},
): string {
  return formatLine(
    { ...record, level, fields: { ...record.fields, ...fields } },
    { format, isColoured: false, isJournal: false, secrets: [], ...options },
  )
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
    ...record.fields,
    error: 'bad',
  })
  // Under systemd the journal takes the priority from before it.
  expect(lineOf('json', {}, { isJournal: true })).toBe(`<4>${lineOf('json')}`)
})

test('for people: local time, level, sentence, fields that have a value, and perhaps colours', () => {
  expect(lineOf('text')).toMatch(
    /^\d{4}(?:-\d\d){2} \d\d:\d\d:05 warning Fetching a token failed event=fetch-failed reason=.* detail="no route to host"$/,
  )
  for (const [level, colour] of Object.entries({ error: 31, warning: 33, notice: 32, info: 34, debug: 90 })) {
    const line = lineOf('text', {}, { isColoured: true, level: level as LogRecord['level'] })
    expect(line).toMatch(new RegExp(`^[-\\d :]+ \x1b\\[${colour}m${level} *\x1b\\[39m Fetching`))
  }
  expect(lineOf('json', {}, { isColoured: true })).not.toContain('\x1b')
})

test.for(['text', 'json'] as const)(
  '%s: a record is one line, without secrets, control characters or what is too long',
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

    // A long text keeps its beginning, and no half of a secret is left over at the cut.
    const long = 'S3CR3T'.repeat(100)
    const detail = `begin ${'x'.repeat(4_000)}${long}${'x'.repeat(4_000)} end`
    const cut = lineOf(format, { detail }, { secrets: [long] })
    expect(cut).toMatch(/begin xxx.*…/)
    expect(cut).not.toMatch(/S3CR3T|end/)
    expect(cut.length).toBeGreaterThan(4_000)
  },
)

test.for(['text', 'json'] as const)(
  '%s: no line is over 48 KiB; what a record is about is said all the same',
  (format) => {
    const longest = 48 * 1024 - 1
    const texts = [...Array.from({ length: 5 }, () => 'é'.repeat(4096)), 'x'.repeat(4096)]
    const lineWith = (length: number): string => lineOf(format, { texts, rest: 'x'.repeat(length) })
    const fitting = 1 + longest - Buffer.byteLength(lineWith(1))
    expect(Buffer.byteLength(lineWith(fitting))).toBe(longest)
    expect(lineWith(fitting + 1)).toContain('Fetching a token failed')
    expect(lineWith(fitting + 1)).toMatch(/omittedBytes"?[=:]49152/)
  },
)

test.for(['text', 'json'] as const)(
  '%s: a secret that is a common word changes values of fields and nothing else',
  (format) => {
    const secrets = ['token', 'e', 'S', 'fetch-failed', 'warning', '2026']
    const fields = { expirySource: 'jwt', detail: 'no token' }
    const line = lineOf(format, fields, { secrets: secrets.toSorted() })
    expect(line).toContain('Fetching a token failed')
    expect(line).toMatch(/expirySource"?[=:]"?jwt/)
    expect(line).not.toContain('no token')
    expect(line).toMatch(/event"?[=:]"?fetch-failed/)
    expect(line).toMatch(/2026-11-2\d.\d\d:\d\d:05.*warning/)
  },
)
