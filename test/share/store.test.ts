// The shared store: each answer of take, put, release, restore and look; against a real redis-server, and the same for the one in memory.
import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'
import { ACQUIRE } from '../../src/share/scripts.ts'
import { openRedisStore } from '../../src/share/redis-store.ts'
import { type Store, type StoredRecord, type LeaseRequest } from '../../src/share/store.ts'
import { createMemoryServer } from '../support/memory-store.ts'
import { isWithoutRedis, settingsOf, startRedis, subscribe, type RedisServer } from '../support/redis.ts'
import { expectUntil } from '../support/until.ts'

const NOTHING = { record: 0, lease: '', pause: 0, pace: false }
const wish = (change: Partial<LeaseRequest> = {}): LeaseRequest => ({
  cause: 'refresh',
  leaseMs: 17_000,
  adoptedFence: 0,
  highestFence: 0,
  ignored: NOTHING,
  ...change,
})
const DAY_MS = 86_400_000
const withoutRedis = isWithoutRedis('test/share/store')

let server: RedisServer
beforeAll(async () => {
  if (!withoutRedis) server = await startRedis()
})
afterAll(() => server?.stop())

interface World {
  open(host: string): Promise<Store>
  flush(): void
}
const worlds: readonly (readonly [string, boolean, () => World])[] = [
  [
    'redis-server',
    !withoutRedis,
    () => {
      const subject = randomBytes(16).toString('hex')
      return {
        async open(host) {
          const store = await openRedisStore(settingsOf(server), { ...account(subject), host })
          onTestFinished(() => store.close())
          return store
        },
        flush: () => void server.cli('flushall'),
      }
    },
  ],
  [
    'the store in memory',
    true,
    () => {
      const memory = createMemoryServer(() => Date.now())
      return { open: (host) => Promise.resolve(memory.connect(host)), flush: () => memory.flush() }
    },
  ],
]

const account = (accountKey: string) => ({ accountKey, clock: createSystemClock(), random: Math.random })
const at = (known: number) => ({ known, highestFence: known })

/** Daemons of several versions meet under these names. */
const keyOf = (subject: string, name: string): string => `kyc-tokend:1:{${subject}}:${name}`

describe.each(worlds)('%s', (_name, isThere, createWorld) => {
  let world: World
  let one: Store
  let other: Store
  beforeEach(async (context) => {
    if (!isThere) context.skip()
    world = createWorld()
    one = await world.open('one')
    other = await world.open('other')
  })

  const takeAsOne = async (change: Partial<LeaseRequest> = {}): Promise<{ fence: number; nowMs: number }> => {
    const taken = await one.acquireLease(wish(change))
    if (taken.verdict !== 'yours') throw new Error(`Not yours: ${taken.verdict}`)
    return taken
  }
  const putAsOne = async (
    change: Partial<{ notBeforeMs: number; isClientPaced: boolean; ttlMs: number; sealed: string }> = {},
  ): Promise<{ fence: number; atMs: number; notBeforeMs: number; sealed: string }> => {
    const { fence, nowMs } = await takeAsOne()
    const record = { fence, atMs: nowMs, notBeforeMs: 0, sealed: 'box', ...change }
    const put = await one.put({ ttlMs: 60_000, isClientPaced: false, ...record })
    expect(put.verdict).toBe('stored')
    return record
  }

  test('the first host may ask, the next is to wait while the lease lasts', async () => {
    const { fence, nowMs } = await takeAsOne()
    expect(Math.abs(nowMs - Date.now())).toBeLessThan(2_000)
    expect(fence).toBeGreaterThanOrEqual(Math.floor(nowMs))
    const taken = await other.acquireLease(wish())
    expect(taken).toMatchObject({ verdict: 'taken' })
    expect('waitMs' in taken && taken.waitMs).toBeGreaterThan(16_000)
    expect('waitMs' in taken && taken.waitMs).toBeLessThanOrEqual(17_000)
  })

  test('a record is given to hosts that do not have it, instead of the lease', async () => {
    const { fence, atMs } = await putAsOne()
    const taken = await other.acquireLease(wish())
    expect(taken).toMatchObject({ verdict: 'newer', record: { fence, atMs, notBeforeMs: 0, sealed: 'box' } })
  })

  test('a host that has the record may ask, and a record that is to be ignored counts as not there', async () => {
    const { fence } = await putAsOne({ notBeforeMs: Date.now() + 60_000 })
    expect(await other.acquireLease(wish({ ignored: { ...NOTHING, record: fence } }))).toMatchObject({
      verdict: 'yours',
    })
  })

  test('only an operator asks before the time that a record says', async () => {
    const { fence } = await putAsOne({ notBeforeMs: Date.now() + 60_000 })
    const taken = await other.acquireLease(wish({ adoptedFence: fence }))
    expect(taken).toMatchObject({ verdict: 'held', record: { fence, sealed: 'box' } })
    expect(await other.acquireLease(wish({ adoptedFence: fence, cause: 'operator' }))).toMatchObject({
      verdict: 'yours',
    })
  })

  test('an operator gets no record instead of an answer, and waits for a request that is under way', async () => {
    await putAsOne()
    expect(await other.acquireLease(wish({ cause: 'operator' }))).toMatchObject({ verdict: 'yours' })
    expect(await one.acquireLease(wish({ cause: 'operator' }))).toMatchObject({ verdict: 'taken' })
  })

  test('after a report of a client the next one waits half a minute, and a planned refresh does not', async () => {
    const { fence } = await putAsOne({ isClientPaced: true })
    const held = await other.acquireLease(wish({ adoptedFence: fence, cause: 'client' }))
    expect(held).toMatchObject({ verdict: 'paced' })
    expect('waitMs' in held && held.waitMs).toBeGreaterThan(29_000)
    expect(await other.acquireLease(wish({ adoptedFence: fence, cause: 'refresh' }))).toMatchObject({
      verdict: 'yours',
    })
  })

  test('a host that could not ask frees the lease, and the others pause and know why', async () => {
    const { fence, nowMs } = await takeAsOne()
    await one.release({ fence, atMs: nowMs, notBeforeMs: 0, sealed: 'why', pauseMs: 5_000 })
    const held = await other.acquireLease(wish())
    expect(held).toMatchObject({ verdict: 'paused', record: { fence, sealed: 'why' } })
    expect('waitMs' in held && held.waitMs).toBeLessThanOrEqual(5_000)
    expect(await other.acquireLease(wish({ cause: 'operator' }))).toMatchObject({ verdict: 'yours' })
  })

  test('a lease that is given up frees the way at once, and hosts that wait are notified', async () => {
    let released = 0
    await subscribe(other, { onReleased: () => (released += 1) })
    await takeAsOne()
    await one.release(null)
    await expectUntil('the message', () => released === 1)
    expect(await other.acquireLease(wish())).toMatchObject({ verdict: 'yours' })
  })

  test('no host frees the lease of another', async () => {
    await takeAsOne()
    await other.release({ fence: 1, atMs: 1, notBeforeMs: 0, sealed: 'x', pauseMs: 5_000 })
    expect(await other.acquireLease(wish())).toMatchObject({ verdict: 'taken' })
  })

  test('a late write is stale when another was given a fence meanwhile, and so is a second one under one fence', async () => {
    const late = await takeAsOne({ leaseMs: 40 })
    const next = await expectUntil('the lease to end', async () => {
      const taken = await other.acquireLease(wish())
      return taken.verdict === 'yours' && taken
    })
    expect(next.fence).toBeGreaterThan(late.fence)
    const head = { fence: late.fence, atMs: late.nowMs, notBeforeMs: 0, ttlMs: 60_000, isClientPaced: false }
    expect(await one.put({ ...head, sealed: 'late' })).toEqual({ verdict: 'stale', record: null })
    const put = await other.put({ ...head, fence: next.fence, sealed: 'newest' })
    expect(put.verdict).toBe('stored')
    for (const { fence } of [late, next])
      expect(await one.put({ ...head, fence, sealed: 'late' })).toMatchObject({
        verdict: 'stale',
        record: { fence: next.fence, sealed: 'newest' },
      })
    expect((await one.read(at(0))).record).toMatchObject({ sealed: 'newest' })
  })

  test('fences go on after a flush: above all that a host has known', async () => {
    const { fence } = await putAsOne()
    world.flush()
    const floor = fence + DAY_MS / 2
    expect(await one.acquireLease(wish({ adoptedFence: fence, highestFence: floor }))).toMatchObject({
      verdict: 'yours',
      fence: floor + 1,
    })
    await one.release(null)
    expect(await other.acquireLease(wish())).toMatchObject({ verdict: 'yours', fence: floor + 2 })
  })

  test('a look raises the fences of an empty store to what the host knows', async () => {
    const known = Date.now() + 3_600_000
    expect(await one.read(at(known))).toMatchObject({ fence: 0, record: null, hosts: 0 })
    expect(await other.acquireLease(wish())).toMatchObject({ verdict: 'yours', fence: known + 1 })
  })

  test('a look brings the record only where it is newer', async () => {
    const { fence, atMs } = await putAsOne()
    const look = await other.read(at(0))
    expect(look).toMatchObject({ fence, record: { fence, atMs, notBeforeMs: 0, sealed: 'box' } })
    expect(Math.abs(look.nowMs - Date.now())).toBeLessThan(2_000)
    expect(await other.read(at(fence))).toMatchObject({ fence, record: null })
  })

  test('an empty store is filled again, and the newest record wins', async () => {
    const { fence, atMs } = await putAsOne()
    world.flush()
    const head = { notBeforeMs: 0, ttlMs: 60_000, atMs }
    await other.restore({ ...head, fence, sealed: 'newer' })
    await one.restore({ ...head, fence: fence - 1, sealed: 'older' })
    expect((await one.read(at(0))).record).toMatchObject({ fence, sealed: 'newer' })
    const taken = await one.acquireLease(wish({ adoptedFence: fence }))
    expect(taken).toMatchObject({ verdict: 'yours' })
    expect('fence' in taken && taken.fence).toBeGreaterThan(fence)
  })

  test('all that listen get a record at once, and the writer learns how many they are', async () => {
    const heard: StoredRecord[][] = [[], []]
    for (const [index, store] of [one, other].entries())
      await subscribe(store, { onRecord: (record) => heard[index]?.push(record) })
    const { fence, nowMs } = await takeAsOne()
    // As long as a record can be.
    const record = { fence, atMs: nowMs, notBeforeMs: 0, sealed: 'A'.repeat(44 * 1024) }
    expect(await one.put({ ...record, ttlMs: 60_000, isClientPaced: false })).toEqual({
      verdict: 'stored',
      hosts: 2,
    })
    await expectUntil('both to hear', () => heard.every(({ length }) => length === 1))
    for (const [first] of heard) expect(first).toMatchObject(record)
    expect(await other.read(at(0))).toMatchObject({ hosts: 2, record })
  })
})

describe.skipIf(withoutRedis)('in Redis', () => {
  async function openOne(): Promise<{ subject: string; store: Store }> {
    const subject = randomBytes(16).toString('hex')
    const store = await openRedisStore(settingsOf(server), { ...account(subject), host: 'one' })
    onTestFinished(() => store.close())
    return { subject, store }
  }

  test('every key has an expiry, and its name shows nothing but the subject', async () => {
    const { subject, store } = await openOne()
    for (const step of ['put', 'release']) {
      const lease = await store.acquireLease(wish({ cause: 'operator' }))
      if (lease.verdict !== 'yours') throw new Error(lease.verdict)
      const record = { fence: lease.fence, atMs: lease.nowMs, notBeforeMs: 0, sealed: 'b' }
      if (step === 'put') await store.put({ ...record, ttlMs: 60_000, isClientPaced: true })
      else await store.release({ ...record, pauseMs: 5_000 })
    }
    await store.acquireLease(wish({ cause: 'operator' }))
    const keys = server.cli('keys', `*${subject}*`).split('\n')
    const names = ['fence', 'lease', 'pace', 'pause', 'record'].map((name) => keyOf(subject, name))
    expect(keys.toSorted()).toEqual(names)
    for (const key of keys) expect(Number(server.cli('pttl', key))).toBeGreaterThan(0)
  })

  test('the clock of Redis may jump back: fences go on', () => {
    const subject = randomBytes(16).toString('hex')
    const takeAt = (seconds: number): string => {
      const script = ACQUIRE.replace("redis.call('TIME')", `{'${seconds}', '0'}`)
      const keys = ['record', 'fence', 'lease', 'pace', 'pause'].map((name) => keyOf(subject, name))
      const values = ['me', '1000', '0', '0', '0', 'refresh', '', '0', '0']
      const reply = server.cli('eval', script, '5', ...keys, ...values)
      return reply.split('\n')[2] ?? ''
    }
    expect(takeAt(1_800_000_000)).toBe('1800000000000')
    expect(takeAt(1_799_990_000)).toBe('1800000000001')
    expect(takeAt(1_799_990_001)).toBe('1800000000002')
    expect(takeAt(1_900_000_000)).toBe('1900000000000')
  })

  test('a lease that never ends, planted from outside, is a wait of one lease', async () => {
    const { subject, store } = await openOne()
    server.cli('set', keyOf(subject, 'lease'), 'mallory/1')
    expect(await store.acquireLease(wish())).toEqual({
      verdict: 'taken',
      waitMs: 17_000,
      holder: 'mallory/1',
    })
  })

  test('keys of other types, planted from outside, hold nothing up', async () => {
    const { subject, store } = await openOne()
    for (const name of ['record', 'fence', 'lease', 'pace', 'pause'])
      server.cli(name === 'record' ? 'set' : 'lpush', keyOf(subject, name), 'x')
    expect(await store.read(at(0))).toMatchObject({ fence: 0, isPlanted: false, record: null })
    // The pause and the pace that were planted have no end, and so are none.
    expect(await store.acquireLease(wish({ cause: 'client' }))).toMatchObject({ verdict: 'yours' })
  })

  test('texts that are too long, planted from outside, count as not there', async () => {
    const { subject, store } = await openOne()
    const plant = (name: string, call: string): string =>
      server.cli('eval', `local long = string.rep('x', 1e6); redis.call(${call})`, '1', keyOf(subject, name))
    plant('record', "'HSET', KEYS[1], 'fence', '9', 'at', '9', 'notBefore', '0', 'box', long")
    plant('lease', "'SET', KEYS[1], long")
    expect(await store.read(at(0))).toMatchObject({ fence: 0, isPlanted: true, record: null })
    expect(await store.acquireLease(wish())).toMatchObject({ verdict: 'yours' })
  })

  test('what was planted for ten years counts as not there, and is overwritten', async () => {
    const { subject, store } = await openOne()
    const key = (name: string): string => keyOf(subject, name)
    const plant = (...words: string[]): void => {
      for (const [command = '', name = '', ...values] of [words]) server.cli(command, key(name), ...values)
      server.cli('pexpire', key(words[1] ?? ''), '315360000000')
    }
    plant('set', 'pause', 'garbage')
    plant('set', 'fence', '1e999')
    plant('hset', 'record', 'fence', '9007199254740991', 'at', 'x', 'notBefore', 'inf', 'box', 'x')
    expect(await store.read(at(0))).toMatchObject({ fence: 0, isPlanted: true, record: null, hosts: 0 })
    const first = await store.acquireLease(wish())
    if (first.verdict !== 'yours') throw new Error(first.verdict)
    expect(first.fence).toBeLessThan(Date.now() + DAY_MS)
    const record = { fence: first.fence, atMs: first.nowMs, notBeforeMs: 0, sealed: 'box' }
    const put = { ...record, ttlMs: 60_000, isClientPaced: false }
    expect(await store.put(put)).toMatchObject({ verdict: 'stored' })
    expect(await store.read(at(0))).toMatchObject({ fence: first.fence, isPlanted: false })
    plant('hset', 'pause', 'fence', '7', 'at', '1', 'notBefore', '0', 'box', 'x')
    plant('set', 'pace', 'x')
    plant('set', 'lease', 'mallory/1')
    const asks = { cause: 'client', adoptedFence: first.fence, highestFence: first.fence } as const
    const verdict = async (ignored: Partial<typeof NOTHING>): Promise<string> =>
      (await store.acquireLease(wish({ ...asks, ignored: { ...NOTHING, ...ignored } }))).verdict
    expect(await verdict({})).toBe('taken')
    expect(await verdict({ lease: 'mallory/1' })).toBe('paused')
    expect(await verdict({ lease: 'mallory/1', pause: 7 })).toBe('paced')
    expect(await verdict({ lease: 'mallory/1', pause: 7, pace: true })).toBe('yours')
    expect(server.cli('get', key('lease'))).toMatch(/^one\//)
  })

  test('any message on the channel is survived', async () => {
    const { subject, store } = await openOne()
    const heard: StoredRecord[] = []
    await subscribe(store, { onRecord: (record) => heard.push(record) })
    for (const message of ['', 'x', 'x y z', '1', 'NaN 1 1 1 b', '7 8 6 0 box'])
      server.cli('publish', keyOf(subject, 'changed'), message)
    await expectUntil('the last message', () => heard.some(({ fence }) => fence === 7))
    expect(heard.at(-1)).toEqual({ fence: 7, nowMs: 8, atMs: 6, notBeforeMs: 0, sealed: 'box' })
  })
})
