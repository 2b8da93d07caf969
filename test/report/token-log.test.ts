import { expect, onTestFinished, test } from 'vitest'
import { startTokenLog } from '../../src/report/token-log.ts'
import { remedyOf } from '../support/remedies.ts'
import { failures } from '../support/failures.ts'
import { createKeeperWorld, type KeeperWorld } from '../support/keeper-world.ts'
import { createRecords, type Records } from '../support/records.ts'

const MINUTE = 60_000

async function narrated(
  options: Parameters<typeof createKeeperWorld>[0] = {},
): Promise<KeeperWorld & Records & { refresh: () => Promise<void> }> {
  const world = createKeeperWorld(options)
  const { keeper, clock } = world
  const recorder = createRecords()
  startTokenLog({ keeper, log: recorder.log, remedyOf })
  onTestFinished(world.stop)
  world.start()
  await clock.advance(0)
  /** An operator's. */
  const refresh = async (): Promise<void> => {
    void keeper.refresh(new AbortController().signal)
    await clock.advance(0)
  }
  return { ...world, ...recorder, refresh }
}

test('a token is reported with fingerprint, number, expiry and next refresh, never itself', async () => {
  const { keeper, of, records } = await narrated()
  const { accessToken, fingerprint } = keeper.state().token!
  expect(of('token-obtained')).toMatchObject([
    {
      level: 'info',
      sentence: 'Token obtained',
      cause: 'start',
      generation: 1,
      expiresAt: '2027-01-15T09:00:00.000Z',
      nextRefreshAt: expect.stringMatching(/^2027-01-15T08:[34]/) as string,
      fingerprint,
    },
  ])
  expect(JSON.stringify(records)).not.toContain(accessToken)
})

test('an outage is one record for each reason, also of reasons that alternate, and one for its end', async () => {
  const { answer, asked, clock, of, token } = await narrated()
  answer(() => (asked() % 2 === 0 ? failures.network : failures.timeout))
  await clock.advance(8 * 60 * MINUTE)
  expect(asked()).toBeGreaterThan(100)
  const reported = of('fetch-failed').map(({ reason }) => reason)
  expect([reported.length, new Set(reported)]).toEqual([2, new Set(['network', 'timeout'])])
  expect(of('token-expired')).toMatchObject([{ level: 'error', expiredAt: '2027-01-15T09:00:00.000Z' }])
  const failedAttempts = asked() - 1
  answer(token)
  await clock.advance(10 * MINUTE)
  expect(of('recovered')).toMatchObject([{ level: 'notice', failedAttempts }])
  expect(of('recovered')[0]?.['failedForSeconds']).toBeGreaterThan(7 * 3_600)
})

test('a failure has its remedy; the next one after a recovery is logged again', async () => {
  const { answer, clock, events, of, refresh, token } = await narrated({ first: failures.network })
  expect(of('fetch-failed')).toMatchObject([
    {
      level: 'warning',
      reason: 'network',
      detail: 'connect ECONNREFUSED',
      tokenUsableUntil: null,
      remedy: remedyOf('network'),
    },
  ])
  expect(of('attempt')).toMatchObject([{ outcome: 'transient', cause: 'start', tookMs: 0 }])
  answer(token)
  await clock.advance(MINUTE)
  expect(events().slice(-2)).toEqual(['recovered', 'token-obtained'])
  answer(failures.network)
  await refresh()
  expect(of('fetch-failed')[1]).toMatchObject({ attempts: 1, cause: 'operator' })
})

test('the same token again is no news; at twice its assumed life it has expired', async () => {
  const { answer, asked, clock, of } = await narrated({ first: { kind: 'ok', accessToken: 'opaque' } })
  await clock.advance(10 * MINUTE)
  expect(asked()).toBe(2)
  answer(failures.network)
  await clock.advance(16 * MINUTE)
  expect(of('token-expired')).toHaveLength(0)
  await clock.advance(16 * MINUTE)
  expect([of('token-obtained').length, of('token-expired').length]).toEqual([1, 1])
})

test('a token kept from before a restart is not obtained again', async () => {
  const first = await narrated()
  await first.stop()
  const { events } = await narrated({ state: first.keeper.state(), clock: first.clock })
  expect(events()).toEqual([])
})
