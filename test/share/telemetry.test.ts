// Log records of sharing: one for each change of the store, and few for acts of others.
import { expect, test } from 'vitest'
import { createTelemetry } from '../../src/share/telemetry.ts'
import { StoreError } from '../../src/share/store.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { createRecords } from '../support/records.ts'
import { SHARE } from '../support/share-world.ts'

function observed() {
  const clock = createFakeClock()
  const recorder = createRecords()
  const telemetry = createTelemetry({ server: 'redis.test:6379', log: recorder.log, clock, share: SHARE })
  telemetry.connected()
  return { clock, ...recorder, telemetry }
}
const lost = new StoreError('lost', 'Connection is closed.')
const denied = new StoreError('denied', 'NOAUTH Authentication required.')

test('a loss, the plan to ask alone, and a denial in it are logged once each, until the store can be used again', async () => {
  const { clock, events, of, telemetry } = observed()
  for (let loss = 1; loss <= 2; loss += 1) {
    for (const error of [lost, lost, denied, denied, lost]) {
      telemetry.failed(error)
      telemetry.alone({ spreadMs: 1, inMs: 1 })
      await clock.advance(10_000)
    }
    expect(telemetry.storeState()).toMatchObject({ state: 'denied', lastError: denied.message })
    telemetry.connected()
  }
  const records = ['share-lost', 'share-alone', 'share-denied', 'share-connected']
  expect(events()).toEqual(['share-connected', ...records, ...records])
  expect(of('share-connected')[1]).toMatchObject({ failures: 5, aloneSeconds: 50 })
})

test('records that do not open are logged once for each fence, and once in 10 min at most; all are counted', async () => {
  const { clock, of, telemetry } = observed()
  for (const fence of [7, 8]) telemetry.unreadable(fence)
  await clock.advance(600_000)
  for (const fence of [7, 9]) telemetry.unreadable(fence)
  expect(of('share-unreadable').map(({ fence }) => fence)).toEqual([7, 9])
  expect(telemetry.sample().unreadable).toBe(4)
})

test('a new token that is refused while hosts ask by themselves is logged with the host that obtained it', () => {
  const { of, telemetry } = observed()
  telemetry.rejected(59_000, null)
  telemetry.rejected(61_000, 'web-7')
  expect(of('share-contention')).toEqual([])
  telemetry.rejected(59_000, 'web-7')
  telemetry.rejected(59_000, 'web-7')
  expect(of('share-contention')).toMatchObject([{ ageMs: 59_000, by: 'web-7' }])
})
