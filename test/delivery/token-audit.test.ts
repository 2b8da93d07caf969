// The readers of the token, and the clients that report it as refused: counted, and logged once an hour.
import { expect, test } from 'vitest'
import { createTokenAudit, type Reader } from '../../src/delivery/token-audit.ts'
import { createRecords } from '../support/records.ts'

const HOUR_MS = 3_600_000
const readerOf = (pid: number): Reader => ({
  peer: { uid: 1_000, gid: 1_000, pid, isPrivileged: false },
  reads: null,
})

test('reads and reports are logged at once, then once an hour with their count', async () => {
  const { log, records } = createRecords()
  let nowMs = 0
  const audit = createTokenAudit({
    log,
    processName: () => Promise.resolve('reader'),
    monotonicMs: () => nowMs,
  })
  const reader = readerOf(7)
  const counted = (event: string): unknown[] =>
    records
      .filter(({ fields }) => fields.event === event)
      .map(({ level, fields }) => [level, fields['count']])
  const act = async (): Promise<void> => {
    audit.recordRead(reader, 'ipc', null, nowMs)
    audit.recordReject(reader.peer, 'replaced', null)
    await Promise.resolve()
    await Promise.resolve()
  }
  await act()
  expect([counted('token-taken'), counted('token-rejected')]).toEqual([[['info', 1]], [['warning', 1]]])
  for (let more = 0; more < 3; more += 1) await act()
  nowMs = HOUR_MS - 1
  audit.flush()
  expect([counted('token-taken').length, counted('token-rejected').length]).toEqual([1, 1])
  nowMs = HOUR_MS
  audit.flush()
  expect(counted('token-taken')).toEqual([
    ['info', 1],
    ['info', 3],
  ])
  expect(counted('token-rejected')).toEqual([
    ['warning', 1],
    ['warning', 3],
  ])
  nowMs = 3 * HOUR_MS
  audit.flush()
  expect([counted('token-taken').length, counted('token-rejected').length]).toEqual([2, 2])
})

test('a record without a name of the process says why', async () => {
  const { log, records } = createRecords()
  const audit = createTokenAudit({ log, processName: () => Promise.resolve(null) })
  audit.recordRead(readerOf(7), 'ipc', null, 0)
  await expect
    .poll(() => records.find(({ fields }) => fields.event === 'token-taken')?.fields)
    .toMatchObject({ process: null, processUnknown: expect.stringContaining('ProtectProc') as string })
})

test('the status names the 20 that took the token last', async () => {
  const { log } = createRecords()
  const audit = createTokenAudit({ log, processName: (pid) => Promise.resolve(`reader-${pid}`) })
  for (let pid = 1; pid <= 25; pid += 1) audit.recordRead(readerOf(pid), 'ipc', null, pid)
  await expect.poll(() => audit.readers().length).toBeGreaterThan(1)
  expect(audit.readers()).toHaveLength(20)
  expect(audit.readers()[0]).toMatchObject({ process: 'reader-25', lastAt: '1970-01-01T00:00:00.025Z' })
})

test('where 512 programs have read, one more keeps its name once others were quiet for an hour', async () => {
  const { log, records } = createRecords()
  let nowMs = 0
  const audit = createTokenAudit({
    log,
    processName: (pid) => Promise.resolve(`reader-${pid}`),
    monotonicMs: () => nowMs,
  })
  const read = async (pid: number): Promise<unknown> => {
    const before = records.length
    audit.recordRead(readerOf(pid), 'ipc', null, nowMs)
    await expect.poll(() => records.length, { interval: 1 }).toBeGreaterThan(before + 1)
    return records.at(-1)?.fields['process']
  }
  const first = Array.from({ length: 512 }, (_, index) => index + 1)
  expect(await Promise.all(first.map(read))).toContain('reader-512')
  expect(await read(513)).toBeNull()
  nowMs = HOUR_MS
  expect(await read(514)).toBe('reader-514')
})
