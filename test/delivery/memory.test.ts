// The bound for the memory of all connections together, on real sockets with a small one: nothing is read
// while it is reached, and those end that hold most and take nothing.
import { expect, describe, it, vi, onTestFinished } from 'vitest'
import { createMemory, type Holder } from '../../src/delivery/memory.ts'
import { asStranger, startWithToken, type DeliveryWorld } from '../support/delivery-world.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { expectUntil } from '../support/until.ts'

const LARGE = 'x'.repeat(16_000)
const REQUESTS = {
  ipc: '{"type":"token.get","data":{"id":"1"}}\f',
  http: 'GET /v1/token HTTP/1.1\r\nHost: x\r\n\r\n',
}
const sockets = ['ipc', 'http'] as const
const pathOf = (world: DeliveryWorld, socket: 'ipc' | 'http'): string =>
  socket === 'ipc' ? world.ipcPath : world.httpPath

describe.each(sockets)('%s.sock', (socket) => {
  it('clients that never read are ended after 1 s, one that takes a little stays, and others are answered', async () => {
    const world = await startWithToken({ tokenOf: () => LARGE, fullBytes: 200_000, loadLibc: asStranger })
    const slow = await connectRaw(pathOf(world, socket), { reads: false })
    slow.write(REQUESTS[socket].repeat(300))
    const taking = setInterval(() => void slow.socket.read(2_048), 50)
    onTestFinished(() => clearInterval(taking))
    slow.socket.on('readable', () => undefined)
    for (let count = 0; count < 30; count += 1) {
      const stuck = await connectRaw(pathOf(world, socket), { reads: false })
      stuck.write(REQUESTS[socket].repeat(300))
    }
    await expectUntil('a full memory', world.memory.isFull)
    await expectUntil('the first ends', () => world[socket].counts().dropped.stalled > 0)
    expect(await askOnce(world.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
    expect(world.memory.bytes()).toBeLessThan(200_000)
    expect(slow.isClosed()).toBe(false)
    await world.stop()
    await expectUntil('nothing', () => world.memory.bytes() === 0)
  })

  it('what a client holds is counted, and nothing when it has gone', async () => {
    const world = await startWithToken({ tokenOf: () => LARGE })
    const client = await connectRaw(pathOf(world, socket), { reads: false })
    client.write(REQUESTS[socket].repeat(300))
    await expectUntil('what it holds', () => world.memory.bytes() > 16_000)
    expect(world.memory.bytes()).toBeLessThan(64_000)
    client.socket.destroy()
    await expectUntil('nothing', () => world.memory.bytes() === 0)
  })
})

it('is full from 20 MiB on', () => {
  const memory = createMemory()
  const holder: Holder = { held: 0, mark: null }
  memory.setHeld(holder, 20 * 1024 * 1024 - 1)
  expect(memory.isFull()).toBe(false)
  vi.useFakeTimers()
  onTestFinished(() => void vi.useRealTimers())
  memory.setHeld(holder, 20 * 1024 * 1024)
  expect(memory.isFull()).toBe(true)
})

describe('many that hold much', () => {
  /** Ten connections that hold as much as is said, the bytes that their peers have read, and who has ended. */
  function members(held: number[]) {
    vi.useFakeTimers()
    const uptime = vi.spyOn(process, 'uptime')
    let nowMs = 0
    uptime.mockImplementation(() => nowMs / 1_000)
    onTestFinished(() => {
      uptime.mockRestore()
      vi.useRealTimers()
    })
    const memory = createMemory({ fullBytes: 100 })
    const all = held.map((bytes): Holder & { bytes: number; read: number } => ({
      held: 0,
      mark: null,
      bytes,
      read: 0,
    }))
    const ended: number[] = []
    const calls: string[] = []
    memory.join<(typeof all)[number]>({
      members: () => all.filter((_, index) => !ended.includes(index)),
      heldBy: ({ bytes }) => bytes,
      readByPeer: ({ read }) => read,
      pause: () => void calls.push('pause'),
      resume: () => void calls.push('resume'),
      end: (member) => void ended.push(all.indexOf(member)),
    })
    const passMs = (ms: number) => {
      for (let passed = 0; passed < ms; passed += 50) {
        nowMs += 50
        vi.advanceTimersByTime(50)
      }
    }
    return {
      memory,
      all,
      ended,
      calls,
      passMs,
      fill: () => all.forEach((each) => memory.setHeld(each, each.bytes)),
    }
  }

  it('under the bound nothing happens', () => {
    const { fill, passMs, calls, ended } = members([40, 40, 19])
    fill()
    passMs(5_000)
    expect(calls).toEqual([])
    expect(ended).toEqual([])
  })

  it('at the bound nothing is read, which ends nobody, until it is less', () => {
    const { fill, passMs, calls, ended, all, memory } = members([40, 40, 20])
    fill()
    expect(calls).toEqual(['pause'])
    passMs(900)
    all[0]!.bytes = 39
    memory.setHeld(all[0]!, 39)
    passMs(50)
    expect(calls).toEqual(['pause', 'resume'])
    passMs(5_000)
    expect(ended).toEqual([])
  })

  it('after 1 s those that took nothing end, the one that holds most first, until half is free', () => {
    const { fill, passMs, ended, all, calls } = members([10, 35, 30, 60])
    fill()
    passMs(900)
    all[1]!.read = 1
    passMs(150)
    expect(ended).toEqual([3, 2])
    expect(calls).toEqual(['pause', 'resume'])
  })

  it('of those that all take bytes none ends, however much they hold', () => {
    const { fill, passMs, ended, all } = members([150, 150])
    fill()
    for (let count = 0; count < 50; count += 1) {
      for (const each of all) each.read += 1
      passMs(100)
    }
    expect(ended).toEqual([])
  })
})
