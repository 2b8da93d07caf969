import { expect, test } from 'vitest'
import { announcedEnd, logCredentialsEnd } from '../../src/report/configuration-log.ts'
import type { Keeper } from '../../src/token/keeper.ts'
import { createRecords } from '../support/records.ts'

const DAY_MS = 86_400_000
const END = Date.parse('2027-03-01T00:00:00Z')

interface Ends {
  pair: number | null
  certificate: number | null
  certificateFrom?: number
}
const endsOf = ({ certificateFrom: fromMs = 0, certificate: endMs, pair }: Ends) => ({
  ends: { credentialsMs: pair, certificate: endMs === null ? null : { fromMs, endMs } },
})

function watched(ends: Ends) {
  const { log, of } = createRecords()
  let config = endsOf(ends)
  let wallMs = 0
  let loggedEnd: string | null = null
  const keeper = {
    now: () => ({ bootMs: 0, wallMs }),
    state: () => ({ notes: { loggedEnd } }),
    remember: (notes: { loggedEnd?: string | null }) => void (loggedEnd = notes.loggedEnd ?? null),
  } as unknown as Keeper
  const told = () => of('credentials-expire')
  return {
    told,
    daysLeft: () => told().map((record) => record['daysLeft']),
    sample: () => announcedEnd(config, wallMs),
    renew: (next: Ends) => void (config = endsOf(next)),
    at: (daysBefore: number): void => {
      wallMs = END - daysBefore * DAY_MS
      logCredentialsEnd(config, { keeper, log })
      logCredentialsEnd(config, { keeper, log })
    },
  }
}

test('the end is logged once a day from 30 days before it', () => {
  const { at, told, daysLeft } = watched({ pair: END, certificate: null })
  for (const days of [100, 31, 30.5, 30, 29.2, 29, 8, 7, 1, 0.5, 0, -1, -100]) at(days)
  expect(daysLeft()).toEqual([30, 29, 8, 7, 1, 0])
  const expiresAt = '2027-03-01T00:00:00.000Z'
  expect(told()[0]).toMatchObject({ level: 'warning', what: 'credentials', expiresAt })
})

test.each([
  [90, 1],
  [89, 0],
])(
  'of a certificate that lives for %i days %i record is written: from 90 days on it is no program that renews it',
  (life, count) => {
    const { at, told, sample } = watched({
      pair: null,
      certificate: END,
      certificateFrom: END - life * DAY_MS,
    })
    at(30)
    expect(told()).toHaveLength(count)
    expect(sample() === null).toBe(count === 0)
  },
)

test('a daemon that starts late tells it once, and again for another end', () => {
  const { at, told, renew } = watched({ pair: END + DAY_MS, certificate: END })
  at(3)
  const remedy = expect.stringMatching(/^Have the client certificate renewed/) as string
  expect(told()).toMatchObject([{ what: 'certificate', daysLeft: 3, remedy }])
  renew({ pair: END + DAY_MS, certificate: END + 90 * DAY_MS })
  at(3)
  expect(told().slice(1)).toMatchObject([{ what: 'credentials', daysLeft: 4 }])
  renew({ pair: null, certificate: null })
  at(0)
  expect(told()).toHaveLength(2)
})
