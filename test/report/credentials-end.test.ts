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
  const { log, of } = createRecords()
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
  const told = () => of('credentials-expire')
  return {
    told,
    daysLeft: () => told().map((record) => record['daysLeft']),
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

test('the end is told 30, 7 and 1 days before it, and when it has come; a restart tells nothing again', () => {
  const { at, told, daysLeft, restart } = watched({ pair: END, certificate: null })
  for (const days of [100, 31, 30, 29, 8, 7, 2, 1, 0.5, 0, -1, -100]) {
    at(days)
    restart()
  }
  expect(daysLeft()).toEqual([30, 7, 1, 0])
  expect(told()[0]).toMatchObject({ level: 'warning', what: 'pair', expiresAt: '2027-03-01T00:00:00.000Z' })
})

test('of a certificate that lives for a day, parts of its life count', () => {
  const { at, told, isNear } = watched({ pair: null, certificate: END, certificateFrom: END - DAY_MS })
  for (const days of [1, 0.9, 0.34]) at(days)
  expect([told().length, isNear()]).toEqual([0, false])
  const logged = [0.33, 0.2, 0.1, 0.05, 0.033, 0.01, 0, -1].map((days) => (at(days), told().length))
  expect(logged).toEqual([1, 1, 2, 2, 3, 3, 4, 4])
  expect(isNear()).toBe(true)
})

test.each([
  [90, [30, 7]],
  [89, [29, 7]],
])(
  'of one that lives for %i days it is told with %j days left: from 90 on the days count',
  (life, logged) => {
    const { at, daysLeft } = watched({ pair: null, certificate: END, certificateFrom: END - life * DAY_MS })
    for (const days of [31, 30, 29, 9, 7]) at(days)
    expect(daysLeft()).toEqual(logged)
  },
)

test('a daemon that starts late tells it once, and again for another end', () => {
  const { at, told, renew } = watched({ pair: END + DAY_MS, certificate: END })
  at(3)
  const remedy = expect.stringMatching(/^Have the client certificate renewed/) as string
  expect(told()).toMatchObject([{ what: 'certificate', daysLeft: 3, remedy }])
  renew({ pair: END + DAY_MS, certificate: END + 90 * DAY_MS })
  at(3)
  expect(told().slice(1)).toMatchObject([{ what: 'pair', daysLeft: 4 }])
  renew({ pair: null, certificate: null })
  at(0)
  expect(told()).toHaveLength(2)
})

test('a status has the first end, and what is not known as null', () => {
  const ends = { pair: null, certificate: END }
  const expected = { what: 'certificate', expiresAt: '2027-03-01T00:00:00.000Z', daysLeft: 1 }
  expect(credentialsEnd(endsOf(ends), END - 1)).toEqual(expected)
  expect(credentialsEnd(endsOf({ ...ends, certificate: null }), END)).toBeNull()
})
