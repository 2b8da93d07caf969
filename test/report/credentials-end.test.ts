import { expect, test } from 'vitest'
import { createCredentialsEnd, credentialsEnd } from '../../src/report/credentials-end.ts'
import { createRecords } from '../support/records.ts'

const DAY_MS = 86_400_000
const END = Date.parse('2027-03-01T00:00:00Z')

interface Ends {
  pair: number | null
  certificate: number | null
  certificateFrom?: number
}
const endsOf = ({ certificateFrom = 0, ...ends }: Ends) => ({ endsAtMs: { certificateFrom, ...ends } })

function watched(ends: Ends) {
  const { log, records } = createRecords()
  let config = endsOf(ends)
  let wallMs = 0
  let loggedEnd: string | null = null
  const create = () =>
    createCredentialsEnd({
      config: () => config,
      keeper: {
        now: () => ({ bootMs: 0, wallMs }),
        state: () => ({ loggedEnd }),
        setLoggedEnd: (text) => Promise.resolve(void (loggedEnd = text)),
      },
      log,
    })
  let end = create()
  return {
    records,
    isNear: () => end.sample()?.isNear,
    renew: (next: Ends) => void (config = endsOf(next)),
    restart: () => void (end = create()),
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

test('a restart logs nothing again', () => {
  const { at, records, restart } = watched({ pair: END, certificate: null })
  for (const days of [30, 29, 8, 7, 7]) {
    at(days)
    restart()
  }
  expect(records.map(({ fields }) => fields['daysLeft'])).toEqual([30, 7])
})

test('of a certificate that lives for a day, parts of its life count', () => {
  const { at, records, isNear } = watched({ pair: null, certificate: END, certificateFrom: END - DAY_MS })
  for (const days of [1, 0.9, 0.34]) at(days)
  expect([records.length, isNear()]).toEqual([0, false])
  const logged = [0.33, 0.2, 0.1, 0.05, 0.033, 0.01, 0, -1].map((days) => (at(days), records.length))
  expect(logged).toEqual([1, 1, 2, 2, 3, 3, 4, 4])
  expect(isNear()).toBe(true)
})

test.each([
  [90, [30, 7]],
  [89, [29, 7]],
])(
  'of one that lives for %i days it is told with %j days left: from 90 on the days count',
  (life, logged) => {
    const { at, records } = watched({ pair: null, certificate: END, certificateFrom: END - life * DAY_MS })
    for (const days of [31, 30, 29, 9, 7]) at(days)
    expect(records.map(({ fields }) => fields['daysLeft'])).toEqual(logged)
  },
)

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
  expect(credentialsEnd(endsOf(ends), END - 1)).toEqual(expected)
  expect(credentialsEnd(endsOf({ ...ends, certificate: null }), END)).toBeNull()
})
