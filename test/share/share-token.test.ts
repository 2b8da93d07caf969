// One token for a fleet: who asks, who waits, who adopts, and every race between them; on a fake clock, with real keepers.
import { onTestFinished, beforeEach, describe, expect, test } from 'vitest'
import { shareToken } from '../../src/share/share-token.ts'
import { StoreError } from '../../src/share/store.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { currentAlert, initialState, phaseOf, refusalOf } from '../../src/token/state.ts'
import { failures } from '../support/failures.ts'
import {
  createShareWorld,
  eventsOf,
  NOTHING_KNOWN,
  POLICY,
  refresh,
  reject,
  SHARE,
  tokensOf,
  type Host,
  type ShareWorld,
} from '../support/share-world.ts'

const MINUTE_MS = 60_000
const outage: ServiceOutcome = { kind: 'transient', reason: 'server-error', detail: '503', status: 503 }
const noRoute: ServiceOutcome = { kind: 'transient', reason: 'network', detail: 'connect EHOSTUNREACH' }
const lost = new StoreError('lost', 'connect ECONNREFUSED')

let world: ShareWorld
beforeEach(() => {
  world = createShareWorld()
  onTestFinished(() => world.stop())
})
const settle = (): Promise<void> => world.clock.advance(1_000)
const phases = (hosts: readonly Host[]): string[] => [
  ...new Set(hosts.map(({ keeper }) => phaseOf(keeper.state(), keeper.now()))),
]

describe('a fleet', () => {
  test('whose clocks are an hour apart has one token, whose expiry all see at the same moment, also a host that starts later', async () => {
    const hosts = [-3_600_000, -1_000, 0, 1_000, 3_600_000].map((clockAheadMs) =>
      world.host({ clockAheadMs }),
    )
    await settle()
    await world.clock.advance(10 * MINUTE_MS)
    hosts.push(world.host())
    await settle()
    expect(world.asked).toHaveLength(1)
    const left = hosts.map(({ keeper }) => (keeper.state().token?.expiresAtMs ?? 0) - keeper.now().bootMs)
    expect(Math.max(...left) - Math.min(...left)).toBeLessThanOrEqual(1_000)
    expect(left[0]).toBeGreaterThan(49 * MINUTE_MS)
  })
})

describe('a failure of the service', () => {
  test('is one request for all, repeated as one client would', async () => {
    world.answer(() => outage)
    const hosts = world.hosts(20)
    await world.clock.advance(10 * MINUTE_MS)
    expect(phases(hosts)).toEqual(['starting'])
    expect(hosts.every(({ keeper }) => keeper.state().failure?.reason === 'server-error')).toBe(true)
    expect(world.asked.length).toBeLessThanOrEqual(27)
    world.answer(() => world.token())
    const before = world.asked.length
    await world.clock.advance(MINUTE_MS)
    expect(world.asked).toHaveLength(before + 1)
    expect(phases(hosts)).toEqual(['ready'])
  })

  test('that comes while the store is lost is the asker’s own, and has no other host wait', async () => {
    const [host] = world.hosts(2)
    await settle()
    world.answer(() => {
      world.server.fail(lost)
      return outage
    })
    await refresh(host as Host)
    world.answer(() => world.token())
    world.server.fail(null)
    await world.clock.advance(20_000)
    expect(world.server.record()?.notBeforeMs).toBe(0)
    expect(host?.keeper.state().failure).toBeNull()
  })

  test('leaves the token that is still good to a host that starts then', async () => {
    const hosts = world.hosts(3)
    await settle()
    await world.clock.advance(30 * MINUTE_MS)
    world.answer(() => outage)
    await world.clock.advance(11 * MINUTE_MS)
    expect(world.server.record()?.notBeforeMs).toBeGreaterThan(0)
    const late = world.host()
    await settle()
    expect(late.token()).toBe(hosts[0]?.token())
    expect(late.token()).not.toBeNull()
  })
})

test('a shared refusal is that of a host which knew of it, and which its keeper lacks', async () => {
  world.answer(() => failures.inactive)
  const host = world.host()
  await settle()
  const again = world.host({ resumeState: host.share.resumeState() })
  await settle()
  expect(refusalOf(again.keeper.state())).toMatchObject({ reason: 'account-inactive' })
  expect(world.asked).toHaveLength(1)
})

describe('a host that cannot reach the service', () => {
  test('leaves the request to another, after a pause of 5 s', async () => {
    world.answer((host) => (host === 'host-1' ? noRoute : world.token()))
    const hosts = world.hosts(3)
    await settle()
    expect(world.asked.map(({ host }) => host)).toEqual(['host-1'])
    expect(hosts[1]?.keeper.state().failure).toBeNull()
    await world.clock.advance(6_000)
    expect(world.asked.map(({ host }) => host)).toEqual(['host-1', expect.not.stringContaining('host-1')])
    expect(tokensOf(hosts)).toHaveLength(1)
    expect(phases(hosts)).toEqual(['ready'])
  })
})

const alertOf = ({ keeper }: Host): ReturnType<typeof currentAlert> =>
  currentAlert(keeper.state(), keeper.now(), MINUTE_MS)

describe('the alert of a fleet without a token', () => {
  test('that is cut off has the reason of the last of 12 attempts a minute; its host notifies people, and hosts that it put off do not', async () => {
    world.answer(() => noRoute)
    const hosts = world.hosts(20)
    await world.clock.advance(5 * MINUTE_MS)
    expect(world.asked.length).toBeLessThanOrEqual(66)
    expect(world.asked.length).toBeGreaterThan(30)
    const alerts = hosts.map(alertOf)
    for (const alert of alerts) expect(alert).toMatchObject({ reason: 'no-token', failure: 'network' })
    expect(alerts[hosts.findIndex(({ name }) => name === world.asked.at(-1)?.host)]?.askedBy).toBeNull()
    expect(alerts.filter((alert) => typeof alert?.askedBy === 'string').length).toBeGreaterThan(10)
  })

  test('says that the store is lost where hosts wait for it', async () => {
    world.server.fail(lost)
    const host = world.host({ whenAlone: 'wait' })
    await world.clock.advance(2 * MINUTE_MS)
    expect(alertOf(host)).toMatchObject({
      reason: 'no-token',
      failure: 'share-lost',
      askedBy: null,
      remedy:
        'Nothing to do if it passes: the token is served meanwhile; if it lasts, check share.servers from this host with `kyc-tokend check`, or run `kyc-tokend refresh`',
    })
    expect(world.asked).toHaveLength(0)
  })
})

describe('a push', () => {
  test('that arrives before the keeper could take it is the outcome of its next attempt', async () => {
    const gate = world.gate()
    world.answer(async () => {
      await gate.passed
      return world.token()
    })
    const hosts = world.hosts(2)
    await settle()
    gate.open()
    await settle()
    expect(world.asked).toHaveLength(1)
    expect(tokensOf(hosts)).toHaveLength(1)
  })

  test('that the keeper cannot take now is offered again, or is the outcome of an attempt that begins meanwhile', async () => {
    const asker = world.host()
    await settle()
    const offered: string[] = []
    let isIdle = false
    const share = shareToken({
      clock: world.clock,
      seal: world.seal,
      random: () => 0,
      log: () => undefined,
      host: 'stub',
      credentialsId: '',
      store: world.server.connect('stub'),
      share: SHARE,
      service: () => ({
        fetchToken: () => Promise.reject(new Error('It asks')),
        requestTimeoutMs: 15_000,
        retry: POLICY,
      }),
      resumeState: NOTHING_KNOWN,
      keeper: {
        offer(outcome) {
          if (isIdle) offered.push(outcome.kind === 'ok' ? outcome.accessToken : outcome.kind)
          return isIdle
        },
        state: () => initialState({ baseUrl: '', credentialsId: '' }, world.clock.now()),
        policy: () => POLICY,
      },
    })
    const stop = new AbortController()
    const running = share.run(stop.signal)
    await settle()
    expect(share.resumeState().adoptedFence).toBe(0)
    isIdle = true
    await world.clock.advance(100)
    expect(offered).toEqual([asker.token()])
    expect(share.resumeState().adoptedFence).toBeGreaterThan(0)
    isIdle = false
    await asker.keeper.refresh(stop.signal)
    const attempt = { cause: 'refresh', beforeRequest: () => Promise.resolve() } as const
    const asked = share.fetchToken(stop.signal, { ...attempt, cause: 'operator' })
    await expect(asked).rejects.toThrow('It asks')
    expect(await share.fetchToken(stop.signal, attempt)).toMatchObject({ accessToken: asker.token() })
    isIdle = true
    await settle()
    expect(offered).toHaveLength(1)
    stop.abort()
    await running
  })

  test('that arrives between the reply of take and the wait is not slept over', async () => {
    world.answer(() => world.token())
    const first = world.host()
    await settle()
    const second = world.host()
    await settle()
    // The other's answer is there before the waiting host has begun to wait.
    void refresh(first)
    void refresh(second)
    await world.clock.advance(50)
    expect(tokensOf([first, second])).toHaveLength(1)
  })

  test('that arrives while the own request is failing counts instead of it', async () => {
    const host = world.host()
    await settle()
    const gate = world.gate()
    world.answer(async (name) => {
      if (name !== host.name) return world.token()
      await gate.passed
      return noRoute
    })
    const refreshed = refresh(host)
    await settle()
    world.server.endLease()
    const other = world.host()
    await refresh(other)
    await settle()
    gate.open()
    await settle()
    expect(await refreshed).toMatchObject({ kind: 'ok', askedBy: other.name })
    expect(tokensOf([host, other])).toHaveLength(1)
  })

  test('that is lost is made up for by a look within 15 s', async () => {
    const hosts = world.hosts(3)
    await settle()
    world.server.push(false)
    await refresh(hosts[0] as Host)
    await settle()
    expect(tokensOf(hosts)).toHaveLength(2)
    await world.clock.advance(15_000)
    expect(tokensOf(hosts)).toHaveLength(1)
    expect(world.asked).toHaveLength(2)
    const adopted = { level: 'debug', event: 'share-adopted', by: 'host-1' }
    const fence = world.server.record()?.fence
    expect(eventsOf(hosts[1] as Host, 'share-adopted')).toEqual([
      { ...adopted, fence: expect.any(Number), ageMs: 0, how: 'push' },
      { ...adopted, fence, ageMs: 14_000, how: 'look' },
    ])
    const counts = { asked: 0, push: 0, look: 0, take: 0, alone: 0 }
    expect(hosts.map(({ share }) => share.sample().outcomes)).toEqual([
      { ...counts, asked: 2 },
      { ...counts, push: 1, look: 1 },
      { ...counts, push: 1, look: 1 },
    ])
  })

  test('is measured on the clock of the store, once that was read', async () => {
    world.server.fail(lost, 'host-2')
    const [asker, host] = world.hosts(2)
    await settle()
    const delays = (): unknown => host?.share.sample().lag
    expect(delays()).toMatchObject({ sum: 0, counts: expect.not.arrayContaining([1]) })
    world.server.fail(null, 'host-2')
    await world.clock.advance(15_000)
    world.jumpStore(-2_000)
    await refresh(asker as Host)
    world.jumpStore(3_000)
    await refresh(asker as Host)
    expect(delays()).toMatchObject({ sum: 2 })
  })

  test('clears the wish of a client, which is not followed again later', async () => {
    const hosts = world.hosts(2)
    await settle()
    const [one, other] = hosts
    await world.clock.advance(MINUTE_MS)
    one?.keeper.reject(one.keeper.state().token?.fingerprint ?? '')
    await settle()
    one?.keeper.reject(one.keeper.state().token?.fingerprint ?? '')
    await refresh(other as Host)
    await world.clock.advance(2 * MINUTE_MS)
    expect(world.asked.map(({ cause }) => cause)).toEqual(['start', 'client', 'operator'])
  })
})

describe('an asker', () => {
  test('that was paused and writes late is refused, drops its token and takes the newer', async () => {
    const gate = world.gate()
    world.answer((host) => (host === 'host-1' ? gate.passed.then(() => world.token()) : world.token()))
    const [paused, other] = world.hosts(2)
    await settle()
    world.server.push(false)
    await world.clock.advance(20_000)
    expect(world.asked).toHaveLength(2)
    gate.open()
    await settle()
    expect(eventsOf(paused as Host, 'share-stale-write')).toHaveLength(1)
    expect(paused?.token()).toBe(other?.token())
    expect(world.asked).toHaveLength(2)
    expect(paused?.share.sample().staleWrites).toBe(1)
  })

  test.each([false, true])(
    'whose write timed out past its lease writes once more, whether the store had it: %s',
    async (isDone) => {
      const [paused, other] = world.hosts(2)
      await settle()
      world.answer(() => {
        // As a process that was stopped: its time is over before it reads what the store said.
        world.server.interruptPut('host-1', { error: new StoreError('slow', 'Command timed out'), isDone })
        world.clock.suspend(30_000)
        return world.token()
      })
      await refresh(paused as Host)
      await settle()
      expect(tokensOf([paused, other] as Host[])).toHaveLength(1)
      expect(eventsOf(paused as Host, 'share-slow')).toEqual([])
      expect(eventsOf(paused as Host, 'share-stale-write')).toEqual([])
      expect(eventsOf(paused as Host, 'share-asked')).toHaveLength(2)
      expect(paused?.share.status().hosts).toBe(2)
      expect(world.asked).toHaveLength(2)
    },
  )

  test('that was suspended between lease and request begins again', async () => {
    const host = world.host()
    await settle()
    let begun = 0
    const beforeRequest = (): Promise<void> => {
      begun += 1
      if (begun === 1) world.clock.suspend(20 * MINUTE_MS)
      return Promise.resolve()
    }
    const { signal } = new AbortController()
    const outcome = await host.share.fetchToken(signal, { cause: 'operator', beforeRequest })
    expect(outcome.kind).toBe('ok')
    expect(begun).toBe(2)
    expect(world.asked).toHaveLength(2)
  })
})

describe('a store that is lost', () => {
  test('takes no token away: each host asks at its own time, and all agree when it is back', async () => {
    const hosts = world.hosts(20)
    await settle()
    world.server.fail(lost)
    for (let minute = 0; minute < 90; minute += 1) {
      await world.clock.advance(MINUTE_MS)
      expect(hosts.every((host) => host.token() !== null)).toBe(true)
    }
    for (const host of hosts) {
      expect(eventsOf(host, 'share-lost')).toEqual([
        expect.objectContaining({ remedy: expect.stringContaining('`kyc-tokend check`') }),
      ])
      expect(host.share.status()).toMatchObject({ state: 'alone', lastError: 'connect ECONNREFUSED' })
    }
    const before = world.asked.length
    expect(before).toBeGreaterThanOrEqual(21)
    world.server.fail(null)
    world.server.flush()
    await world.clock.advance(31_000)
    // One host may be due at the very moment.
    expect(world.asked.length).toBeLessThanOrEqual(before + 1)
    expect(tokensOf(hosts)).toHaveLength(1)
    expect(hosts.flatMap((host) => eventsOf(host, 'share-repaired'))).toMatchObject([{ found: 0 }])
    for (const host of hosts)
      expect(host.share.status()).toMatchObject({ state: 'connected', lastError: null })
  })

  test('is denied until it is not, also where the connection is closed meanwhile', async () => {
    const lastError = 'WRONGPASS invalid username-password pair'
    world.server.fail(new StoreError('denied', lastError))
    const host = world.host()
    const since = new Date(world.clock.now().wallMs).toISOString()
    await settle()
    world.server.fail(new StoreError('lost', 'Connection is closed.'))
    await world.clock.advance(5 * MINUTE_MS)
    const unknown = { hosts: null, askedBy: null }
    expect(host.share.status()).toEqual({ state: 'denied', since, lastError, server: 'memory', ...unknown })
    const [denied] = eventsOf(host, 'share-denied')
    expect(denied).toMatchObject({ level: 'error', remedy: expect.stringContaining('ACL SETUSER') })
    expect(eventsOf(host, 'share-lost')).toHaveLength(0)
    world.server.fail(null)
    await world.clock.advance(MINUTE_MS)
    expect(host.share.status()).toMatchObject({ state: 'connected', askedBy: host.name })
    expect(eventsOf(host, 'share-connected')).toMatchObject([{ failures: 8, aloneSeconds: 360 }])
  })

  test('with whenAlone "wait" only an operator asks', async () => {
    const hosts = world.hosts(5, { whenAlone: 'wait' })
    await settle()
    world.server.fail(lost)
    await world.clock.advance(59 * MINUTE_MS)
    expect(world.asked).toHaveLength(1)
    expect(await refresh(hosts[0] as Host)).toMatchObject({ kind: 'ok' })
    expect(world.asked).toHaveLength(2)
    world.server.fail(null)
    await world.clock.advance(31_000)
    expect(tokensOf(hosts)).toHaveLength(1)
    // All were due: one of them may ask before the operator's token is in the store.
    expect(world.asked.length).toBeLessThanOrEqual(3)
  })
})

describe('a service that keeps one token of an account alive', () => {
  test('is noticed where a new token is refused while hosts ask by themselves: once, with the remedy', async () => {
    const [host] = world.hosts(2)
    await settle()
    world.server.fail(lost)
    await refresh(host as Host)
    for (let report = 0; report < 3; report += 1) {
      reject(host as Host)
      await settle()
    }
    const contentions = eventsOf(host as Host, 'share-contention')
    expect(contentions).toMatchObject([
      { level: 'warning', remedy: expect.stringContaining('share.whenAlone to "wait"') },
    ])
    expect(contentions[0]?.['ageMs']).toBeLessThan(2_000)
  })

  test('is noticed after another host asked by itself, which the record says', async () => {
    const [one, other] = world.hosts(2)
    await settle()
    world.server.fail(lost, 'host-1')
    await refresh(one as Host)
    world.server.fail(null, 'host-1')
    await world.clock.advance(31_000)
    expect(other?.token()).toBe(one?.token())
    expect(eventsOf(other as Host, 'share-adopted').at(-1)).toMatchObject({ by: 'host-1', isAlone: true })
    reject(other as Host)
    await settle()
    expect(eventsOf(other as Host, 'share-contention')).toMatchObject([{ by: 'host-1' }])
    expect(eventsOf(one as Host, 'share-contention')).toEqual([])
  })

  test('is not suspected for an old token, nor while one host asks for all, nor for a report of that time', async () => {
    const [one, other] = world.hosts(2)
    await settle()
    for (const host of [one, other]) {
      reject(host as Host)
      await settle()
      await world.clock.advance(31_000)
    }
    world.server.fail(lost, 'host-2')
    await world.clock.advance(2 * MINUTE_MS)
    reject(other as Host)
    await settle()
    await world.clock.advance(31_000)
    world.answer(() => outage)
    reject(one as Host)
    await settle()
    world.server.fail(lost)
    await world.clock.advance(2 * MINUTE_MS)
    for (const host of [one, other]) expect(eventsOf(host as Host, 'share-contention')).toEqual([])
  })
})

describe('a host with "asks": false', () => {
  test('takes what others obtain, and never asks', async () => {
    const quiet = world.host({ asks: false, whenAlone: 'wait' })
    await world.clock.advance(MINUTE_MS)
    expect(world.asked).toHaveLength(0)
    const outcome = await refresh(quiet)
    expect(outcome).toMatchObject({ kind: 'postponed', reason: 'not-asked' })
    expect(alertOf(quiet)?.remedy).toBe(
      'Run `kyc-tokend refresh` on a host of the fleet that asks the service (`share.asks`); this one takes over its token',
    )
    const other = world.host()
    await settle()
    expect(quiet.token()).toBe(other.token())
    await world.clock.advance(50 * MINUTE_MS)
    expect(world.asked.every(({ host }) => host === other.name)).toBe(true)
    expect(quiet.token()).toBe(other.token())
  })
})
