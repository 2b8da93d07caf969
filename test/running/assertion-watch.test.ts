// A ready-made assertion and the keeper: how often its file is read, and what a renewal does to a refusal.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { createAssertionWatch } from '../../src/running/assertion-watch.ts'
import { refusalOf } from '../../src/token/state.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { jwtOf } from '../support/jwt.ts'
import { runningKeeper } from '../support/keeper-world.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const MINUTE_MS = 60_000
const invalidClient = {
  kind: 'permanent',
  reason: 'account-not-found',
  detail: 'no such client',
  status: 401,
  says: 'invalid_client',
} as const satisfies FetchOutcome

async function startWorld(first: FetchOutcome) {
  const file = join(await tempDirectory(), 'svid')
  const clock = createFakeClock()
  let renewals = 0
  const renew = (): void => {
    const exp = Math.floor(clock.now().wallMs / 1_000) + 3_600
    writeFileSync(file, jwtOf({ exp }, (renewals += 1)), { mode: 0o600 })
  }
  renew()
  const world = await runningKeeper({ clock, first })
  const service = { assertion: { file } } as never
  const watch = createAssertionWatch({ config: () => ({ service }), keeper: world.keeper })
  /** Time passes, with the ticks of the daemon. */
  async function pass(ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= 15_000) {
      await watch.tick()
      await clock.advance(15_000)
    }
    await watch.tick()
    await clock.settle()
  }
  return { ...world, renew, pass }
}

test('the first renewal that comes 5 min after a refusal of the preset has the service asked once more', async () => {
  const world = await startWorld(invalidClient)
  expect(world.asked()).toBe(1)
  await world.pass(4 * MINUTE_MS)
  world.renew()
  await world.pass(4 * MINUTE_MS)
  expect(world.asked()).toBe(1)
  world.renew()
  await world.pass(MINUTE_MS)
  expect(world.asked()).toBe(2)
  // A second refusal stands.
  for (let renewal = 0; renewal < 5; renewal += 1) {
    world.renew()
    await world.pass(10 * MINUTE_MS)
  }
  expect(world.asked()).toBe(2)
  expect(refusalOf(world.keeper.state())).toMatchObject({ isAskedAgain: true })
})

test('a token that the renewal brings ends the refusal, and the next one begins anew', async () => {
  const world = await startWorld(invalidClient)
  await world.pass(6 * MINUTE_MS)
  world.answer(world.token)
  world.renew()
  await world.pass(MINUTE_MS)
  expect(world.asked()).toBe(2)
  world.answer(invalidClient)
  void world.keeper.refresh(new AbortController().signal)
  await world.pass(6 * MINUTE_MS)
  expect(world.asked()).toBe(3)
  expect(refusalOf(world.keeper.state())?.isAskedAgain).toBeUndefined()
  world.renew()
  await world.pass(MINUTE_MS)
  expect(world.asked()).toBe(4)
})

test('a refusal by another row stands whatever is renewed', async () => {
  const world = await startWorld({ ...invalidClient, status: 404, says: 'Account not found' })
  await world.pass(6 * MINUTE_MS)
  world.renew()
  await world.pass(6 * MINUTE_MS)
  expect(world.asked()).toBe(1)
})

test('one that is not good is read every 15 s, counts as no request, and is no reason to wait longer', async () => {
  const missing = { kind: 'transient', reason: 'assertion', detail: 'The file x is not there' } as const
  let good = false
  let read = 0
  const asked: number[] = []
  const clock = createFakeClock()
  const world = await runningKeeper({
    clock,
    async fetchToken(_signal, { beforeRequest }) {
      read += 1
      if (!good) return missing
      await beforeRequest()
      asked.push(clock.now().bootMs)
      return { kind: 'transient', reason: 'server-error', detail: '503' }
    },
  })
  await clock.advance(10 * MINUTE_MS)
  expect(read).toBe(41)
  expect(world.keeper.state()).toMatchObject({ requests: 0, failure: { reason: 'assertion', attempts: 1 } })
  good = true
  await clock.advance(20_000)
  expect(world.keeper.state().failure?.reason).toBe('server-error')
  // The first delay after a failure, and not that after 41 of them.
  expect(asked[1]! - asked[0]!).toBeLessThanOrEqual(2_000)
})
