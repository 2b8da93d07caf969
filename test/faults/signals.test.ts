// Signals from the first moment on: an orderly end with 0 within 5 s, and nothing that kills by surprise.
import { existsSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import type { Daemon } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { connectRaw } from '../support/ipc-client.ts'
import { httpAsk, tokenOf } from '../support/outside.ts'
import { expectUntil } from '../support/until.ts'

const WITHIN_MS = 5_000
const preload = new URL('../support/signal-at-load.cjs', import.meta.url).pathname
const world = useDaemons()
const { start, started } = world

async function expectOrderlyEnd(daemon: Daemon, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  const begunMs = performance.now()
  expect(await daemon.end(signal)).toBe(0)
  expect(performance.now() - begunMs).toBeLessThan(WITHIN_MS)
  expect(existsSync(daemon.ipcPath)).toBe(false)
  expect(existsSync(daemon.httpPath)).toBe(false)
}

test('a stop with clients that wait: each is answered before its connection ends', async () => {
  world.service.answer(() => undefined)
  const daemon = await started()
  await world.service.arrived(1)
  const clients = await Promise.all(Array.from({ length: 20 }, () => connectRaw(daemon.ipcPath)))
  for (const client of clients) client.ask('token.get', { id: 'waiting', waitSeconds: 60 })
  const overHttp = httpAsk(daemon, '/v1/token?waitSeconds=60')
  await expectUntil('all to be there', async () => {
    const { json } = await httpAsk(daemon, '/v1/status')
    return (json['clients'] as { ipc: { connections: number } }).ipc.connections === 20
  })
  await expectOrderlyEnd(daemon)
  expect(await overHttp).toMatchObject({ status: 503, json: { code: 'no-token-yet' } })
  for (const client of clients) {
    expect(await client.frame(0)).toMatchObject({
      type: 'fault',
      data: { id: 'waiting', code: 'no-token-yet' },
    })
  }
})

describe('while its first modules are loaded', () => {
  const modules = [1, 2, 4, 8, 16, 24]
  const startWith = (signal: NodeJS.Signals, at: number): Daemon =>
    start({}, { env: { NODE_OPTIONS: `--require=${preload}`, SIGNAL: signal, SIGNAL_AT: String(at) } })

  test.each(['SIGTERM', 'SIGINT'] as const)('%s ends it with 0, and nothing is asked', async (signal) => {
    for (const at of modules) {
      const daemon = startWith(signal, at)
      expect(await daemon.ended(), `at module ${at}`).toBe(0)
      expect(daemon.stderr()).toBe('')
    }
    expect(world.service.requests).toHaveLength(0)
  })

  test.each(['SIGHUP', 'SIGUSR1', 'SIGUSR2'] as const)('%s ends nothing', async (signal) => {
    const daemon = startWith(signal, 1)
    await daemon.listening()
    if (signal === 'SIGHUP') await daemon.logged('reloaded')
    daemon.process.kill(signal)
    expect((await tokenOf(daemon)).state).toBe('ready')
    await expectOrderlyEnd(daemon)
    // With SIGUSR1 Node opens its inspector.
    expect(daemon.stderr()).not.toContain('Debugger')
  })
})
