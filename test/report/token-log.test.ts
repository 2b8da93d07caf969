import { expect, onTestFinished, test } from 'vitest'
import { createTokenLog } from '../../src/report/token-log.ts'
import { remedyOf } from '../support/remedies.ts'
import { serviceFacts } from '../support/facts.ts'
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
  const stopping = new AbortController()
  const running = createTokenLog({ keeper, log: recorder.log, remedyOf }).run(stopping.signal)
  onTestFinished(async () => {
    stopping.abort()
    await running
    await world.stop()
  })
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
      expirySource: 'jwt',
      expiresAt: '2027-01-15T09:00:00.000Z',
      nextRefreshAt: expect.stringMatching(/^2027-01-15T08:[34]/) as string,
      fingerprint,
    },
  ])
  expect(JSON.stringify(records)).not.toContain(accessToken)
})

test('an outage of 8 hours is reported in under 50 lines, at growing intervals', async () => {
  const { answer, asked, clock, events, of } = await narrated()
  answer(failures.network)
  await clock.advance(8 * 60 * MINUTE)
  expect(asked()).toBeGreaterThan(100)
  expect(events().length).toBeLessThan(50)
  const reported = of('fetch-failed')
  expect(reported.length).toBeGreaterThan(8)
  const again = { sentence: 'Fetching a token still fails', remedy: null }
  expect(reported.slice(1)).toMatchObject(reported.slice(1).map(() => again))
  const times = reported.map(({ failingForSeconds }) => Number(failingForSeconds))
  for (const [index, seconds] of times.slice(1).entries()) {
    const quiet = Math.min(60 * 2 ** index, 3_600)
    const gap = seconds - times[index]!
    expect(gap).toBeGreaterThanOrEqual(quiet)
    // The next attempt is reported, and attempts are at most this far apart.
    expect(gap).toBeLessThan(quiet + 330)
  }
  expect(reported.at(-1)?.['attempts']).toBeGreaterThan(300)
  expect(of('token-expired')).toMatchObject([
    { level: 'error', reason: 'network', expiredAt: '2027-01-15T09:00:00.000Z' },
  ])
})

test('reasons that alternate are reported once each, not at each change', async () => {
  const { answer, asked, clock, of } = await narrated()
  answer(() => (asked() % 2 === 0 ? failures.network : failures.timeout))
  await clock.advance(60 * MINUTE)
  expect(of('fetch-failed').length).toBeLessThan(12)
  expect(new Set(of('fetch-failed').map(({ reason }) => reason))).toEqual(new Set(['network', 'timeout']))
})

test('a first failure has its remedy, a recovery its length; the next failure is a first one', async () => {
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
  await clock.advance(10 * MINUTE)
  const failedAttempts = of('attempt').length
  expect(of('attempt')[0]).toMatchObject({ outcome: 'transient', cause: 'start', tookMs: 0 })
  answer(token)
  await clock.advance(MINUTE)
  expect(of('recovered')).toMatchObject([{ level: 'notice', failedAttempts }])
  expect(of('recovered')[0]?.['failedForSeconds']).toBeGreaterThan(590)
  expect(events().slice(-2)).toEqual(['recovered', 'token-obtained'])
  answer(failures.network)
  await refresh()
  expect(of('fetch-failed').at(-1)).toMatchObject({
    sentence: 'Fetching a token failed',
    attempts: 1,
    cause: 'operator',
  })
})

test('the same token again is reported as that, past its assumed age as stale, and as expired at twice that age', async () => {
  const { answer, clock, events, of } = await narrated({ first: { kind: 'ok', accessToken: 'opaque' } })
  await clock.advance(10 * MINUTE)
  expect(of('token-unchanged')).toMatchObject([{ cause: 'refresh', generation: 1 }])
  answer(failures.network)
  await clock.advance(16 * MINUTE)
  expect(of('token-stale')).toHaveLength(1)
  expect(events()).not.toContain('token-expired')
  await clock.advance(16 * MINUTE)
  expect([of('token-stale').length, of('token-expired').length]).toEqual([1, 1])
  expect(of('token-obtained')).toHaveLength(1)
})

test('the first refusal is left to the alert, a repeated one is logged with its cause', async () => {
  const { of, refresh } = await narrated({ first: failures.inactive })
  expect(of('refused')).toEqual([])
  await refresh()
  expect(of('refused')).toMatchObject([{ level: 'warning', reason: 'account-inactive', cause: 'operator' }])
})

test('a token that a reload drops with its service has not expired', async () => {
  const { clock, reload, events } = await narrated()
  reload('second', { service: serviceFacts('other') })
  await clock.advance(0)
  expect(events()).toEqual(['token-obtained', 'token-obtained'])
})

test('a token kept from before a restart is reported, and is not obtained again', async () => {
  const first = await narrated()
  await first.stop()
  const { events } = await narrated({ state: first.keeper.state(), clock: first.clock })
  expect(events()).toEqual(['token-kept'])
})
