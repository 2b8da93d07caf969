import { expect, test } from 'vitest'
import { formatDuration, parseDuration, parseInstant } from '../../src/lib/duration.ts'

test.each([
  ['500ms', 500],
  ['30s', 30_000],
  ['1.25m', 75_000],
  ['2h', 7_200_000],
  ['1d', 86_400_000],
  [' 1s ', 1_000],
])('%s is a duration', (text, ms) => {
  expect(parseDuration(text)).toBe(ms)
})

test.each([
  [-1, '0.0 s'],
  [250, '0.3 s'],
  [41_400, '41 s'],
  [60_000, '1 min'],
  [7_500_000, '2 h 5 min'],
  [7_205_000, '2 h'],
  [50_400_000, '14 h'],
  [86_400_000 + 23 * 3_600_000, '1 d 23 h'],
])('%d ms are written as %s', (ms, text) => {
  expect(formatDuration(ms)).toBe(text)
})

test.each([
  ['2027-03-01', '2027-03-02T00:00:00Z'],
  ['2028-02-29', '2028-03-01T00:00:00Z'],
  ['2027-03-01T12:00Z', '2027-03-01T12:00:00Z'],
  ['2027-03-01 12:00:30,5+02:00', '2027-03-01T10:00:30.5Z'],
])('%s ends at %s: a date ends with its day, UTC', (text, instant) => {
  expect(parseInstant(text)).toBe(Date.parse(instant))
})

test('another text is neither a duration nor an instant', () => {
  for (const text of ['', '5', 's', '1 s', '-1s', '1w', '1s2', 'x1s', '.5s', '1.s', `${'9'.repeat(400)}d`])
    expect(parseDuration(text), text).toBeUndefined()
  for (const text of ['2027/03/01', '2027-02-30', '2027-02-30T12:00Z', '2027-03-01T12:00', '2027-3-1', ''])
    expect(parseInstant(text), text).toBeUndefined()
})
