// Signals at every moment: an orderly end with 0 within 5 s, and nothing that kills by surprise.
import { existsSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
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

/** The names of signals that the process has handlers for now (proc_pid_status(5), SigCgt). */
function caught({ process: { pid } }: Daemon): Set<'SIGHUP' | 'SIGUSR2' | 'SIGTERM'> {
  const mask = BigInt(
    `0x${/^SigCgt:\s*(\w+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '0'}`,
  )
  const numbers = { SIGHUP: 1n, SIGUSR2: 12n, SIGTERM: 15n }
  const names = Object.keys(numbers) as (keyof typeof numbers)[]
  return new Set(names.filter((name) => (mask & (1n << (numbers[name] - 1n))) !== 0n))
}

/** Resolves at the first moment at which the daemon can hear signals. */
async function hearing(daemon: Daemon): Promise<void> {
  await expectUntil('the handlers', () => caught(daemon).size === 3)
}

async function expectOrderlyEnd(daemon: Daemon, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  const begunMs = performance.now()
  expect(await daemon.end(signal)).toBe(0)
  expect(performance.now() - begunMs).toBeLessThan(WITHIN_MS)
  expect(existsSync(daemon.ipcPath)).toBe(false)
  expect(existsSync(daemon.httpPath)).toBe(false)
}

describe('SIGTERM and SIGINT end it with 0 within 5 s', () => {
  test.each(['SIGTERM', 'SIGINT'] as const)('%s at its first moments', async (signal) => {
    for (const afterMs of [0, 5, 10, 20, 40, 80]) {
      const daemon = start()
      await hearing(daemon)
      await sleep(afterMs)
      await expectOrderlyEnd(daemon, signal)
      expect(daemon.stderr()).not.toContain('fault')
    }
  })

  test('with clients that wait: each is answered before its connection ends', async () => {
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

test('SIGHUP and SIGUSR2 in the first moments of its life are heard, and end nothing', async () => {
  for (let round = 0; round < 5; round += 1) {
    const before = world.service.requests.length
    const daemon = start()
    await hearing(daemon)
    for (let times = 0; times < 10; times += 1) {
      daemon.process.kill('SIGHUP')
      daemon.process.kill('SIGUSR2')
    }
    await daemon.listening()
    await daemon.logged('reloaded')
    await world.service.arrived(before + 1)
    expect((await tokenOf(daemon)).state).toBe('ready')
    await expectOrderlyEnd(daemon)
  }
})
