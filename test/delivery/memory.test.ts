// The bound for the memory of all connections together, on real sockets with a small one: nothing is read
// while it is reached, and those end that hold most and take nothing.
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, describe, it, vi, onTestFinished } from 'vitest'
import { createMemory, type Holder } from '../../src/delivery/memory.ts'
import { createPeers } from '../../src/delivery/peers.ts'
import { asStranger, startWithToken } from '../support/delivery-world.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const LARGE = 'x'.repeat(16_000)
const REQUESTS = {
  ipc: '{"type":"token.get","data":{"id":"1"}}\f',
  http: 'GET /v1/token HTTP/1.1\r\nHost: x\r\n\r\n',
}

/** Time as the memory sees it, which passes when the test says so. */
function playTime(toFake: ('setTimeout' | 'setImmediate')[] = ['setTimeout', 'setImmediate']) {
  vi.useFakeTimers({ toFake })
  let nowMs = 0
  const uptime = vi.spyOn(process, 'uptime').mockImplementation(() => nowMs / 1_000)
  const end = () => {
    uptime.mockRestore()
    vi.useRealTimers()
  }
  onTestFinished(end)
  const passMs = (ms: number): void => {
    for (let passed = 0; passed < ms; passed += 50) {
      nowMs += 50
      vi.advanceTimersByTime(50)
    }
  }
  return { passMs, end }
}

/** A client that takes as many bytes as the test says, and leaves the rest in the kernel. */
async function connectSipping(path: string) {
  let taken = 0
  const socket = connect({
    path,
    onread: {
      buffer: Buffer.alloc(1_024),
      callback: (length) => {
        taken += length
        return false
      },
    },
  })
  onTestFinished(() => void socket.destroy())
  await once(socket, 'connect')
  return {
    socket,
    async take(bytes: number): Promise<void> {
      const until = taken + bytes
      const isTaken = () => taken >= until || socket.destroyed
      for (; !isTaken(); await nextTurn()) socket.resume()
    },
  }
}

describe.each(['ipc', 'http'] as const)('%s.sock', (transport) => {
  it('clients that never read are ended after 1 s, one that takes a little stays, and others are answered', async () => {
    const world = await startWithToken({ tokenOf: () => LARGE, fullBytes: 200_000, loadLibc: asStranger })
    const path = transport === 'ipc' ? world.ipcPath : world.httpPath
    const { passMs, end } = playTime(['setTimeout'])
    const slow = await connectSipping(path)
    slow.socket.write(REQUESTS[transport].repeat(300))
    await expectUntil('what it holds', () => world.memory.bytes() > 0)
    for (let count = 0; count < 30; count += 1) {
      const stuck = await connectRaw(path, { reads: false })
      stuck.write(REQUESTS[transport].repeat(300))
    }
    await expectUntil('a full memory', world.memory.isFull)
    const ended = () => world[transport].counts().dropped.stalled
    for (const areEnded of [false, true]) {
      await slow.take(16_000)
      passMs(900)
      expect(ended() > 0).toBe(areEnded)
    }
    expect(slow.socket.destroyed).toBe(false)
    const passing = setInterval(() => passMs(50), 1)
    expect(await askOnce(world.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
    clearInterval(passing)
    expect(world.memory.bytes()).toBeLessThan(200_000)
    end()
    await world.stop()
    await expectUntil('nothing', () => world.memory.bytes() === 0)
  })
})

it('what is still in the kernel has not been read by the peer', async () => {
  const path = join(await tempDirectory(), 's')
  const server = createServer({ pauseOnConnect: true }).listen(path)
  onTestFinished(() => void server.close())
  const accepted = once(server, 'connection') as Promise<[Socket]>
  const client = await connectSipping(path)
  const peers = createPeers()
  const socket = peers.reopen((await accepted)[0], {})!
  onTestFinished(() => void socket.destroy())
  await new Promise((resolve) => socket.write('x'.repeat(8_000), resolve))
  // The kernel counts its own overhead, too.
  expect(peers.readByPeer(socket)).toBeLessThanOrEqual(0)
  await client.take(8_000)
  expect(peers.readByPeer(socket)).toBe(8_000)
})

it('is full from 20 MiB on', () => {
  playTime()
  const memory = createMemory()
  const holder: Holder = { held: 0, mark: null }
  memory.setHeld(holder, 20 * 1024 * 1024 - 1)
  expect(memory.isFull()).toBe(false)
  memory.setHeld(holder, 20 * 1024 * 1024)
  expect(memory.isFull()).toBe(true)
})

describe('many that hold much', () => {
  /** Connections that hold as much as is said, the bytes that their peers have read, and who has ended. */
  function members(held: number[]) {
    const { passMs } = playTime()
    const memory = createMemory({ fullBytes: 100 })
    const all = held.map((bytes) => ({ held: 0, mark: null as Holder['mark'], bytes, read: 0 }))
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
    for (const each of all) memory.setHeld(each, each.bytes)
    return { memory, all, ended, calls, passMs }
  }

  it('under the bound nothing happens', () => {
    const { passMs, calls, ended } = members([40, 40, 19])
    passMs(5_000)
    expect([calls, ended]).toEqual([[], []])
  })

  it('at the bound nothing is read, which ends nobody, until it is less', () => {
    const { passMs, calls, ended, all, memory } = members([40, 40, 20])
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
    const { passMs, ended, all, calls } = members([10, 35, 30, 60])
    passMs(900)
    all[1]!.read = 1
    expect(ended).toEqual([])
    passMs(150)
    expect(ended).toEqual([3, 2])
    expect(calls).toEqual(['pause', 'resume'])
  })

  it('of those that all take bytes none ends, however much they hold', () => {
    const { passMs, ended, all } = members([150, 150])
    for (let count = 0; count < 50; count += 1) {
      for (const each of all) each.read += 1
      passMs(100)
    }
    expect(ended).toEqual([])
  })
})
