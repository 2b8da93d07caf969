// What goes on in a later turn of the event loop, while others connect.
import { connect } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { createTurns } from '../../src/delivery/turns.ts'
import { startWithClient } from '../support/delivery-world.ts'
import { expectUntil } from '../support/until.ts'

it('work is done once, in its order, and not at all once it is cancelled', async () => {
  const turns = createTurns()
  const done: number[] = []
  const works = Array.from({ length: 20 }, (_, index) => () => void done.push(index))
  for (const work of [...works, ...works]) turns.plan(work)
  for (const work of works.slice(0, 15)) turns.cancel(work)
  await expectUntil('all of it', () => done.length === 5)
  await nextTurn()
  expect(done).toEqual([15, 16, 17, 18, 19])
})

it('connections that ended amid their requests hold up nobody who is answered later', async () => {
  const { world, client } = await startWithClient()
  const requests = 'GET /v1/token HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(8)
  /** In each turn somebody connects, so that little of what was planned is done. */
  const over = new AbortController()
  let made = 0
  const abort = (): void => {
    const socket = connect(world.httpPath)
    made += 1
    socket.on('error', () => undefined).on('connect', () => socket.write(requests, () => socket.destroy()))
  }
  const busy = async (): Promise<void> => {
    for (; !over.signal.aborted; await nextTurn()) for (let count = 0; count < 4; count += 1) abort()
  }
  const flood = busy()
  onTestFinished(async () => {
    over.abort()
    await flood
  })
  await expectUntil('many connections that have ended', () => made > 2_000)
  const before = made
  client.ask('status.get', { id: '1' })
  expect(await client.frame(0)).toMatchObject({ type: 'status.result' })
  expect((made - before) / 4).toBeLessThan(100)
})
