import { Socket } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import {
  createReconnectingConnection,
  type ReconnectingConnection,
  type Request,
} from '../../src/client/connection.ts'
import { CONNECTION_IDLE_MS } from '../../src/protocol.ts'
import { startScriptedDaemon, type ScriptedDaemon } from '../support/scripted-daemon.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { holds } from '../support/until.ts'

function connectionTo(findPath: () => string): ReconnectingConnection {
  const end = new AbortController()
  onTestFinished(() => end.abort())
  return createReconnectingConnection(findPath, (frame) => frame, end.signal)
}
async function silentDaemon(): Promise<ScriptedDaemon> {
  const daemon = await startScriptedDaemon(join(await tempDirectory(), 'ipc.sock'), () => undefined)
  onTestFinished(() => daemon.stop())
  return daemon
}
const question: Request = {
  frame: () => ({ type: 'status.get', data: {} }),
  onAnswer: () => undefined,
  onDisconnect: () => false,
}

/** Sockets are idle after 50 ms; gives the times that were set. */
function idleSoon(): number[] {
  const idleMs: number[] = []
  const setIdle: (this: Socket, ms: number) => Socket = Reflect.get(Socket.prototype, 'setTimeout')
  const idle = vi.spyOn(Socket.prototype, 'setTimeout')
  idle.mockImplementation(function idleSooner(this: Socket, ms) {
    idleMs.push(ms)
    return setIdle.call(this, 50)
  })
  onTestFinished(() => idle.mockRestore())
  return idleMs
}

test('an idle connection is closed before the daemon does it, also after a long silence', async () => {
  const daemon = await silentDaemon()
  const idleMs = idleSoon()
  const end = connectionTo(() => daemon.path).open(question)
  await holds(() => daemon.asked.length === 1)
  // One that is idle since later is closed meanwhile.
  connectionTo(() => daemon.path).open(question)()
  await holds(() => daemon.connections.made === 2 && daemon.connections.open === 1)
  end()
  await holds(() => daemon.connections.open === 0)
  expect(idleMs.every((ms) => ms > 0 && ms < CONNECTION_IDLE_MS)).toBe(true)
})

test('between two connects a request that does not wait hears at once of the last one', async () => {
  const path = join(await tempDirectory(), 'none.sock')
  const connection = connectionTo(() => path)
  const disconnected = new Promise<void>((resolve) => {
    connection.open({ ...question, onDisconnect: () => (resolve(), true) })
  })
  await disconnected
  const codes: unknown[] = []
  connection.open({ ...question, onDisconnect: ({ error }) => (codes.push(error), false) })
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
  expect(codes).toMatchObject([{ code: 'ENOENT' }])
})

test('a process that reads nothing is left, and nothing piles up', async () => {
  const daemon = await silentDaemon()
  idleSoon()
  const connection = connectionTo(() => daemon.path)
  const errors: unknown[] = []
  connection.open({ ...question, onDisconnect: ({ error }) => (errors.push(error?.message), false) })
  await holds(() => daemon.asked.length === 1)
  daemon.pause()
  const large: Request = {
    ...question,
    frame: () => ({ type: 'status.get', data: { x: 'x'.repeat(60_000) } }),
  }
  for (let count = 0; count < 20; count += 1) connection.open(large)
  await holds(() => errors.length === 1)
  expect(errors).toEqual(['it does not read'])
})
