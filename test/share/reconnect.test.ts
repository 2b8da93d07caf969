// A store that hangs up is connected to again soon, and then less often.
import { createServer, type AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { connect } from '../../src/share/redis-client.ts'
import { settingsOf } from '../support/redis.ts'
import { expectUntil } from '../support/until.ts'

test('a lost connection is made again after a fraction of a second, and later after longer', async () => {
  const connectedAt: number[] = []
  const server = createServer((socket) => {
    connectedAt.push(performance.now())
    socket.destroy()
  }).listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await new Promise((resolve) => server.once('listening', resolve))
  const { port } = server.address() as AddressInfo
  const connection = await connect(settingsOf({ address: { host: '127.0.0.1', port } }))
  onTestFinished(() => connection.close())
  await expectUntil('several connections', () => connectedAt.length > 4)
  const waits = connectedAt.slice(1).map((at, index) => at - (connectedAt[index] ?? 0))
  // The fourth is drawn from 0.8 s to 1.6 s; without a limit for the first ones each would be over 2.5 s.
  expect(Math.min(...waits)).toBeLessThan(1_000)
  expect(waits[3]).toBeGreaterThan(700)
})
