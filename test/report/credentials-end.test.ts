import { expect, test } from 'vitest'
import { createCredentialsEnd, credentialsEnd } from '../../src/report/credentials-end.ts'
import { createRecords } from '../support/records.ts'

const DAY_MS = 86_400_000
const END = Date.parse('2027-03-01T00:00:00Z')

function watched(endsAtMs: { pair: number | null; certificate: number | null }) {
  const { log, records } = createRecords()
  let config = { endsAtMs }
  let wallMs = 0
  const end = createCredentialsEnd({ config: () => config, wallMs: () => wallMs, log })
  return {
    end,
    records,
    renew: (next: typeof endsAtMs) => void (config = { endsAtMs: next }),
    at: (daysBefore: number): void => {
      wallMs = END - daysBefore * DAY_MS
      end.tick()
      end.tick()
    },
  }
}

test('the end is told 30, 7 and 1 days before it, and when it has come', () => {
  const { at, records } = watched({ pair: END, certificate: null })
  for (const days of [100, 31, 30, 29, 8, 7, 2, 1, 0.5, 0, -1, -100]) at(days)
  expect(records.map(({ level, fields }) => [level, fields.event, fields['daysLeft']])).toEqual([
    ['warning', 'credentials-expire', 30],
    ['warning', 'credentials-expire', 7],
    ['warning', 'credentials-expire', 1],
    ['warning', 'credentials-expire', 0],
  ])
  expect(records[0]?.fields).toMatchObject({ what: 'pair', expiresAt: '2027-03-01T00:00:00.000Z' })
})

test('a daemon that starts late tells it once, and again for another end', () => {
  const { at, records, renew } = watched({ pair: END + DAY_MS, certificate: END })
  at(3)
  expect(records.map(({ fields }) => [fields['what'], fields['daysLeft']])).toEqual([['certificate', 3]])
  expect(records[0]?.fields['remedy']).toMatch(/^Have the client certificate renewed/)
  renew({ pair: END + DAY_MS, certificate: END + 90 * DAY_MS })
  at(3)
  expect(records.slice(1).map(({ fields }) => [fields['what'], fields['daysLeft']])).toEqual([['pair', 4]])
  renew({ pair: null, certificate: null })
  at(0)
  expect(records).toHaveLength(2)
})

test('a status has the first end, and what is not known as null', () => {
  const ends = { pair: null, certificate: END }
  const expected = { what: 'certificate', expiresAt: '2027-03-01T00:00:00.000Z', daysLeft: 1 }
  expect(credentialsEnd({ endsAtMs: ends }, END - 1)).toEqual(expected)
  expect(credentialsEnd({ endsAtMs: { ...ends, certificate: null } }, END)).toBeNull()
})
