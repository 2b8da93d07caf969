// The users that took tokens, and those that reported them as refused: counted, and logged once an hour.
import { expect, onTestFinished, test, vi } from 'vitest'
import { createTokenAudit } from '../../src/delivery/token-audit.ts'
import { createRecords } from '../support/records.ts'

const HOUR_MS = 3_600_000

function start() {
  const { log, records } = createRecords()
  let nowMs = 0
  const fieldsOf = (event: string) => records.map(({ fields }) => fields).filter((one) => one.event === event)
  return {
    audit: createTokenAudit({ log, nowMs: () => nowMs }),
    pass: (ms: number) => (nowMs += ms),
    fieldsOf,
  }
}

test('reads and reports are logged at once, then once an hour with their count', () => {
  const { audit, pass, fieldsOf } = start()
  const counts = () =>
    ['token-taken', 'token-rejected'].map((event) => fieldsOf(event).map(({ count }) => count))
  const act = (): void => {
    audit.noteRead(1_000, 'ipc', undefined)
    audit.noteReject(1_000, 'http', undefined)
  }
  for (let times = 0; times < 4; times += 1) act()
  pass(HOUR_MS - 1)
  audit.maintain()
  expect(counts()).toEqual([[1], [1]])
  pass(1)
  audit.maintain()
  act()
  expect(counts()).toEqual([
    [1, 3],
    [1, 4],
  ])
})

test('a user is one reader, at both sockets and under each of its names, of which 8 are named', () => {
  const { audit } = start()
  vi.spyOn(Date, 'now').mockReturnValue(5)
  onTestFinished(() => void vi.restoreAllMocks())
  for (let index = 0; index < 20; index += 1) audit.noteRead(1_000, 'ipc', `name-${index}`)
  audit.noteRead(1_000, 'http', undefined)
  audit.noteRead(7, 'http', 'other')
  const clients = Array.from({ length: 8 }, (_, index) => `name-${index}`)
  const lastAt = '1970-01-01T00:00:00.005Z'
  expect(audit.readers()).toEqual([
    { uid: 1_000, count: 21, lastAt, clients },
    { uid: 7, count: 1, lastAt, clients: ['other'] },
  ])
})
