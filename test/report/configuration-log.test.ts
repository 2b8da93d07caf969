import { expect, test } from 'vitest'
import type { PairConfig } from '../../src/config/config.ts'
import { announcedEnd, logCredentialsEnd } from '../../src/report/configuration-log.ts'
import type { Keeper } from '../../src/token/keeper.ts'
import { createRecords } from '../support/records.ts'

const DAY_MS = 86_400_000
const END = Date.parse('2027-03-01T00:00:00Z')

type Ends = PairConfig['ends']

/** What a daemon with these ends logs, which looks twice at each of these moments, in days before END. */
function watched(ends: Ends) {
  const { log, of } = createRecords()
  let loggedEnd: string | null = null
  let wallMs = 0
  const keeper = {
    now: () => ({ bootMs: 0, wallMs }),
    state: () => ({ notes: { loggedEnd } }),
    remember: (notes: { loggedEnd: string }) => void ({ loggedEnd } = notes),
  } as unknown as Keeper
  return (daysBefore: readonly number[], now = ends) => {
    const former = of('credentials-expire').length
    for (const days of daysBefore) {
      wallMs = END - days * DAY_MS
      for (let looks = 0; looks < 2; looks += 1) logCredentialsEnd({ ends: now }, { keeper, log })
    }
    return of('credentials-expire').slice(former)
  }
}

test('the end is logged once a day from 30 days before it', () => {
  const told = watched({ credentialsMs: END, certificate: null })([
    100, 31, 30.5, 30, 29.2, 29, 8, 7, 1, 0.5, 0, -1, -100,
  ])
  expect(told.map(({ daysLeft }) => daysLeft)).toEqual([30, 29, 8, 7, 1, 0])
  expect(told[0]).toMatchObject({
    level: 'warning',
    what: 'credentials',
    expiresAt: '2027-03-01T00:00:00.000Z',
  })
})

test('the end of a certificate is logged where its life is at least 90 days: no program renews it', () => {
  for (const days of [90, 89]) {
    const ends = { credentialsMs: null, certificate: { fromMs: END - days * DAY_MS, endMs: END } }
    expect(watched(ends)([30])).toHaveLength(days === 90 ? 1 : 0)
    expect(announcedEnd({ ends }, 0) !== null).toBe(days === 90)
  }
})

test('the earlier end is told, once where the daemon starts late, and again where it is another', () => {
  const credentialsMs = END + DAY_MS
  const look = watched({ credentialsMs, certificate: { fromMs: 0, endMs: END } })
  const remedy = expect.stringMatching(/^Have the client certificate renewed/) as string
  expect(look([3])).toMatchObject([{ what: 'certificate', daysLeft: 3, remedy }])
  expect(look([3], { credentialsMs, certificate: { fromMs: 0, endMs: END + 90 * DAY_MS } })).toMatchObject([
    { what: 'credentials', daysLeft: 4 },
  ])
  expect(look([0], { credentialsMs: null, certificate: null })).toEqual([])
})
