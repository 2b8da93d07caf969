// The readers of the token, and the clients that report it as refused: counted, and logged once an hour.
import { expect, test } from 'vitest'
import { createTokenAudit, type Reader } from '../../src/delivery/token-audit.ts'
import { createRecords } from '../support/records.ts'

const HOUR_MS = 3_600_000
const peerOf = (uid: number) => ({ uid, gid: uid, pid: 7, isPrivileged: false })
const readerOf = (uid = 1_000): Reader => ({ peer: peerOf(uid), reads: null })

test('reads and reports are logged at once, then once an hour with their count', () => {
  const { log, records } = createRecords()
  let nowMs = 0
  const audit = createTokenAudit({ log, monotonicMs: () => nowMs })
  const reader = readerOf()
  const counted = (event: string): unknown[] =>
    records
      .filter(({ fields }) => fields.event === event)
      .map(({ level, fields }) => [level, fields['transport'], fields['count']])
  const act = (): void => {
    audit.recordRead(reader, 'ipc', null)
    audit.recordReject(peerOf(1_000), 'http', { client: null, verdict: 'replaced' })
  }
  act()
  expect([counted('token-taken'), counted('token-rejected')]).toEqual([
    [['info', 'ipc', 1]],
    [['warning', 'http', 1]],
  ])
  for (let more = 0; more < 3; more += 1) act()
  nowMs = HOUR_MS - 1
  audit.flush()
  expect([counted('token-taken').length, counted('token-rejected').length]).toEqual([1, 1])
  nowMs = HOUR_MS
  audit.flush()
  expect(counted('token-taken').at(-1)).toEqual(['info', 'ipc', 3])
  expect(counted('token-rejected').at(-1)).toEqual(['warning', 'http', 3])
  nowMs = 3 * HOUR_MS
  audit.flush()
  expect([counted('token-taken').length, counted('token-rejected').length]).toEqual([2, 2])
})

test('the status names the 20 that took the token last, the last of all first', () => {
  let nowMs = 0
  const audit = createTokenAudit({ log: createRecords().log, wallMs: () => (nowMs += 1) })
  for (let uid = 1; uid <= 25; uid += 1) audit.recordRead(readerOf(uid), 'ipc', 'reader')
  audit.recordRead(readerOf(6), 'ipc', 'reader')
  expect(audit.readers()[0]).toMatchObject({ uid: 6, lastAt: '1970-01-01T00:00:00.026Z', count: 2 })
  expect(audit.readers()).toHaveLength(20)
  expect(audit.readers()[1]).toEqual({
    uid: 25,
    client: 'reader',
    transport: 'ipc',
    pid: 7,
    lastAt: '1970-01-01T00:00:00.025Z',
    count: 1,
  })
})

test('512 names that one user invents count as one beyond 16, and hide no other user', () => {
  const { log, records } = createRecords()
  const audit = createTokenAudit({ log })
  const inventor = readerOf(1_001)
  for (let count = 0; count < 512; count += 1)
    audit.recordRead(inventor, count % 2 === 0 ? 'ipc' : 'http', `name ${count}`)
  audit.recordRead(readerOf(1_002), 'ipc', 'billing')
  const taken = records.filter(({ fields }) => fields.event === 'token-taken')
  expect(
    new Set(taken.filter(({ fields }) => fields['uid'] === 1_001).map(({ fields }) => fields['client'])),
  ).toContain('(other names)')
  expect(taken.filter(({ fields }) => fields['uid'] === 1_001).length).toBeLessThanOrEqual(18)
  expect(taken.at(-1)?.fields).toMatchObject({ uid: 1_002, client: 'billing' })
})
