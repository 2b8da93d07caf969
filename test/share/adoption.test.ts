// Each record reaches the keeper exactly once: offered while it is idle, else as the outcome of its attempt, else offered again.
import { beforeEach, expect, test } from 'vitest'
import { Secret } from '../../src/lib/secret.ts'
import { createAdoption, type Adoption } from '../../src/share/adoption.ts'
import { createRecords } from '../../src/share/records.ts'
import { createSeal } from '../../src/share/seal.ts'
import { createShareCounts, type ShareCounts } from '../../src/share/share-counts.ts'
import type { StoredBox } from '../../src/share/store.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'

const seal = createSeal({
  baseUrl: 'https://service.test',
  credentials: { apiKey: new Secret('key'), apiSecret: new Secret('secret') },
  key: null,
})
const NOW = 1_800_000_000_000
const recordOf = (fence: number): StoredBox => {
  const head = { fence, atMs: NOW, notBeforeMs: 0 }
  const token = { accessToken: `token-${fence}`, lifeMs: 60_000, expirySource: 'jwt', ageMs: 0 } as const
  return { ...head, nowMs: NOW, box: seal.close({ kind: 'ok', by: 'other', ...token }, head) }
}

let offered: FetchOutcome[]
let isIdle: boolean
let pending: number
let isUndecided: boolean
let counts: ShareCounts
let adoption: Adoption
beforeEach(() => {
  offered = []
  isIdle = true
  pending = 0
  isUndecided = false
  const log = (): void => undefined
  counts = createShareCounts(log, () => 0)
  adoption = createAdoption({
    records: createRecords({ seal, seen: 0, floor: 0, bootMs: () => 1_000 }),
    counts,
    log,
    host: 'this',
    bootMs: () => 1_000,
    usableUntilMs: () => null,
    seen: 0,
    onAskedAlone: () => undefined,
    isUndecided: () => isUndecided,
    offer(outcome) {
      if (isIdle) offered.push(outcome)
      return isIdle
    },
    onPending: () => (pending += 1),
  })
})

test('an idle keeper is offered a record at once, and once', () => {
  expect(adoption.receive(recordOf(7), 'push')).toBe(true)
  expect(adoption.receive(recordOf(7), 'look')).toBe(false)
  adoption.offer()
  expect(offered).toMatchObject([{ kind: 'ok', accessToken: 'token-7', by: 'other' }])
  expect(adoption.seen()).toBe(7)
})

test('a record that does not open is counted, and one that is known already is not', () => {
  expect(adoption.receive({ ...recordOf(7), box: 'nonsense' }, 'push')).toBe(false)
  expect(counts.sample().unreadable).toBe(1)
  adoption.receive(recordOf(8), 'push')
  adoption.receive(recordOf(8), 'look')
  expect(counts.sample().unreadable).toBe(1)
})

test('a record that the keeper cannot take now is not seen, and is offered again', () => {
  isIdle = false
  adoption.receive(recordOf(7), 'push')
  expect({ seen: adoption.seen(), isPending: adoption.isPending(), pending }).toEqual({
    seen: 0,
    isPending: true,
    pending: 1,
  })
  isIdle = true
  adoption.offer()
  expect(offered).toHaveLength(1)
  expect({ seen: adoption.seen(), isPending: adoption.isPending() }).toEqual({ seen: 7, isPending: false })
})

test('a record that comes during an attempt wakes it, and is its outcome', () => {
  let woken = 0
  adoption.begin(() => (woken += 1))
  adoption.receive(recordOf(7), 'push')
  expect({ woken, offered }).toEqual({ woken: 1, offered: [] })
  expect(adoption.take()).toMatchObject({ accessToken: 'token-7' })
  expect(adoption.take()).toBeNull()
  adoption.end()
  expect({ seen: adoption.seen(), pending }).toEqual({ seen: 7, pending: 0 })
})

test('a record that an attempt did not take is offered after it', () => {
  adoption.begin(() => undefined)
  adoption.receive(recordOf(7), 'push')
  adoption.end()
  expect(pending).toBe(1)
  adoption.offer()
  expect(offered).toHaveLength(1)
})

test('a record waits while this host has an outcome that is not in the store', () => {
  isUndecided = true
  adoption.receive(recordOf(7), 'push')
  expect({ offered, taken: adoption.take(), isPending: adoption.isPending() }).toEqual({
    offered: [],
    taken: null,
    isPending: true,
  })
  isUndecided = false
  adoption.offer()
  expect(offered).toMatchObject([{ accessToken: 'token-7' }])
})

test('an own record does not hide a later one of another host', () => {
  adoption.begin(() => undefined)
  adoption.receive(recordOf(9), 'push')
  const { nowMs: _now, box, ...head } = recordOf(8)
  const record = seal.open(box, head)
  if (record === null) throw new Error('It does not open')
  adoption.own({ head, box, record, ageMs: 0, receivedAtMs: 1_000 })
  adoption.end()
  expect({ seen: adoption.seen(), isPending: adoption.isPending() }).toEqual({ seen: 0, isPending: true })
})
