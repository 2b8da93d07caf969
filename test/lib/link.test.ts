import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createLink, type Exchange, type Link } from '../../src/lib/link.ts'
import { startScriptedDaemon, type ScriptedDaemon } from '../support/scripted-daemon.ts'
import { tempDirectory } from '../support/temp-directory.ts'

function linkTo(path: string, { idleMs }: { idleMs: number }): Link {
  const link = createLink({ findPath: () => path, maxFrameBytes: 1_000, idleMs, random: Math.random })
  onTestFinished(() => link.close())
  return link
}
async function silentDaemon(): Promise<ScriptedDaemon> {
  const daemon = await startScriptedDaemon(join(await tempDirectory(), 'ipc.sock'), () => undefined)
  onTestFinished(() => daemon.stop())
  return daemon
}
const question: Exchange = {
  ask: () => ({ type: 'status.get', data: {} }),
  onAnswer: () => undefined,
  onLoss: () => false,
}

test('a connection is let go when nobody uses it any more, also after a long silence', async () => {
  const daemon = await silentDaemon()
  const idleMs = 50
  const end = linkTo(daemon.path, { idleMs }).open(question)
  await vi.waitUntil(() => daemon.asked.length === 1)
  await pause(4 * idleMs)
  expect(daemon.connections.open).toBe(1)
  end()
  await vi.waitUntil(() => daemon.connections.open === 0)
})
