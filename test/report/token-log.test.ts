import { expect, onTestFinished, test } from 'vitest'
import { startTokenLog } from '../../src/report/token-log.ts'
import { remedyOf } from '../support/remedies.ts'
import { failures } from '../support/failures.ts'
import { createKeeperWorld } from '../support/keeper-world.ts'
import { createRecords } from '../support/records.ts'

const MINUTE = 60_000

async function narrated(options: Parameters<typeof createKeeperWorld>[0] = {}) {
  const world = createKeeperWorld(options)
  const { keeper, clock } = world
  const recorder = createRecords()
  startTokenLog({ keeper, log: recorder.log, remedyOf })
  onTestFinished(world.stop)
  world.start()
  await clock.advance(0)
  return { ...world, ...recorder }
}

test('a token is reported with fingerprint, number, expiry and next refresh, never itself, and once over a restart', async () => {
  const first = await narrated()
  const { accessToken, fingerprint } = first.keeper.state().token!
  expect(first.of('token-obtained')).toMatchObject([
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
  expect(JSON.stringify(first.records)).not.toContain(accessToken)
  await first.stop()
  const { events, keeper } = await narrated({
    state: first.keeper.state(),
    clock: first.clock,
    first: { kind: 'ok', accessToken },
  })
  await keeper.refresh(new AbortController().signal)
  expect(events()).toEqual([])
})

test('an outage is one record for each reason, with its remedy, also of reasons that alternate, and one for its end', async () => {
  const { answer, asked, clock, events, keeper, of, token } = await narrated()
  answer(() => (asked() % 2 === 0 ? failures.network : failures.timeout))
  await clock.advance(8 * 60 * MINUTE)
  expect(asked()).toBeGreaterThan(100)
  const failed = of('fetch-failed').toSorted((one) => (one['reason'] === 'network' ? -1 : 1))
  const { detail } = failures.network
  const remedy = remedyOf('network')
  const fields = { level: 'warning', detail, tokenUsableUntil: '2027-01-15T09:00:00.000Z', remedy }
  expect(failed).toMatchObject([{ reason: 'network', ...fields }, { reason: 'timeout' }])
  expect(of('attempt').at(-1)).toMatchObject({ outcome: 'transient', cause: 'retry', tookMs: 0 })
  expect(of('token-expired')).toMatchObject([{ level: 'error', expiredAt: '2027-01-15T09:00:00.000Z' }])
  const failedAttempts = asked() - 1
  answer(token)
  await clock.advance(10 * MINUTE)
  expect(of('recovered')).toMatchObject([{ level: 'notice', failedAttempts }])
  expect(of('recovered')[0]?.['failedForSeconds']).toBeGreaterThan(7 * 3_600)
  expect(events().slice(-2)).toEqual(['recovered', 'token-obtained'])
  // The next one is logged again.
  answer(failures.network)
  await keeper.refresh(new AbortController().signal)
  expect(of('fetch-failed')[2]).toMatchObject({ attempts: 1, cause: 'operator' })
})
