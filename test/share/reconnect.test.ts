// A store that is no master any more is connected to again at once, and a command that it refused is not sent again.
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
