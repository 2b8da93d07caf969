// A store that hangs up is connected to again soon, and then less often; one that is no master any more, at once.
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'
import { connect } from '../../src/share/redis-client.ts'
import { settingsOf } from '../support/redis.ts'
import { expectUntil } from '../support/until.ts'

async function listen(onConnection: (socket: Socket) => void): Promise<{ host: string; port: number }> {
  const server = createServer(onConnection).listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await new Promise((resolve) => server.once('listening', resolve))
  return { host: '127.0.0.1', port: (server.address() as AddressInfo).port }
}

test('a lost connection is made again after a fraction of a second, and later after longer', async () => {
  const connectedAt: number[] = []
  const address = await listen((socket) => {
    connectedAt.push(performance.now())
    socket.destroy()
  })
  const connection = await connect(settingsOf({ address }), {
    clock: createSystemClock(),
    random: Math.random,
  })
  onTestFinished(() => connection.close())
  await expectUntil('several connections', () => connectedAt.length > 4)
  const waits = connectedAt.slice(1).map((at, index) => at - (connectedAt[index] ?? 0))
  // The fourth is drawn from 0.8 s to 1.6 s; without a limit for the first ones each would be over 2.5 s.
  expect(Math.min(...waits)).toBeLessThan(1_000)
  expect(waits[3]).toBeGreaterThan(700)
})

test.each([
  ["READONLY You can't write against a read only replica.", 2],
  ['LOADING Redis is loading the dataset in memory', 2],
  ["OOM command not allowed when used memory > 'maxmemory'.", 1],
  ['ERR not READONLY, and not LOADING', 1],
])(
  'a refused command is not sent again, and after %j the connections are %d',
  async (refusal, connections) => {
    const commands: number[] = []
    let answer = '+OK'
    const address = await listen((socket) => {
      const nth = commands.push(0) - 1
      socket.on('error', () => undefined)
      socket.on('data', (data) => {
        const received = data.toString().match(/^\*\d+\r$/gm) ?? []
        commands[nth] = (commands[nth] ?? 0) + received.length
        for (const _ of received) socket.write(`${answer}\r\n`)
      })
    })
    const connection = await connect(settingsOf({ address }), {
      clock: createSystemClock(),
      random: Math.random,
    })
    onTestFinished(() => connection.close())
    await connection.firstContact
    answer = `-${refusal}`
    await expect(connection.client.get('key')).rejects.toThrow(refusal)
    const before = commands[0]
    answer = '+OK'
    await expectUntil('the next answer', () => connection.client.get('key').catch(() => false as const))
    expect(commands).toHaveLength(connections)
    expect(commands[0]).toBe((before ?? 0) + (connections === 1 ? 1 : 0))
  },
)
