// One token for a fleet: who asks, who waits, who takes over, and what every loss, act and race leads to;
// real keepers on a fake clock.
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { StoreError } from '../../src/share/store.ts'
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

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const outage: ServiceOutcome = { kind: 'transient', reason: 'server-error', detail: '503', status: 503 }
const busy: ServiceOutcome = {
  kind: 'transient',
  reason: 'rate-limited',
  detail: '429',
  status: 429,
  retryAfterMs: 10 * MINUTE,
}
const lost = new StoreError('lost', 'connect ECONNREFUSED')

let world: ShareWorld
const start = (options?: Parameters<typeof createShareWorld>[0]): void => {
  world = createShareWorld(options)
  onTestFinished(() => world.stop())
}
beforeEach(() => start())
const settle = (): Promise<void> => world.clock.advance(SECOND)
const phases = (hosts: readonly Host[]): string[] => [
  ...new Set(hosts.map(({ keeper }) => phaseOf(keeper.state(), keeper.now()))),
]
/** The requests in the fullest second. */
const peak = (asked: ShareWorld['asked']): number => {
  const seconds = asked.map(({ atMs }) => Math.floor(atMs / SECOND))
  return Math.max(0, ...seconds.map((one) => seconds.filter((other) => other === one).length))
}

describe('a fleet', () => {
  test('of 20 hosts asks once for the boot and once for each rotation', async () => {
    const hosts = world.hosts(20)
    await settle()
    expect(world.asked).toHaveLength(1)
    await world.clock.advance(3 * HOUR)
    expect(tokensOf(hosts)).toHaveLength(1)
    expect(world.asked.length).toBeGreaterThanOrEqual(5)
    expect(world.asked.length).toBeLessThanOrEqual(6)
    expect(hosts.flatMap((host) => eventsOf(host, 'share-lost'))).toEqual([])
    expect(hosts[0]?.share.status()).toMatchObject({ state: 'connected', hosts: 20, lastError: null })
  })

  test('whose clocks are an hour apart sees the expiry at one moment, also on a late host', async () => {
    const hosts = [-HOUR, -SECOND, 0, SECOND, HOUR].map((clockAheadMs) => world.host({ clockAheadMs }))
    await world.clock.advance(10 * MINUTE)
    hosts.push(world.host())
    await settle()
    expect(world.asked).toHaveLength(1)
    const left = hosts.map(({ keeper }) => (keeper.state().token?.expiresAtMs ?? 0) - keeper.now().bootMs)
    expect(Math.max(...left) - Math.min(...left)).toBeLessThanOrEqual(SECOND)
    expect(left[0]).toBeGreaterThan(49 * MINUTE)
  })

  test('that misses every message has the new token on each host within 15 s', async () => {
    const hosts = world.hosts(3)
    await settle()
    world.server.push(false)
    await refresh(hosts[0]!)
    await world.clock.advance(15 * SECOND)
    expect(tokensOf(hosts)).toHaveLength(1)
    expect(world.asked).toHaveLength(2)
    expect(hosts.map(({ share }) => share.sample().outcomes)).toEqual([
      { asked: 2, adopted: 0, alone: 0 },
      { asked: 0, adopted: 2, alone: 0 },
      { asked: 0, adopted: 2, alone: 0 },
    ])
    expect(eventsOf(hosts[1]!, 'share-adopted').at(-1)).toMatchObject({ level: 'debug', by: 'host-1' })
  })

  test('is not kept busy by messages: each host looks at most four times a second', async () => {
    const hosts = world.hosts(2)
    await settle()
    let looks = 0
    world.server.onStep = () => (looks += 1)
    for (let count = 0; count < 1_000; count += 1) {
      world.server.message()
      await world.clock.advance(10)
    }
    expect(looks).toBeLessThanOrEqual(hosts.length * (4 * 10 + 2))
  })

  test('has two hosts of one name like any others', async () => {
    const hosts = [world.host({ host: 'same' }), world.host({ host: 'same' })]
    await settle()
    await refresh(hosts[0]!)
    await refresh(hosts[1]!)
    await settle()
    expect(world.asked).toHaveLength(3)
    expect(tokensOf(hosts)).toHaveLength(1)
  })
})

describe('a failure of the service', () => {
  test('for ten minutes costs at most 13 requests a minute, and one when it is over', async () => {
    const hosts = world.hosts(20)
    await settle()
    world.answer(() => outage)
    await world.clock.advance(41 * MINUTE)
    for (const host of hosts) reject(host)
    for (let minute = 0; minute < 10; minute += 1) {
      const before = world.asked.length
      await world.clock.advance(MINUTE)
      expect(world.asked.length - before).toBeLessThanOrEqual(13)
    }
    world.answer(() => world.token())
    const before = world.asked.length
    await world.clock.advance(MINUTE)
    expect(world.asked).toHaveLength(before + 1)
    expect(phases(hosts)).toEqual(['ready'])
  })

  test('with Retry-After holds for all: none asks before, not even for reports', async () => {
    const hosts = world.hosts(5)
    await settle()
    world.answer(() => busy)
    await refresh(hosts[0]!)
    for (const host of hosts) reject(host)
    await world.clock.advance(10 * MINUTE - 5 * SECOND)
    expect(world.asked).toHaveLength(2)
    world.answer(() => world.token())
    await world.clock.advance(MINUTE)
    expect(world.asked).toHaveLength(3)
    expect(tokensOf(hosts)).toHaveLength(1)
  })

  test('with Retry-After holds for all after a flush: the host that got it writes it again', async () => {
    const hosts = world.hosts(5)
    await settle()
    world.answer(() => busy)
    await refresh(hosts[0]!)
    await settle()
    const wait = world.server.text('lease')
    world.server.flush()
    world.server.message()
    await settle()
    for (const host of hosts) reject(host)
    await world.clock.advance(10 * MINUTE - 10 * SECOND)
    expect(world.asked).toHaveLength(2)
    expect(world.server.text('lease')?.split(' ', 2)).toEqual(wait?.split(' ', 2))
    expect(hosts.map((host) => eventsOf(host, 'share-repaired').length > 0)).toContain(true)
    world.answer(() => world.token())
    await world.clock.advance(MINUTE)
    expect(world.asked).toHaveLength(3)
    // The wait that is over is not written again.
    world.server.flush()
    world.server.message()
    await settle()
    expect(world.server.text('lease')).toBeNull()
  })

  test('with Retry-After is bypassed by an operator on the host that got it, too', async () => {
    const hosts = world.hosts(3)
    await settle()
    world.answer(() => busy)
    for (const host of [hosts[0]!, hosts[0]!, hosts[1]!]) {
      expect(await refresh(host)).toMatchObject({ kind: 'transient', reason: 'rate-limited' })
      await settle()
    }
    expect(world.asked).toHaveLength(4)
    expect(hosts.flatMap((host) => eventsOf(host, 'share-lost'))).toEqual([])
    await world.clock.advance(9 * MINUTE)
    expect(world.asked).toHaveLength(4)
  })

  test('with Retry-After that one host got alone holds for all when the store is back', async () => {
    const hosts = world.hosts(3)
    await settle()
    world.server.fail(lost)
    world.answer(() => busy)
    await refresh(hosts[0]!)
    world.server.fail(null)
    world.server.message()
    await settle()
    for (const host of hosts) reject(host)
    await world.clock.advance(10 * MINUTE - 10 * SECOND)
    expect(world.asked).toHaveLength(2)
  })

  test('with Retry-After keeps its end when the clock of the store is set back', async () => {
    const hosts = world.hosts(3)
    await settle()
    world.answer(() => busy)
    await refresh(hosts[0]!)
    await settle()
    world.jumpStore(-5 * MINUTE)
    await world.clock.advance(31 * SECOND)
    for (const host of hosts.slice(1)) reject(host)
    await world.clock.advance(9 * MINUTE)
    expect(world.asked).toHaveLength(2)
  })

  test('that people must know of is told to them by one host, though hosts ask in turn', async () => {
    const hosts = world.hosts(3)
    await settle()
    world.answer(() => failures.rejected)
    await refresh(hosts[0]!)
    await world.clock.advance(120 * MINUTE)
    const objections = hosts.flatMap(({ keeper }) => keeper.state().objection ?? [])
    expect(objections).toHaveLength(3)
    expect(objections.filter(({ askedBy }) => askedBy === null)).toHaveLength(1)
  })

  test('that is the way of one host leaves the request to another after 5 s', async () => {
    world.answer((host) => (host === 'host-1' ? failures.network : world.token()))
    const hosts = world.hosts(3)
    await settle()
    expect(world.asked.map(({ host }) => host)).toEqual(['host-1'])
    expect(hosts[1]?.keeper.state().postponement).toMatchObject({ reason: 'network', askedBy: 'host-1' })
    await world.clock.advance(6 * SECOND)
    expect(world.asked.map(({ host }) => host)).toEqual(['host-1', expect.not.stringContaining('host-1')])
    expect(tokensOf(hosts)).toHaveLength(1)
  })
})

describe('a refusal', () => {
  test('is one request; who comes within the hour takes it, who comes later asks once for all', async () => {
    const says = 'is not active'
    world.answer(() => ({ ...failures.inactive, says }))
    const hosts = world.hosts(8)
    await settle()
    expect(world.asked).toHaveLength(1)
    expect(phases(hosts)).toEqual(['refused'])
    await world.clock.advance(10 * MINUTE)
    hosts.push(world.host())
    await settle()
    const [first] = hosts
    const state = first!.keeper.state()
    await first!.stop()
    const again = world.host({ host: 'host-1', state: { ...state, next: { cause: 'start', atMs: 0 } } })
    await settle()
    for (const { keeper } of [...hosts, again]) expect(keeper.state().objection).toMatchObject({ says })
    expect(phases([...hosts, again])).toEqual(['refused'])
    expect(world.asked).toHaveLength(1)
    await world.clock.advance(2 * HOUR)
    expect(world.asked).toHaveLength(1)
    hosts.push(world.host(), world.host())
    await settle()
    expect(world.asked).toHaveLength(2)
    expect(phases([...hosts.slice(1), again])).toEqual(['refused'])
  })

  test('is lifted for all by one operator', async () => {
    world.answer(() => failures.inactive)
    const hosts = world.hosts(5)
    await settle()
    world.answer(() => world.token())
    expect(await refresh(hosts[3]!)).toMatchObject({ kind: 'ok' })
    await settle()
    expect(world.asked).toHaveLength(2)
    expect(tokensOf(hosts)).toHaveLength(1)
    expect(phases(hosts)).toEqual(['ready'])
  })
})

describe('an answer that may concern one host only', () => {
  const refused: ServiceOutcome = { ...failures.inactive, says: 'is not active' }

  test.each([
    ['is on no list of addresses', failures.rejected, false],
    ['has a certificate that is refused', refused, true],
  ])(
    'costs the others nothing: 20 hosts, of which one %s, have tokens for three hours',
    async (_which, answer, hasOwnProof) => {
      world.answer((name) => (name === 'host-1' ? answer : world.token()))
      const hosts = world.hosts(20, { hasOwnProof })
      await world.clock.advance(7 * SECOND)
      expect(world.asked).toHaveLength(2)
      for (let minute = 0; minute < 180; minute += 1) {
        await world.clock.advance(MINUTE)
        if (minute % 50 === 0) reject(hosts[0]!)
        expect(tokensOf(hosts)).not.toContain(null)
      }
      expect(tokensOf(hosts)).toHaveLength(1)
      // Two or three rotations an hour; what host-1 asks in vain keeps to the pace of its own failure.
      const own = world.asked.filter(({ host }) => host === 'host-1')
      expect(world.asked.length - own.length).toBeLessThanOrEqual(10)
      expect(own.length).toBeLessThanOrEqual(180 / 5)
      expect(phases(hosts.slice(1))).toEqual(['ready'])
    },
  )

  test.each([
    ['refusal', refused, 'refused'],
    ['rejection', failures.rejected, 'starting'],
  ])(
    'is two requests when it is a %s of all 20 hosts, and one notifies people',
    async (_what, answer, phase) => {
      world.answer(() => answer)
      const hosts = world.hosts(20, { hasOwnProof: true })
      await world.clock.advance(4 * MINUTE)
      expect(world.asked).toHaveLength(2)
      expect(phases(hosts)).toEqual([phase])
      const objections = hosts.flatMap(({ keeper }) => keeper.state().objection ?? [])
      expect(objections.filter(({ askedBy }) => askedBy === null)).toHaveLength(1)
    },
  )

  test('is two requests, too, when the hosts that may confirm it come to a slow store at once', async () => {
    for (let seed = 1; seed <= 40; seed += 1) {
      start({ seed, lifeSeconds: 12 })
      world.hosts(20, { hasOwnProof: true, latencyMs: 5 * (1 + (seed % 40)) })
      await world.clock.advance(9 * SECOND + 100 * seed)
      world.answer(() => refused)
      const { length } = world.asked
      await world.clock.advance(MINUTE)
      expect([seed, world.asked.length - length]).toEqual([seed, 2])
    }
  })

  test('is confirmed by the next host that is due, up to an hour later, and nobody is woken for it', async () => {
    const hosts = world.hosts(3, { hasOwnProof: true })
    await settle()
    world.answer(() => refused)
    expect(await refresh(hosts[0]!)).toMatchObject({ kind: 'permanent' })
    await world.clock.advance(10 * MINUTE)
    expect(world.asked).toHaveLength(2)
    expect(phases(hosts.slice(1))).toEqual(['ready'])
    expect(hosts[1]!.keeper.state().postponement).toBeNull()
    await world.clock.advance(50 * MINUTE)
    expect(world.asked).toHaveLength(3)
    expect(phases(hosts)).toEqual(['refused'])
    // What holds for all is taken by a host that comes.
    const late = world.host({ hasOwnProof: true })
    await settle()
    expect(phases([late])).toEqual(['refused'])
    expect(world.asked).toHaveLength(3)
  })

  test('is not confirmed by its own host, nor by another failure', async () => {
    const hosts = world.hosts(3, { hasOwnProof: true })
    await settle()
    world.answer(() => refused)
    await refresh(hosts[0]!)
    await refresh(hosts[0]!)
    expect(hosts[0]!.share.sample().outcomes).toMatchObject({ asked: 3, alone: 0 })
    expect(hosts.flatMap((host) => eventsOf(host, 'share-lost'))).toEqual([])
    world.answer(() => failures.network)
    await refresh(hosts[1]!)
    await world.clock.advance(10 * SECOND)
    expect(phases(hosts.slice(1)).toSorted()).toEqual(['degraded', 'ready'])
    world.answer(() => refused)
    const before = world.asked.length
    await refresh(hosts[2]!)
    await settle()
    expect(phases(hosts)).toEqual(['refused'])
    expect(world.asked).toHaveLength(before + 1)
  })

  test('asks operators of all hosts to wait for two requests', async () => {
    const hosts = world.hosts(20, { hasOwnProof: true })
    await settle()
    const gate = world.gate()
    world.answer(() => gate.passed.then(() => refused))
    const acts = hosts.map(refresh)
    await settle()
    gate.open()
    await settle()
    expect((await Promise.all(acts)).map((outcome) => outcome?.kind)).toEqual(hosts.map(() => 'permanent'))
    expect(world.asked).toHaveLength(3)
  })

  test('holds at once for a host that is alone, and not for hosts of a cluster, which counts some', async () => {
    world.answer(() => refused)
    const host = world.host({ hasOwnProof: true })
    await settle()
    expect(world.server.text('record')).not.toBeNull()
    expect(phases([host])).toEqual(['refused'])
    start()
    world.answer(() => refused)
    world.host({ hasOwnProof: true, cluster: true })
    await settle()
    expect(world.server.text('record')).toBeNull()
    expect(world.server.text('lease')).not.toBeNull()
  })

  test('that came while the store was lost does not hold for others when it is back', async () => {
    const hosts = world.hosts(3, { hasOwnProof: true })
    await settle()
    world.server.fail(lost)
    world.answer(() => refused)
    expect(await refresh(hosts[0]!)).toMatchObject({ kind: 'permanent' })
    world.server.fail(null)
    await world.clock.advance(16 * SECOND)
    expect(phases(hosts.slice(1))).toEqual(['ready'])
    world.answer(() => world.token())
    await world.clock.advance(HOUR)
    expect(phases(hosts)).toEqual(['ready'])
  })

  test('answers the operator, though another host had a token just before the act', async () => {
    const hosts = world.hosts(3, { hasOwnProof: true })
    await settle()
    world.server.push(false)
    await refresh(hosts[1]!)
    await settle()
    world.answer(() => refused)
    expect(await refresh(hosts[0]!)).toMatchObject({ kind: 'permanent' })
    await world.clock.advance(16 * SECOND)
    expect(phases(hosts)).toEqual(['ready'])
    expect(tokensOf(hosts)).toHaveLength(1)
  })

  test('outlives a restart of its host: it stays refused, asks once, and has the next token of the fleet', async () => {
    world.answer((name) => (name === 'host-1' ? refused : world.token()))
    const hosts = world.hosts(3, { hasOwnProof: true })
    await world.clock.advance(7 * SECOND)
    await refresh(hosts[0]!)
    const state = hosts[0]!.keeper.state()
    expect(phases(hosts.slice(0, 1))).toEqual(['refused'])
    await hosts[0]!.stop()
    const before = world.asked.length
    const again = world.host({
      host: 'host-1',
      hasOwnProof: true,
      state: { ...state, next: { cause: 'start', atMs: 0 } },
    })
    await world.clock.advance(7 * SECOND)
    expect(phases([again])).toEqual(['refused'])
    expect(world.asked).toHaveLength(before + 1)
    await refresh(hosts[1]!)
    await settle()
    expect(phases([again])).toEqual(['ready'])
  })
})

test('another certificate for the account in use, which is refused, holds for nobody else', async () => {
  const hosts = world.hosts(2, { hasOwnProof: true })
  await settle()
  world.answer(() => ({ ...failures.inactive, says: 'is not active' }))
  const rival = world.host({ hasOwnProof: true, isCertificateTrial: true })
  await settle()
  expect(phases([rival])).toEqual(['refused'])
  expect(phases(hosts)).toEqual(['ready'])
  expect(world.server.text('lease')).toBeNull()
  expect(world.asked).toHaveLength(2)
})

test('a host that cannot ask takes no lease: it says why, and has the token of another', async () => {
  let problem: string | null = 'The ready-made assertion has ended'
  const notReady = () =>
    Promise.resolve(
      problem === null ? null : ({ kind: 'transient', reason: 'assertion', detail: problem } as const),
    )
  const host = world.host({ notReady })
  await settle()
  expect(world.asked).toEqual([])
  expect(world.server.text('lease')).toBeNull()
  expect(host.keeper.state().failure).toMatchObject({ detail: problem })
  const other = world.host()
  await settle()
  expect(host.token()).toBe(other.token())
  await other.stop()
  problem = null
  await refresh(host)
  expect(world.asked.map(({ host: name }) => name)).toEqual(['host-2', 'host-1'])
})

describe('an operator', () => {
  test('who acts during a request is answered by a later one, which all who acted before share', async () => {
    const hosts = world.hosts(5)
    await settle()
    const gates = [world.gate(), world.gate()]
    let begun = 0
    world.answer(async () => {
      const number = begun
      begun += 1
      await gates[number]?.passed
      return world.token()
    })
    const acts = [refresh(hosts[0]!)]
    await settle()
    acts.push(...hosts.slice(1).map(refresh))
    await settle()
    gates[0]!.open()
    await settle()
    gates[1]!.open()
    expect((await Promise.all(acts)).map((outcome) => outcome?.kind)).toEqual(hosts.map(() => 'ok'))
    await settle()
    expect(world.asked).toHaveLength(3)
    expect(tokensOf(hosts)).toHaveLength(1)
  })

  test('goes through a wait that was there before, and is told of one that came after', async () => {
    const hosts = world.hosts(3)
    await settle()
    world.answer(() => busy)
    expect(await refresh(hosts[0]!)).toMatchObject({ kind: 'transient' })
    await settle()
    expect(await refresh(hosts[1]!)).toMatchObject({ kind: 'transient', reason: 'rate-limited' })
    expect(world.asked).toHaveLength(3)
    const gate = world.gate()
    world.answer(() => gate.passed.then(() => outage))
    await settle()
    const act = refresh(hosts[2]!)
    await settle()
    const other = refresh(hosts[0]!)
    await settle()
    gate.open()
    await settle()
    expect(await act).toMatchObject({ kind: 'transient', reason: 'server-error' })
    expect(await other).toMatchObject({ reason: 'server-error' })
    expect(world.asked.length).toBeLessThanOrEqual(5)
    world.answer(() => world.token())
    await world.clock.advance(11 * MINUTE)
    expect(phases(hosts)).toEqual(['ready'])
    expect(tokensOf(hosts)).toHaveLength(1)
  })

  test('whose request fails in another way leaves the wait that the service asked for', async () => {
    const hosts = world.hosts(3)
    await settle()
    world.answer(() => busy)
    await refresh(hosts[0]!)
    await settle()
    world.answer(() => failures.network)
    expect(await refresh(hosts[1]!)).toMatchObject({ reason: 'network' })
    for (const host of hosts) reject(host)
    await world.clock.advance(9 * MINUTE)
    expect(world.asked).toHaveLength(3)
    world.answer(() => world.token())
    await world.clock.advance(4 * MINUTE)
    expect(world.asked).toHaveLength(4)
    expect(phases(hosts)).toEqual(['ready'])
  })

  test('who acts while a lease does not end is answered after two, whatever came before', async () => {
    const hosts = world.hosts(2)
    await settle()
    world.server.push(false)
    await refresh(hosts[0]!)
    await settle()
    world.server.plant('lease', { text: '0123456789abcdef', keepMs: 10 * MINUTE })
    let steps = 0
    world.server.onStep = () => {
      steps += 1
      if (steps > 1_000) world.server.fail(lost)
    }
    const act = refresh(hosts[1]!)
    await world.clock.advance(40 * SECOND)
    expect(steps).toBeLessThan(100)
    expect(await act).toMatchObject({ kind: 'ok' })
    expect(world.asked).toHaveLength(3)
  })
})

describe('clients', () => {
  test('cause one request in 30 s, whichever hosts they report to', async () => {
    const hosts = world.hosts(10)
    await world.clock.advance(MINUTE)
    for (let round = 0; round < 12; round += 1) {
      for (const host of hosts) reject(host)
      await world.clock.advance(5 * SECOND)
    }
    expect(world.asked.length).toBeGreaterThanOrEqual(2)
    expect(world.asked.length).toBeLessThanOrEqual(4)
    expect(tokensOf(hosts)).toHaveLength(1)
  })
})

describe('an asker', () => {
  test.each(['dies', 'is paused'])(
    'that %s is waited for until its lease ends, by one host that then asks',
    async (how) => {
      const hosts = world.hosts(5)
      await settle()
      const gate = world.gate()
      onTestFinished(() => gate.open())
      world.answer((name) => (name === 'host-1' ? gate.passed.then(() => world.token()) : world.token()))
      void refresh(hosts[0]!)
      await settle()
      if (how === 'dies') hosts[0]!.kill()
      await world.clock.advance(31 * SECOND)
      for (const host of hosts.slice(1)) reject(host)
      await world.clock.advance(20 * SECOND)
      expect(world.asked).toHaveLength(3)
      gate.open()
      await world.clock.advance(20 * SECOND)
      expect(tokensOf(how === 'dies' ? hosts.slice(1) : hosts)).toHaveLength(1)
      expect(world.asked).toHaveLength(3)
    },
  )

  test.each([
    [20 * MINUTE, 2],
    [8 * SECOND, 2],
    [7 * SECOND, 1],
  ])(
    'that was suspended between lease and request for more than half of its time begins again: %i ms, %i times',
    async (suspendedMs, times) => {
      const host = world.host()
      await settle()
      let begun = 0
      const beforeRequest = (): Promise<void> => {
        begun += 1
        if (begun === 1) world.clock.suspend(suspendedMs)
        return Promise.resolve()
      }
      const { signal } = new AbortController()
      const outcome = await host.share.fetchToken(signal, { cause: 'operator', beforeRequest })
      expect(outcome.kind).toBe('ok')
      expect({ begun, asked: world.asked.length }).toEqual({ begun: times, asked: 2 })
    },
  )

  test('whose answer comes after its time does not count it', async () => {
    const host = world.host()
    await settle()
    world.answer(() => {
      world.clock.suspend(30 * SECOND)
      return world.token()
    })
    const before = host.token()
    expect(await refresh(host)).toMatchObject({ kind: 'transient', reason: 'timeout' })
    expect(host.token()).toBe(before)
  })

  test('that is stopped gives its lease back, so that another asks at once', async () => {
    const hosts = world.hosts(2)
    await world.clock.advance(MINUTE)
    const gate = world.gate()
    world.answer((name) => (name === 'host-1' ? gate.passed.then(() => failures.network) : world.token()))
    void refresh(hosts[0]!)
    await settle()
    const stopped = hosts[0]!.stop()
    await settle()
    gate.open()
    await stopped
    expect(world.server.listeners()).toBe(1)
    reject(hosts[1]!)
    await settle()
    expect(world.asked).toHaveLength(3)
  })
})

describe('a store that is lost', () => {
  test('takes no token away: each host asks at its own time, and all agree when it is back', async () => {
    const hosts = world.hosts(20)
    await settle()
    world.server.fail(lost)
    for (let minute = 0; minute < 90; minute += 1) {
      await world.clock.advance(MINUTE)
      expect(hosts.every((host) => host.token() !== null)).toBe(true)
    }
    for (const host of hosts) {
      expect(eventsOf(host, 'share-lost')).toEqual([
        expect.objectContaining({ remedy: expect.stringContaining('`kyc-tokend check`') }),
      ])
      expect(host.share.status()).toMatchObject({ state: 'alone', lastError: 'connect ECONNREFUSED' })
    }
    expect(world.asked.length).toBeGreaterThanOrEqual(21)
    expect(world.asked.length).toBeLessThanOrEqual(1 + 20 * 3)
    expect(peak(world.asked)).toBeLessThanOrEqual(3)
    const before = world.asked.length
    world.server.fail(null)
    world.server.flush()
    await world.clock.advance(15 * SECOND)
    // One host may be due at the very moment.
    expect(world.asked.length).toBeLessThanOrEqual(before + 1)
    expect(tokensOf(hosts)).toHaveLength(1)
    for (const host of hosts)
      expect(host.share.status()).toMatchObject({ state: 'connected', lastError: null })
  })

  test('and found in turn is one record in ten minutes, with a count', async () => {
    const host = world.host()
    await settle()
    for (let turn = 0; turn < 60; turn += 1) {
      world.server.fail(lost)
      await world.clock.advance(10 * SECOND)
      world.server.fail(null)
      await world.clock.advance(20 * SECOND)
    }
    await world.clock.advance(15 * MINUTE)
    const changes = host.events.flatMap(({ event, losses }) =>
      event === 'share-lost' || event === 'share-connected'
        ? [`${event} ${typeof losses === 'number' ? losses : ''}`.trim()]
        : [],
    )
    expect(changes.slice(0, 3)).toEqual(['share-connected', 'share-lost', 'share-connected'])
    expect(changes.length).toBeLessThanOrEqual(10)
    const counts = changes.map((change) => Number(/\d+/.exec(change)?.[0] ?? 0))
    // Each loss is counted once, the first without a number.
    expect(counts.reduce((sum, count) => sum + count, 1)).toBe(60)
    expect(changes.at(-1)).toMatch(/^share-connected/)
    expect(host.share.status()).toMatchObject({ state: 'connected' })
  })

  test('is told at once, and hosts without a token spread over 100 ms each', async () => {
    world.answer(() => outage)
    const hosts = world.hosts(40)
    await world.clock.advance(20 * SECOND)
    const before = world.asked.length
    world.server.fail(lost)
    await world.clock.settle()
    for (const host of hosts) expect(host.share.status()).toMatchObject({ state: 'alone' })
    world.answer(() => world.token())
    await world.clock.advance(20 * SECOND)
    expect(hosts.every((host) => host.token() !== null)).toBe(true)
    expect(world.asked.length - before).toBe(40)
    expect(peak(world.asked.slice(before))).toBeLessThanOrEqual(20)
    world.server.fail(null)
    await world.clock.advance(15 * SECOND)
    expect(tokensOf(hosts)).toHaveLength(1)
  })

  test('is asked without after a report within a minute, and for an operator at once', async () => {
    start({ lifeSeconds: 86_400 })
    const hosts = world.hosts(20)
    await world.clock.advance(12 * HOUR)
    world.server.fail(lost)
    await world.clock.advance(4.2 * HOUR)
    const before = tokensOf(hosts)
    for (const host of hosts) reject(host)
    await world.clock.advance(MINUTE)
    expect(tokensOf(hosts).filter((token) => before.includes(token))).toEqual([])
    const { length } = world.asked
    await refresh(hosts[0]!)
    expect(world.asked).toHaveLength(length + 1)
  })

  test.each([
    [72, 300],
    [0, 300],
    [0, 20],
  ])(
    'gives all the token that came %i ms later, though its host is %i ms away, or one of two',
    async (ms, latencyMs) => {
      const hosts = [world.host({ latencyMs }), world.host({ latencyMs: 20 })]
      await world.clock.advance(5 * SECOND)
      world.server.fail(lost)
      await settle()
      const acts = [refresh(hosts[1]!)]
      await world.clock.advance(ms)
      acts.push(refresh(hosts[0]!))
      await settle()
      await Promise.all(acts)
      const [newest, other] = tokensOf(hosts)
      expect(other).toBeDefined()
      world.server.fail(null)
      await world.clock.advance(16 * SECOND)
      expect(tokensOf(hosts)).toHaveLength(1)
      if (ms > 0) expect(tokensOf(hosts)).toEqual([newest])
      expect(world.asked).toHaveLength(3)
    },
  )

  test('has hosts that wait serve what they have, and say so', async () => {
    const hosts = [world.host(), world.host({ whenAlone: 'wait' })]
    await settle()
    world.server.fail(lost)
    await world.clock.advance(59 * MINUTE)
    expect(world.asked.map(({ host }) => host)).toEqual(['host-1', 'host-1'])
    expect(hosts[1]!.keeper.state().postponement).toMatchObject({ reason: 'share-lost' })
    expect(hosts[1]!.token()).not.toBeNull()
    expect(await refresh(hosts[1]!)).toMatchObject({ kind: 'ok' })
  })

  test('is not asked for by a host that never asks', async () => {
    const host = world.host({ asks: false, whenAlone: 'wait' })
    await world.clock.advance(MINUTE)
    expect(host.keeper.state().postponement).toMatchObject({ reason: 'not-asked' })
    const asker = world.host()
    await settle()
    expect(host.token()).toBe(asker.token())
    await refresh(host)
    expect(world.asked).toHaveLength(1)
  })
})

test('a host that was alone from its start has the newest token, which all have once the store is back', async () => {
  const [first] = world.hosts(1)
  await settle()
  world.server.fail(lost)
  const alone = world.host()
  await world.clock.advance(MINUTE)
  const newest = alone.token()
  expect(newest).not.toBe(first!.token())
  expect(world.asked).toHaveLength(2)
  world.server.fail(null)
  await world.clock.advance(MINUTE)
  expect(tokensOf([first!, alone])).toEqual([newest])
  expect(world.asked).toHaveLength(2)
})

test('an answer that comes while an earlier one is written again is what is known from then on', async () => {
  const hosts = world.hosts(2, { latencyMs: 400 })
  await world.clock.advance(MINUTE)
  const gate = world.gate()
  world.answer(() => gate.passed.then(() => world.token()))
  void refresh(hosts[0]!)
  await world.clock.advance(5 * SECOND)
  world.server.flush()
  world.server.fail(lost, 'host-2')
  // It polls, finds nothing, and writes what it knows.
  for (let ms = 0; world.server.text('record') === null && ms < 20 * SECOND; ms += 10)
    await world.clock.advance(10)
  world.server.fail(lost, 'host-1')
  gate.open()
  await world.clock.advance(2 * SECOND)
  const newest = hosts[0]!.token()
  expect(newest).not.toBe(hosts[1]!.token())
  for (const { name } of hosts) world.server.fail(null, name)
  await world.clock.advance(MINUTE)
  expect(tokensOf(hosts)).toEqual([newest])
  expect(world.asked).toHaveLength(2)
})

describe('the clock of the store', () => {
  test.each([-30 * SECOND, 10 * HOUR, -10 * MINUTE, -3 * 24 * HOUR])(
    'is set by %i ms: all have one token of the right age 15 s after, and ask for the next as before',
    async (ms) => {
      const hosts = world.hosts(3)
      await world.clock.advance(30 * MINUTE)
      world.jumpStore(ms)
      await world.clock.advance(16 * SECOND)
      const late = world.host()
      await settle()
      const left = ({ keeper }: Host): number =>
        (keeper.state().token?.expiresAtMs ?? Infinity) - keeper.now().bootMs
      for (const host of [...hosts, late]) expect(left(host)).toBeLessThanOrEqual(30 * MINUTE)
      expect(left(late)).toBeGreaterThan(29 * MINUTE)
      expect(world.asked).toHaveLength(1)
      await world.clock.advance(20 * MINUTE)
      expect(world.asked).toHaveLength(2)
      expect(tokensOf([...hosts, late])).toHaveLength(1)
    },
  )
})

describe('a host that is restarted', () => {
  test('knows what it had: it takes nothing older, and gives it to an empty store', async () => {
    const hosts = world.hosts(2)
    await settle()
    const old = world.server.text('record')!
    await refresh(hosts[0]!)
    await settle()
    const newest = hosts[0]!.token()
    const states = hosts.map(({ keeper }) => keeper.state())
    await Promise.all(hosts.map((host) => host.stop()))
    world.server.plant('record', { text: old, keepMs: HOUR })
    const again = states.map((state) => world.host({ state }))
    await world.clock.advance(20 * SECOND)
    expect(tokensOf(again)).toEqual([newest])
    expect(world.asked).toHaveLength(2)
    expect(eventsOf(again[0]!, 'share-repaired').length + eventsOf(again[1]!, 'share-repaired').length).toBe(
      1,
    )
  })

  test('knows a refusal, too, and gives it to an empty store: who comes within the hour does not ask', async () => {
    world.answer(() => failures.inactive)
    const host = world.host()
    await settle()
    const state = host.keeper.state()
    await host.stop()
    world.server.flush()
    world.host({ host: 'host-1', state })
    await world.clock.advance(20 * SECOND)
    const other = world.host()
    await settle()
    expect(phases([other])).toEqual(['refused'])
    expect(other.keeper.state().objection?.askedBy).toBe('host-1')
    expect(world.asked).toHaveLength(1)
  })
})
