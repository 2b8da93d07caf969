// Who was over a limit of connections: in the log once an hour for each user, and in the status of root.
import { expect, it } from 'vitest'
import { createLimitedUsers } from '../../src/delivery/limited.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { createRecords } from '../support/records.ts'

const PER_USER = { setting: 'maxConnectionsPerUser', limit: 128 } as const
const ALL = { setting: 'maxConnections', limit: 1_024 } as const

function createWorld() {
  const clock = createFakeClock()
  const { log, records } = createRecords()
  const limited = createLimitedUsers({ log, clock })
  const logged = () =>
    records.map(({ fields }) => [fields['uid'], fields['setting'], fields['count']].join(' '))
  return { clock, limited, logged }
}

it('each user has one record an hour, with the count since the last one', async () => {
  const { clock, limited, logged } = createWorld()
  for (let count = 0; count < 5; count += 1) limited.note('ipc', 4_001, PER_USER)
  limited.note('http', 4_002, ALL)
  expect(logged()).toEqual(['4001 ipc.maxConnectionsPerUser 1', '4002 http.maxConnections 1'])
  await clock.advance(3_500_000)
  limited.flush()
  limited.note('http', 4_001, PER_USER)
  expect(logged()).toHaveLength(2)
  await clock.advance(200_000)
  limited.flush()
  limited.flush()
  expect(logged().slice(2)).toEqual(['4001 http.maxConnectionsPerUser 5'])
})

it('the status has each socket, user and setting, the last first, and at most 64', () => {
  const { limited } = createWorld()
  limited.note('ipc', 4_001, PER_USER)
  limited.note('ipc', 4_002, PER_USER)
  limited.note('ipc', 4_001, ALL)
  limited.note('ipc', 4_001, PER_USER)
  expect(limited.list()).toMatchObject([
    { socket: 'ipc', uid: 4_001, ...PER_USER, count: 2 },
    { uid: 4_001, ...ALL, count: 1 },
    { uid: 4_002, ...PER_USER, count: 1 },
  ])
  for (let uid = 5_000; uid < 5_100; uid += 1) limited.note('ipc', uid, PER_USER)
  expect(limited.list()).toHaveLength(64)
})
