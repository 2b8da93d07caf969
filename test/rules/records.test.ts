// Each rule over the records of a daemon is broken by a log that breaks it. That good logs break none, each test with
// a daemon shows.
import { expect, test } from 'vitest'
import { brokenByRecords, recordsOfJournal, recordsOfLines, RULES, type Logged } from './records.ts'

const MINUTE = 60_000
const START_MS = 1_800_000_000_000
const isoAt = (ms: number): string => new Date(START_MS + ms).toISOString()
const record = (ms: number, event: string, fields: object = {}): Logged => ({
  atMs: START_MS + ms,
  event,
  fields: { ...fields },
})
const attempt = (ms: number, outcome: string, cause: string, tookMs: number | null = 10): Logged =>
  record(ms, 'attempt', { outcome, cause, tookMs })
const obtained = (ms: number, generation: number, endsMs = ms + 60 * MINUTE): Logged =>
  record(ms, 'token-obtained', { generation, expiresAt: isoAt(endsMs) })
const alert = (ms: number, reason: string, more: object = {}): Logged =>
  record(ms, 'alert', { reason, ...more })
const notInUse = (ms: number): Logged =>
  record(ms, 'credentials-not-taken-over', { error: 'account-inactive: no' })
const refused = [attempt(0, 'permanent', 'start'), alert(0, 'account-inactive')]

test.each([
  ['two at once', 'one-at-a-time', [attempt(0, 'ok', 'start'), attempt(9_000, 'ok', 'client', 20_000)]],
  ['a timer after a refusal', 'refused', [...refused, attempt(MINUTE, 'ok', 'refresh')]],
  ['impatient clients', 'client-pace', [attempt(0, 'ok', 'client'), attempt(20_000, 'ok', 'client')]],
  ['a number that comes again', 'number', [obtained(0, 2), obtained(1, 2)]],
  ['a token that has ended', 'expired', [obtained(0, 1, -MINUTE)]],
  ['an end that is too soon', 'good-token', [record(0, 'token-expired', { expiredAt: isoAt(MINUTE) })]],
  [
    'a refusal without an alert',
    'alert-missing',
    [attempt(0, 'ok', 'start'), attempt(1, 'permanent', 'refresh'), record(MINUTE, 'x')],
  ],
  ['an alert that comes again', 'alert-once', [...refused, alert(1, 'account-inactive')]],
  ['an alert that is outranked', 'alert-rank', [...refused, alert(1, 'no-token')]],
  [
    'an end of nothing',
    'alert-end',
    [attempt(0, 'ok', 'start'), record(1, 'alert-resolved', { reason: 'no-token' })],
  ],
  ['one trial, two records', 'trial-once', [notInUse(0), notInUse(10)]],
] as const)('%s breaks %s', (_name, rule, records) => {
  expect(brokenByRecords(records)[0]).toContain(RULES[rule])
})

test('stderr and the journal have the same records', () => {
  const line = JSON.stringify({ time: isoAt(0), level: 'info', message: 'm', event: 'attempt', tookMs: '5' })
  const MESSAGE = 'A sentence. event=attempt tookMs=5 detail="a \\"b\\" c=d"'
  const entry = { MESSAGE, _PID: '7', _SYSTEMD_UNIT: 'u' }
  const journal = JSON.stringify({ ...entry, __REALTIME_TIMESTAMP: `${START_MS}000` })
  const [ofLine] = recordsOfLines(`<6>${line}\nother\n`)
  const ofEntry = recordsOfJournal(`${journal}\n{"MESSAGE":"x"}\n`).get('u 7')
  expect(ofEntry).toEqual([expect.objectContaining({ event: 'attempt', atMs: ofLine!.atMs })])
  expect(ofEntry?.[0]?.fields['detail']).toBe('a "b" c=d')
  expect([ofEntry?.[0]?.fields['tookMs'], ofLine?.fields['tookMs']]).toEqual(['5', '5'])
})
