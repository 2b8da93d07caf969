// The three scripts: the same random commands on a real redis-server and on the store in memory, and what
// Redis alone can hold.
import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'
import { openRedisStore } from '../../src/share/redis-store.ts'
import type { Store } from '../../src/share/store.ts'
import { createMemoryServer } from '../support/memory-store.ts'
import { isWithoutRedis, settingsOf, startRedis, type RedisServer } from '../support/redis.ts'
import { expectUntil } from '../support/until.ts'

const withoutRedis = isWithoutRedis('test/share/store')
let server: RedisServer
beforeAll(async () => {
  if (!withoutRedis) server = await startRedis()
})
afterAll(() => server?.stop())

const ID = '00000000deadbeef'
const PAIR = { fence: 5, id: ID }
const keyOf = (subject: string, name: string): string => `kyc-tokend:2:{${subject}}:${name}`

async function openOne(
  subject = randomBytes(16).toString('hex'),
): Promise<{ subject: string; store: Store }> {
  const around = { accountKey: subject, clock: createSystemClock(), random: Math.random }
  const store = await openRedisStore(settingsOf(server), around)
  onTestFinished(() => store.close())
  return { subject, store }
}

// Few of each, so that they meet.
const fence = fc.constantFrom(0, 5, 6, 10, 9_007_199_254_740_991)
const id = fc.constantFrom('0000000000000000', '000000010000000f', '00000001000000f0', 'ffffffff00000000')
const pair = fc.record({ fence, id })
const text = fc.oneof(
  fc.tuple(pair, fc.constantFrom('a', 'b')).map(([head, box]) => `${head.fence} ${head.id} ${box}`),
  fc.constantFrom(
    'x',
    '99999999999999999 0000000000000000 a',
    '7 FFFFFFFFFFFFFFFF a',
    '5 00000000 a',
    '-1 0 a',
  ),
  id,
)
const drop = fc.option(text, { freq: 2 })
const keepMs = fc.constantFrom(60_000, 70 * 60_000)
const expiring = fc.option(fc.record({ text, keepMs }))
const command = fc.oneof(
  fc.record({ do: fc.constant('poll' as const), request: fc.record({ drop }) }),
  fc.record({
    do: fc.constant('acquire' as const),
    request: fc.record({ drop, known: pair, id, leaseMs: keepMs }),
  }),
  fc.record({
    do: fc.constant('write' as const),
    request: fc.record({ drop, id, record: expiring, kept: expiring }),
  }),
)
const run = async (store: Store, { do: act, request }: { do: string; request: unknown }): Promise<object> => {
  const held = await store[act as 'poll'](request as Parameters<Store['poll']>[0])
  // Redis has its own clock, and its commands take their time.
  return { ...held, nowMs: 0, leaseLeftMs: Math.round(held.leaseLeftMs / 20_000) }
}

describe.skipIf(withoutRedis)('in Redis', () => {
  test('random commands have the same answers as in the store in memory', { timeout: 60_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(command, { maxLength: 25 }), async (commands) => {
        const { store } = await openOne()
        const memory = createMemoryServer(() => Date.now()).connect('one')
        for (const one of commands) expect(await run(store, one)).toEqual(await run(memory, one))
        store.close()
      }),
      { numRuns: 200 },
    )
  })

  test('every key ends, and its name shows nothing but the account', async () => {
    const { subject, store } = await openOne()
    const request = { drop: null, known: PAIR, id: ID }
    await store.poll(request)
    await store.write({ ...request, record: { text: `6 ${ID} a`, keepMs: 60_000 }, kept: null })
    await store.acquire({ ...request, known: { fence: 6, id: ID }, leaseMs: 60_000 })
    const keys = server.cli('keys', `*${subject}*`).split('\n')
    expect(keys.toSorted()).toEqual(['lease', 'record', 'seen'].map((name) => keyOf(subject, name)))
    for (const key of keys) expect(Number(server.cli('pttl', key))).toBeGreaterThan(0)
  })

  test('what no host can have written is removed by each script', async () => {
    const plants: readonly ((key: string) => string)[] = [
      (key) => server.cli('lpush', key, 'x'),
      (key) => server.cli('set', key, 'without an end'),
      (key) => server.cli('eval', "redis.call('SET', KEYS[1], string.rep('x', 1e6), 'PX', 60000)", '1', key),
    ]
    for (const plant of plants) {
      for (const step of ['poll', 'acquire', 'write'] as const) {
        const { subject, store } = await openOne()
        for (const name of ['record', 'lease', 'seen']) plant(keyOf(subject, name))
        const request = { drop: null, known: PAIR, id: ID, leaseMs: 1_000, record: null, kept: null }
        const lease = step === 'acquire' ? ID : null
        expect(await store[step](request)).toMatchObject({ record: null, lease })
        expect(server.cli('exists', keyOf(subject, 'record'))).toBe('0')
      }
    }
  })

  test('all that listen are told of each change only; a look says how many they are', async () => {
    const { subject, store } = await openOne()
    const others = [await openOne(subject), await openOne(subject)]
    const heard = [0, 0]
    for (const [index, { store: other }] of others.entries())
      other.listen((what) => (heard[index]! += what === 'message' ? 1 : 0))
    const request = { drop: null, known: PAIR, id: ID, kept: null }
    await expectUntil('both to listen', async () => (await store.poll(request)).hosts === 2)
    const record = { text: `6 ${ID} ${'A'.repeat(44 * 1024)}`, keepMs: 60_000 }
    for (let time = 0; time < 3; time += 1)
      expect(await store.write({ ...request, record })).toMatchObject({ record: record.text })
    await store.acquire({ ...request, known: { fence: 6, id: ID }, leaseMs: 60_000 })
    await store.write({ ...request, record: null })
    await expectUntil('both to hear', () => heard.every((count) => count === 2))
  })
})
