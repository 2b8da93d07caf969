// The transitions of ShareState: whatever lies in the store, fences never go back, no record comes twice, and no wait outlasts its cap.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { SharedRecord } from '../../src/share/seal.ts'
import {
  afterClockRead,
  afterHold,
  afterOwnRecord,
  afterRecord,
  afterSync,
  initialShareState,
  keptMs,
  leaseRequest,
  nextDelivery,
  outcomeOf,
  recordOf,
  type Hold,
  type Moment,
  type ShareState,
} from '../../src/share/share-state.ts'
import type { StoredRecord } from '../../src/share/store.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { jwtOf } from '../support/jwt.ts'
import { anyRecord, POLICY } from '../support/share-world.ts'

const HOUR_MS = 3_600_000
const STORE_MS = 1_800_000_000_000
const NOTHING = { adoptedFence: 0, highestFence: 0, own: null, hosts: null }
const at = (nowMs: number, assumedLifeMs = 15 * 60_000): Moment => ({
  nowMs,
  wallMs: STORE_MS + nowMs,
  assumedLifeMs,
  usableUntilMs: null,
  lacksToken: true,
  host: 'this',
})

const synced = (state: ShareState, storeNowMs: number, moment: Moment): ShareState =>
  afterSync(
    afterClockRead(state, storeNowMs, { sentAtMs: moment.nowMs, nowMs: moment.nowMs }),
    storeNowMs,
    moment,
  )

const fence = fc.oneof(
  fc.integer({ min: 1, max: 20 }).map((number) => STORE_MS + number),
  fc.constantFrom(0.5, 2 ** 53, Infinity, Number.NaN),
)
const stored: fc.Arbitrary<StoredRecord> = fc.record({
  fence,
  atMs: fc.integer({ min: -HOUR_MS, max: HOUR_MS }).map((ms) => STORE_MS + ms),
  notBeforeMs: fc.constantFrom(0, STORE_MS + HOUR_MS, Number.MAX_SAFE_INTEGER),
  nowMs: fc.integer({ min: -HOUR_MS, max: HOUR_MS }).map((ms) => STORE_MS + ms),
  sealed: fc.constant(''),
})
const events = fc.array(
  fc.record({
    what: fc.constantFrom('record', 'deliver', 'deliver', 'alone', 'own', 'sync'),
    stored,
    record: fc.option(anyRecord),
    passMs: fc.integer({ min: 0, max: HOUR_MS }),
  }),
  { maxLength: 30 },
)

test('fences never go back, a record is delivered in at most two parts and once, and nothing while an own outcome waits', () => {
  fc.assert(
    fc.property(events, (story) => {
      let state = initialShareState(NOTHING)
      let nowMs = 1_000
      const delivered: number[] = []
      for (const event of story) {
        nowMs += event.passMs
        const before = state
        state = stepped(state, event, { nowMs, delivered })
        expect(state.highestFence).toBeGreaterThanOrEqual(before.highestFence)
        expect(state.adoptedFence).toBeGreaterThanOrEqual(before.adoptedFence)
        expect(state.highestFence).toBeGreaterThanOrEqual(state.adoptedFence)
        if (state.own !== null) expect(nextDelivery(state, at(nowMs))).toBeNull()
      }
      expect(new Set(delivered).size).toBe(delivered.length)
      expect(delivered.toSorted((one, other) => one - other)).toEqual(delivered)
    }),
    { numRuns: 1_000 },
  )
})

function stepped(
  state: ShareState,
  {
    what,
    stored: given,
    record: inside,
  }: { what: string; stored: StoredRecord; record: SharedRecord | null },
  { nowMs, delivered }: { nowMs: number; delivered: number[] },
): ShareState {
  const moment = at(nowMs)
  const own = inside && { record: inside, obtainedAtMs: nowMs }
  switch (what) {
    case 'record': {
      const open = ({ fence: number }: StoredRecord): SharedRecord | null =>
        Number.isSafeInteger(number) ? inside : null
      return afterRecord(state, { stored: given, open, route: 'push' }, moment)
    }
    case 'deliver': {
      let after = state
      for (let part = 0; ; part += 1) {
        const next = nextDelivery(after, moment)
        if (next === null) return after
        expect(part).toBeLessThan(2)
        if (next.adopted !== null) delivered.push(next.adopted.head.fence)
        after = next.state
      }
    }
    case 'alone':
      return { ...state, own }
    case 'own':
      return own === null
        ? state
        : afterOwnRecord(state, { ...own, head: { ...given, fence: state.highestFence + 1 } })
    default:
      return synced(state, given.nowMs, moment)
  }
}

test('no lease, pace or pause holds a host up for longer than its cap from when it first saw it', () => {
  const looks = fc.array(
    fc.record({
      passMs: fc.integer({ min: 0, max: 10_000 }),
      waitMs: fc.oneof(fc.integer({ min: 1, max: 10 ** 12 }), fc.constant(Infinity)),
    }),
    { minLength: 1, maxLength: 40 },
  )
  fc.assert(
    fc.property(looks, (story) => {
      let state = initialShareState(NOTHING)
      let nowMs = 1_000
      const caps = { lease: 30_000, pace: 30_000, pause: 5_000 }
      for (const { passMs, waitMs } of story) {
        nowMs += passMs
        const leftMs = (hold: Hold): number =>
          Math.max(0, 1_000 + (story[0]?.passMs ?? 0) + caps[hold] - nowMs)
        for (const hold of ['lease', 'pace', 'pause'] as const) {
          const wait = afterHold(state, { hold, id: 7, waitMs, capMs: caps[hold] }, nowMs)
          expect(wait.waitMs).toBeLessThanOrEqual(leftMs(hold))
          state = wait.state
        }
        expect(leaseRequest(state, { cause: 'client', leaseMs: 17_000, nowMs }).ignored).toEqual({
          record: 0,
          lease: leftMs('lease') === 0 ? '7' : '',
          pause: leftMs('pause') === 0 ? 7 : 0,
          pace: leftMs('pace') === 0,
        })
      }
    }),
  )
})

test('the later of an own outcome and a record counts, and of equal age the record', () => {
  const ok = (accessToken: string): SharedRecord => ({
    kind: 'ok',
    by: 'other',
    accessToken,
    lifeMs: HOUR_MS,
    expirySource: 'jwt',
    ageMs: 0,
  })
  fc.assert(
    fc.property(fc.integer({ min: -1_000, max: 1_000 }), (leadMs) => {
      const given = { fence: STORE_MS, atMs: STORE_MS, notBeforeMs: 0, nowMs: STORE_MS + 5_000, sealed: '' }
      const moment = at(10_000)
      const own = { record: ok('own'), obtainedAtMs: 5_000 + leadMs }
      const known = { stored: given, open: () => ok('theirs'), route: 'look' } as const
      const state = afterRecord({ ...initialShareState(NOTHING), own }, known, moment)
      const after = synced(state, given.nowMs, moment)
      expect(after.newest?.record).toMatchObject({ accessToken: leadMs > 0 ? 'own' : 'theirs' })
      expect(after.adoptedFence).toBe(leadMs > 0 ? after.highestFence : 0)
    }),
  )
})

const recorded = (outcome: ServiceOutcome, nowMs = 1_000) =>
  recordOf(outcome, { newest: null, retry: POLICY }, at(nowMs))

test.each([503, undefined])(
  'a failure with the HTTP status %s is the same at every host, with what is left of its wait',
  (status) => {
    const detail = 'Down for maintenance'
    const failure = { kind: 'transient', reason: 'server-error', detail, ...(status && { status }) } as const
    const { record, waitMs } = recorded(failure)
    const head = { fence: STORE_MS, atMs: STORE_MS, notBeforeMs: STORE_MS + waitMs }
    const known = { head, record, obtainedAtMs: 1_000 }
    const retryAfterMs = waitMs - 100
    expect(outcomeOf(known, { host: 'that', nowMs: 1_100 })).toEqual({
      ...failure,
      retryAfterMs,
      askedBy: 'this',
      known: String(STORE_MS),
    })
    expect(keptMs(known, 1_100)).toBe(retryAfterMs + HOUR_MS)
  },
)

test('a token that has expired when it comes is a failure for all, and no token', () => {
  const exp = (STORE_MS + 1_000) / 1_000
  const { record } = recorded({ kind: 'ok', accessToken: jwtOf({ exp }), serverDateMs: exp * 1_000 })
  expect(record).toMatchObject({ kind: 'transient', reason: 'malformed-answer', token: null })
})

test('a record that is known changes nothing; one that is of no use is noted, and not opened as the newest', () => {
  const ok = { kind: 'ok', by: 'other', accessToken: 't', expirySource: 'jwt', ageMs: 0 } as const
  const given = { fence: STORE_MS, atMs: STORE_MS, notBeforeMs: 0, nowMs: STORE_MS, sealed: '' }
  const received = (state: ShareState, record: SharedRecord, nowMs: number): ShareState =>
    afterRecord(state, { stored: given, open: () => record, route: 'look' }, at(nowMs))
  const none = initialShareState({ ...NOTHING, adoptedFence: STORE_MS, highestFence: STORE_MS })
  // A restart: the record that the keeper has is to be known again.
  const known = received(none, { ...ok, lifeMs: HOUR_MS }, 0)
  expect(known.newest?.record).toMatchObject({ accessToken: 't' })
  expect(received(known, { ...ok, lifeMs: HOUR_MS }, 0)).toBe(known)
  const useless = received(none, { ...ok, lifeMs: HOUR_MS, ageMs: HOUR_MS }, 0)
  expect(useless).toEqual({ ...none, unusableFence: STORE_MS })
  // A push that was under way for 10 s is as old as the store's clock says.
  const late = received(synced(none, STORE_MS, at(0)), { ...ok, lifeMs: HOUR_MS }, 10_000)
  expect(late.newest?.obtainedAtMs).toBe(0)
  // A later record of another host came while this one was written.
  const head = { fence: STORE_MS - 1, atMs: STORE_MS - 1, notBeforeMs: 0 }
  const own = { head, record: { ...ok, lifeMs: HOUR_MS }, obtainedAtMs: 0 }
  expect(afterOwnRecord(known, own)).toEqual(known)
})
