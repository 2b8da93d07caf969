// The readers of the token, and the clients that report it as refused: counted, and logged once an hour.
import { expect, test } from 'vitest'
import { createTokenAudit, type Reader } from '../../src/delivery/token-audit.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { createRecords } from '../support/records.ts'

const HOUR_MS = 3_600_000
const peerOf = (uid: number) => ({ uid, gid: uid, pid: 7, isPrivileged: false })
const readerOf = (uid = 1_000): Reader => ({ peer: peerOf(uid), lastRead: null })

function start() {
  const { log, records } = createRecords()
  const clock = createFakeClock({ wallMs: 0 })
  const fieldsOf = (event: string) => records.map(({ fields }) => fields).filter((one) => one.event === event)
  return { audit: createTokenAudit({ log, clock }), clock, fieldsOf }
}

test('reads and reports are logged at once, then once an hour with their count', async () => {
  const { audit, clock, fieldsOf } = start()
  const reader = readerOf()
  const counts = () =>
    ['token-taken', 'token-rejected'].map((event) => fieldsOf(event).map(({ count }) => count))
  const act = (): void => {
    audit.recordRead(reader, 'ipc', null)
    audit.recordReject(peerOf(1_000), 'http', undefined, 'replaced')
  }
  act()
  expect(counts()).toEqual([[1], [1]])
  for (let more = 0; more < 3; more += 1) act()
  await clock.advance(HOUR_MS - 1)
  audit.flush()
  expect(counts()).toEqual([[1], [1]])
  await clock.advance(1)
  audit.flush()
  expect(counts()).toEqual([
    [1, 3],
    [1, 3],
  ])
  await clock.advance(3 * HOUR_MS)
  audit.flush()
  expect(counts()).toEqual([
    [1, 3],
    [1, 3],
  ])
})

test('the status names the 20 that took the token last, the last of all first', async () => {
  const { audit, clock } = start()
  for (const uid of [...Array.from({ length: 25 }, (_, index) => index + 1), 6]) {
    await clock.advance(1)
    audit.recordRead(readerOf(uid), 'ipc', 'reader')
  }
  const readers = audit.readers()
  expect(readers).toHaveLength(20)
  expect(readers[0]).toMatchObject({ uid: 6, lastAt: '1970-01-01T00:00:00.026Z', count: 2 })
  const [client, transport, pid, lastAt] = ['reader', 'ipc', 7, '1970-01-01T00:00:00.025Z']
  expect(readers[1]).toEqual({ uid: 25, client, transport, pid, lastAt, count: 1 })
})

test('512 names that one user invents count as one beyond 16, and hide no other user', () => {
  const { audit, fieldsOf } = start()
  const inventor = readerOf(1_001)
  audit.recordRead(inventor, 'http', null)
  for (let count = 0; count < 512; count += 1)
    audit.recordRead(inventor, count % 2 === 0 ? 'ipc' : 'http', `name ${count}`)
  audit.recordRead(inventor, 'ipc', null)
  audit.recordRead(readerOf(1_002), 'ipc', 'billing')
  const taken = fieldsOf('token-taken')
  const invented = taken.filter(({ uid }) => uid === 1_001).map(({ client }) => client)
  const names = Array.from({ length: 16 }, (_, count) => `name ${count}`)
  expect(invented).toEqual([undefined, ...names, '(other names)', '(other names)', undefined])
  expect(fieldsOf('token-given')[0]).toEqual({ event: 'token-given', transport: 'http', uid: 1_001, pid: 7 })
  expect(taken.at(-1)).toMatchObject({ uid: 1_002, client: 'billing' })
})

test('names and ids without end make 200 records an hour, and one of those left out', async () => {
  const { audit, clock, fieldsOf } = start()
  const records = (): number => fieldsOf('token-taken').length + fieldsOf('token-rejected').length
  audit.recordRead(readerOf(1), 'ipc', 'billing')
  for (let uid = 10_000; uid < 20_000; uid += 1) {
    audit.recordRead(readerOf(uid), 'ipc', 'scan')
    if (uid % 100 === 0) audit.recordReject(peerOf(uid), 'http', 'scan', 'replaced')
  }
  expect(records()).toBe(200)
  // Its place was not taken, and neither does it have a second record in this hour.
  audit.recordRead(readerOf(1), 'ipc', 'billing')
  expect(records()).toBe(200)
  await clock.advance(HOUR_MS - 1)
  audit.flush()
  expect(fieldsOf('token-records-left-out')).toEqual([])
  await clock.advance(1)
  audit.flush()
  expect(fieldsOf('token-records-left-out')).toEqual([{ event: 'token-records-left-out', count: 9_901 }])
  expect(fieldsOf('token-taken').filter(({ uid }) => uid === 1)).toHaveLength(2)
  expect(records()).toBe(400)
})
