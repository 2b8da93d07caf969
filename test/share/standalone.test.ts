// A host whose store is away: when it asks by itself, and what becomes of what it obtained when the store is back.
import fc from 'fast-check'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { afterPlanned, initialShareState } from '../../src/share/share-state.ts'
import { StoreError } from '../../src/share/store.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import {
  createShareWorld,
  eventsOf,
  NOTHING_KNOWN,
  refresh,
  reject,
  tokensOf,
  type Host,
  type ShareWorld,
} from '../support/share-world.ts'

const MINUTE_MS = 60_000
const DAY_MS = 86_400_000
const lost = new StoreError('lost', 'connect ECONNREFUSED')
const slow = new StoreError('slow', 'Command timed out')
const busy: ServiceOutcome = {
  kind: 'transient',
  reason: 'rate-limited',
  detail: '429',
  status: 429,
  retryAfterMs: 10 * MINUTE_MS,
}

let world: ShareWorld
const start = (options?: Parameters<typeof createShareWorld>[0]): void => {
  world = createShareWorld(options)
  onTestFinished(() => world.stop())
}
beforeEach(() => start())
const settle = (): Promise<void> => world.clock.advance(1_000)

describe('the spread', () => {
  const now = 1_000_000
  const spreadMs = (hosts: number | null, isUrgent: boolean, usableUntilMs: number | null): number => {
    const state = initialShareState({ ...NOTHING_KNOWN, hosts })
    return afterPlanned(state, { isUrgent, drawn: 0 }, { usableUntilMs, nowMs: now }).spreadMs
  }

  test('is four fifths of what is left of the token, and at most a minute for one that was reported as refused', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: DAY_MS }), fc.boolean(), (leftMs, isUrgent) => {
        const spread = spreadMs(null, isUrgent, now + leftMs)
        expect(spread).toBeLessThanOrEqual(isUrgent ? Math.min(MINUTE_MS, 0.8 * leftMs) : 0.8 * leftMs)
        expect(spread).toBeGreaterThanOrEqual(Math.min(30_000, 0.8 * leftMs))
      }),
    )
  })

  test.each([
    [1, 1_000],
    [10, 1_000],
    [214, 21_400],
    [1_000, 100_000],
    [10_000, 300_000],
    [null, 10_000],
  ])('without a token is over the %s hosts of the fleet: %d ms', (hosts, withinMs) => {
    for (const usableUntilMs of [null, now]) expect(spreadMs(hosts, false, usableUntilMs)).toBe(withinMs)
  })
})

describe('while the store is away', () => {
  test('a token that was reported as refused is asked for within a minute, however long it would live', async () => {
    start({ lifeSeconds: DAY_MS / 1_000 })
    const hosts = world.hosts(20)
    await world.clock.advance(5 * MINUTE_MS)
    world.server.fail(lost)
    await world.clock.advance(MINUTE_MS)
    for (const host of hosts) reject(host)
    await world.clock.advance(MINUTE_MS)
    expect(world.asked).toHaveLength(21)
    const seconds = world.asked.slice(1).map(({ atMs }) => Math.floor(atMs / 1_000))
    expect(new Set(seconds).size).toBeGreaterThan(10)
  })

  test('a plan that was made before the report does not hold it up', async () => {
    start({ lifeSeconds: DAY_MS / 1_000 })
    const [host] = world.hosts(1)
    await settle()
    world.server.fail(lost)
    host?.keeper.need(DAY_MS - 1)
    await settle()
    expect(eventsOf(host as Host, 'share-alone')[0]?.['spreadMs']).toBeGreaterThan(10 * 3_600_000)
    reject(host as Host)
    await world.clock.advance(MINUTE_MS + 15_000)
    expect(world.asked.length).toBe(2)
  })

  test('a store that hangs is away after two of share.timeout, also for hosts that wait for another', async () => {
    start({ lifeSeconds: 60 })
    const hosts = world.hosts(20)
    await settle()
    const gate = world.gate()
    world.answer(() => gate.passed.then(() => world.token()))
    await world.clock.advance(32_000)
    expect(world.asked).toHaveLength(2)
    world.server.fail(slow)
    await world.clock.advance(2_000)
    const waiting = hosts.filter(({ name }) => name !== world.asked[1]?.host)
    for (const host of waiting) expect(eventsOf(host, 'share-slow')).toHaveLength(1)
    gate.open()
    await world.clock.advance(25_000)
    const seconds = world.asked.slice(2).map(({ atMs }) => Math.floor(atMs / 1_000))
    expect(seconds.length).toBeGreaterThanOrEqual(18)
    const fullest = Math.max(...seconds.map((one) => seconds.filter((other) => other === one).length))
    expect(fullest).toBeLessThanOrEqual(6)
    expect(hosts.every((host) => host.token() !== null)).toBe(true)
  })
})

describe('an operator who joins an attempt that waits for another host', () => {
  test('is answered by a request when the store goes away, not put off', async () => {
    const hosts = world.hosts(2)
    await settle()
    const gate = world.gate()
    onTestFinished(() => gate.open())
    world.answer((host) => (host === 'host-1' ? gate.passed.then(() => world.token()) : world.token()))
    await world.clock.advance(2 * MINUTE_MS)
    void refresh(hosts[0] as Host)
    reject(hosts[1] as Host)
    await settle()
    expect(hosts[1]?.keeper.state().inFlight).not.toBeNull()
    const refreshed = refresh(hosts[1] as Host)
    await settle()
    world.server.fail(lost)
    await world.clock.advance(3_000)
    expect(await refreshed).toMatchObject({ kind: 'ok' })
    expect(world.asked.at(-1)).toMatchObject({ host: 'host-2', cause: 'operator' })
  })
})

describe('when the store is back', () => {
  test('a failure in it displaces no newer token, and its Retry-After still holds', async () => {
    const [one, other] = world.hosts(2)
    await settle()
    world.server.fail(lost, 'host-2')
    await refresh(other as Host)
    const newest = other?.token()
    await world.clock.advance(5_000)
    world.answer(() => busy)
    await refresh(one as Host)
    world.server.fail(null, 'host-2')
    await world.clock.advance(35_000)
    expect(tokensOf([one, other] as Host[])).toEqual([newest])
    for (const host of [one, other]) reject(host as Host)
    await world.clock.advance(9 * MINUTE_MS)
    expect(world.asked).toHaveLength(3)
    const late = world.host()
    await settle()
    expect(late.token()).toBe(newest)
  })

  test('a refusal in it that is newer than the token of a host counts, and an older one does not', async () => {
    const [one, other] = world.hosts(2)
    await settle()
    world.server.fail(lost, 'host-2')
    world.answer(() => ({ kind: 'permanent', reason: 'account-inactive', detail: 'inactive', status: 500 }))
    await refresh(one as Host)
    await world.clock.advance(5_000)
    world.answer(() => world.token())
    await refresh(other as Host)
    world.server.fail(null, 'host-2')
    await world.clock.advance(35_000)
    expect(tokensOf([one, other] as Host[])).toEqual([other?.token()])
    expect(one?.keeper.state().objection).toBeNull()
  })

  test('of two tokens that hosts obtained alone the later one wins, whichever host is back first', async () => {
    const [one, two, three] = world.hosts(3)
    await settle()
    world.server.fail(lost)
    await refresh(one as Host)
    await world.clock.advance(2_000)
    await refresh(two as Host)
    const newest = two?.token()
    world.server.fail(lost, 'host-2')
    world.server.fail(null)
    await world.clock.advance(20_000)
    world.server.fail(null, 'host-2')
    await world.clock.advance(35_000)
    expect(tokensOf([one, two, three] as Host[])).toEqual([newest])
    expect(world.asked).toHaveLength(3)
  })
})

describe('the age of a record', () => {
  const opaque = (): ServiceOutcome => ({ kind: 'ok', accessToken: `opaque-${world.asked.length}` })
  const outage: ServiceOutcome = { kind: 'transient', reason: 'server-error', detail: '503', status: 503 }

  test('over this host’s refresh.maxAge leaves the failure alone of a failure with a token', async () => {
    world.answer(opaque)
    const [host] = world.hosts(1)
    await settle()
    await world.clock.advance(5 * MINUTE_MS)
    world.answer(() => outage)
    await refresh(host as Host)
    const late = world.host({ maxAgeMs: MINUTE_MS })
    await world.clock.advance(100)
    expect(late.token()).toBeNull()
    expect(late.keeper.state().failure).toMatchObject({
      reason: 'server-error',
      askedBy: 'host-1',
      attempts: 1,
    })
    expect(host?.token()).not.toBeNull()
  })

  test('over this host’s refresh.maxAge has a token asked for, for all', async () => {
    world.answer(opaque)
    const [host] = world.hosts(1)
    await world.clock.advance(5 * MINUTE_MS)
    const late = world.host({ maxAgeMs: MINUTE_MS })
    await settle()
    expect(late.keeper.state().failure).toBeNull()
    expect(tokensOf([host as Host, late])).toEqual(['opaque-2'])
  })

  test('in a store whose clock was set back by days is counted on, and all agree as before', async () => {
    const hosts = world.hosts(2)
    await world.clock.advance(20 * MINUTE_MS)
    world.jumpStore(-3 * DAY_MS)
    await world.clock.advance(MINUTE_MS)
    expect(world.asked).toHaveLength(1)
    const late = world.host()
    await world.clock.advance(30 * MINUTE_MS)
    expect(tokensOf([...hosts, late])).toHaveLength(1)
    expect(world.asked).toHaveLength(2)
    expect(world.server.record()?.fence).toBeLessThan(world.clock.now().wallMs - 2 * DAY_MS)
  })

  test('in a store whose clock was set back by less than that is corrected by the hosts that know the record', async () => {
    const hosts = world.hosts(3)
    await world.clock.advance(30 * MINUTE_MS)
    world.jumpStore(-10 * MINUTE_MS)
    const before = world.server.record()?.fence ?? 0
    await world.clock.advance(16_000)
    const late = world.host()
    await settle()
    const left = ({ keeper }: Host): number =>
      (keeper.state().token?.expiresAtMs ?? Infinity) - keeper.now().bootMs
    for (const host of [...hosts, late]) expect(left(host)).toBeLessThanOrEqual(30 * MINUTE_MS)
    expect(left(late)).toBeGreaterThan(29 * MINUTE_MS)
    expect(tokensOf([...hosts, late])).toHaveLength(1)
    // Once, and not by each of them.
    expect(world.server.record()?.fence).toBe(before + 1)
    expect(world.asked).toHaveLength(1)
  })

  test.each([
    [30, 'a record', 0],
    // Its wait is over then, too.
    [50, 'the record of a failure', 1],
  ])(
    'in a store whose clock was set back is that of its JWT, after %i min in %s',
    async (minutes, _, requests) => {
      world.hosts(1)
      await settle()
      world.answer(() => outage)
      await world.clock.advance(minutes * MINUTE_MS)
      world.server.push(false)
      world.jumpStore(-DAY_MS)
      const before = world.asked.length
      const late = world.host()
      await settle()
      const { token } = late.keeper.state()
      const leftMs = (token?.expiresAtMs ?? Infinity) - late.keeper.now().bootMs
      expect(leftMs).toBeLessThanOrEqual((60 - minutes) * MINUTE_MS)
      expect(world.asked).toHaveLength(before + requests)
    },
  )
})

describe('a host that is stopped', () => {
  test('gives its lease back, so that another asks at once, and has closed its connection for pushes', async () => {
    const hosts = world.hosts(2)
    await settle()
    const gate = world.gate()
    const aborted = { kind: 'transient', reason: 'network', detail: 'The request was given up' } as const
    world.answer((host) => (host === 'host-1' ? gate.passed.then(() => aborted) : world.token()))
    void refresh(hosts[0] as Host)
    await settle()
    const stopped = hosts[0]?.stop()
    await settle()
    gate.open()
    await stopped
    expect(world.server.listeners()).toBe(1)
    const before = world.asked.length
    reject(hosts[1] as Host)
    await settle()
    expect(world.asked).toHaveLength(before + 1)
  })
})
