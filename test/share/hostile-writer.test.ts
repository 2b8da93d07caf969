// A process that may write to the store and does not know the secret: it plants no token and no refusal, and holds no host up for long.
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import type { SealedRecord } from '../../src/share/store.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { phaseOf } from '../../src/token/state.ts'
import { failures } from '../support/failures.ts'
import {
  createShareWorld,
  eventsOf,
  refresh,
  reject,
  tokensOf,
  type Host,
  type ShareWorld,
} from '../support/share-world.ts'

const MINUTE_MS = 60_000
const noRoute: ServiceOutcome = { kind: 'transient', reason: 'network', detail: 'connect EHOSTUNREACH' }

let world: ShareWorld
beforeEach(() => {
  world = createShareWorld()
  onTestFinished(() => world.stop())
})
const settle = (): Promise<void> => world.clock.advance(1_000)
const planted = (): SealedRecord => {
  const nowMs = world.clock.now().wallMs
  const sealed = Buffer.from('x'.repeat(200)).toString('base64')
  return { fence: nowMs + 1_000, atMs: nowMs, notBeforeMs: 0, sealed }
}

describe('a writer to the store without the secret', () => {
  test('changes no token; it is logged once, and the next rotation overwrites it', async () => {
    const hosts = world.hosts(3)
    await settle()
    const before = hosts[0]?.token()
    world.server.plant(planted())
    await world.clock.advance(20_000)
    expect(tokensOf(hosts)).toEqual([before])
    for (const host of hosts) {
      expect(eventsOf(host, 'share-unreadable')).toHaveLength(1)
      expect(host.share.sample().unreadable).toBeGreaterThan(0)
    }
    await refresh(hosts[0] as Host)
    await settle()
    expect(tokensOf(hosts)).toHaveLength(1)
    expect(hosts[0]?.token()).not.toBe(before)
  })

  test('cannot move a good box to a higher fence, also where a host missed its push', async () => {
    const hosts = world.hosts(3)
    await settle()
    const old = world.server.record()
    world.server.push(false)
    await refresh(hosts[0] as Host)
    world.server.plant({ ...old!, fence: (world.server.record()?.fence ?? 0) + 10 })
    const newest = hosts[0]?.token()
    await world.clock.advance(40_000)
    expect(hosts[0]?.token()).toBe(newest)
    expect(hosts.every((host) => eventsOf(host, 'share-unreadable').length > 0)).toBe(true)
  })

  test('cannot make a restarted host go back, which remembers the newest fence', async () => {
    const first = world.host()
    await settle()
    const old = world.server.record()
    await refresh(first)
    const resumeState = { ...first.share.resumeState(), adoptedFence: 0 }
    await first.stop()
    world.server.plant(old!)
    const restarted = world.host({ resumeState })
    await settle()
    expect(restarted.token()).not.toBeNull()
    expect(world.asked).toHaveLength(3)
  })

  test.each(['a pause that opens', 'garbage'])('holds no host up with %s, for ten years', async (what) => {
    world.answer(() => noRoute)
    const [one] = world.hosts(1)
    await settle()
    const old = world.server.pause()
    world.answer(() => world.token())
    await world.clock.advance(MINUTE_MS)
    const others = world.hosts(1)
    await settle()
    const before = world.asked.length
    world.server.plantHold({ pause: what === 'garbage' ? planted() : (old as SealedRecord) })
    await world.clock.advance(41 * MINUTE_MS)
    expect(world.asked.length).toBe(before + 1)
    expect(tokensOf([one as Host, ...others])).toHaveLength(1)
    expect(eventsOf(one as Host, 'share-lost')).toEqual([])
  })

  test('holds a client’s report up for no longer than the pace of reports', async () => {
    const [host] = world.hosts(2)
    await settle()
    world.server.push(false)
    world.server.plantHold({ isPaced: true })
    await world.clock.advance(MINUTE_MS)
    reject(host as Host)
    await world.clock.advance(31_000)
    expect(world.asked.map(({ cause }) => cause)).toEqual(['start', 'client'])
    // The next pace is another one, and counts from when it is seen.
    world.server.plantHold({ isPaced: true })
    await world.clock.advance(2 * MINUTE_MS)
    reject(host as Host)
    await world.clock.advance(25_000)
    expect(world.asked).toHaveLength(2)
    await world.clock.advance(6_000)
    expect(world.asked).toHaveLength(3)
  })

  test('holds no host up with a lease for longer than two requests, and then it is overwritten', async () => {
    const hosts = world.hosts(3)
    await settle()
    world.server.plantHold({ lease: 'mallory/1' })
    const refreshed = refresh(hosts[0] as Host)
    await world.clock.advance(29_000)
    expect(world.asked).toHaveLength(1)
    await world.clock.advance(2_500)
    expect(await refreshed).toMatchObject({ kind: 'ok' })
    expect(world.asked).toHaveLength(2)
    await refresh(hosts[1] as Host)
    expect(world.asked).toHaveLength(3)
    expect(tokensOf(hosts)).toHaveLength(1)
    expect(eventsOf(hosts[0] as Host, 'share-lost')).toEqual([])
  })

  test('that takes another lease each second keeps no operator waiting for longer than two leases', async () => {
    const [host] = world.hosts(1)
    await settle()
    const refreshed = refresh(host as Host)
    for (let second = 0; second < 36; second += 1) {
      world.server.plantHold({ lease: `mallory/${second}` })
      await world.clock.advance(1_000)
    }
    expect(await refreshed).toMatchObject({ kind: 'ok' })
  })

  test('that plants a record during each request makes no host drop its token, and all agree again', async () => {
    const hosts = world.hosts(3)
    await settle()
    world.answer(() => {
      world.server.plant(planted())
      return world.token()
    })
    for (const host of hosts) expect(await refresh(host)).toMatchObject({ kind: 'ok' })
    expect(world.asked).toHaveLength(4)
    world.answer(() => world.token())
    await world.clock.advance(MINUTE_MS)
    expect(tokensOf(hosts)).toHaveLength(1)
    expect(world.asked).toHaveLength(4)
  })

  test.each([40, 120])('that takes a lease each second lets no token of %i s expire', async (life) => {
    const short = createShareWorld({ lifeSeconds: life })
    onTestFinished(() => short.stop())
    const hosts = short.hosts(4)
    await short.clock.advance(1_000)
    let without = 0
    for (let second = 0; second < 900; second += 1) {
      short.server.plantHold({ lease: `mallory/${second}` })
      await short.clock.advance(1_000)
      without += hosts.filter((host) => host.token() === null).length
    }
    expect(without).toBe(0)
  })

  test('refuses no host with an old refusal, nor one whose kept fence is higher', async () => {
    world.answer(() => failures.inactive)
    const hosts = world.hosts(2)
    await settle()
    const refusal = world.server.record()
    world.answer(() => world.token())
    await refresh(hosts[0] as Host)
    await settle()
    const [held] = tokensOf(hosts)
    const resumeState = hosts[1]!.share.resumeState()
    world.server.plant(refusal!)
    for (const host of hosts) reject(host)
    await world.clock.advance(MINUTE_MS)
    expect(hosts.map(({ keeper }) => phaseOf(keeper.state(), keeper.now()))).toEqual(['ready', 'ready'])
    expect(tokensOf(hosts)).not.toContain(held)
    world.server.plant(refusal!)
    const restarted = world.host({ resumeState, state: { ...hosts[1]!.keeper.state(), inFlight: null } })
    await world.clock.advance(MINUTE_MS)
    expect(phaseOf(restarted.keeper.state(), restarted.keeper.now())).toBe('ready')
  })

  test('with a fence of the far future counts as not there: it is overwritten, and logged once', async () => {
    const hosts = world.hosts(2)
    await settle()
    world.server.plant({ ...planted(), fence: 2 ** 53 })
    await world.clock.advance(41 * MINUTE_MS)
    expect(tokensOf(hosts)).toHaveLength(1)
    expect(world.asked).toHaveLength(2)
    expect(world.server.record()?.fence).toBeLessThan(2 ** 50)
    for (const host of hosts) expect(eventsOf(host, 'share-lost')).toEqual([])
  })
})
