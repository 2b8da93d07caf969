import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, lstatSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'
import { whileAsked } from '../../src/delivery/misconfigured.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { connectRaw } from '../support/ipc-client.ts'
import { lacks } from '../support/lacks.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const source = (path: string): string => new URL(`../../src/delivery/${path}`, import.meta.url).href

it.skipIf(lacks('python3', 'curl'))(
  'clients that wait at inherited sockets are answered, and the sockets stay',
  async () => {
    const directory = await tempDirectory()
    const handOver = new URL('../support/hand-over.py', import.meta.url).pathname
    const program = `
    import { takeInheritedSockets } from '${source('../lib/socket-activation.ts')}'
    import { serveMisconfigured } from '${source('misconfigured.ts')}'
    const inherited = takeInheritedSockets(process.env, process.pid)
    const signal = new AbortController().signal
    await serveMisconfigured(inherited, { message: 'Fix it', log() {}, signal, forMs: 1500 })`
    const command = [process.execPath, '--input-type=module', '-e', program]
    const child = spawn('python3', [handOver, 'ipc:http', directory, ...command], { stdio: 'inherit' })
    onTestFinished(() => void child.kill('SIGKILL'))
    const ended = once(child, 'exit')
    const [path, httpPath] = [join(directory, '0.sock'), join(directory, '1.sock')]
    await expectUntil('the sockets', () => existsSync(httpPath))
    const { ino, mode } = lstatSync(path)
    const ipc = await connectRaw(path)
    ipc.ask('token.get', { id: '1', waitSeconds: 60 })
    ipc.ask('token.reject', { id: '2', fingerprint: '0123456789abcdef' })
    ipc.ask('status.get', { id: '3' })
    for (const [index, id] of ['1', '2', '3'].entries()) {
      expect(await ipc.frame(index)).toEqual({
        type: 'fault',
        data: { id, code: 'misconfigured', message: 'Fix it' },
      })
    }
    ipc.ask('alert.test', { id: '4' })
    expect(await ipc.frame(3)).toMatchObject({
      data: { outcome: 'refused', detail: expect.stringContaining('faulty') as string },
    })
    const { stdout } = await promisify(execFile)('curl', [
      '-s',
      '--unix-socket',
      httpPath,
      'http://localhost/v1/token',
    ])
    expect(JSON.parse(stdout)).toMatchObject({ status: 503, code: 'misconfigured' })
    expect(await ended).toEqual([0, null])
    expect(lstatSync(path)).toMatchObject({ ino, mode })
    expect(existsSync(httpPath)).toBe(true)
  },
)

it.each([
  ['without a client', [], 2],
  ['with one that asks once', [1], 16],
  ['with one that asks every 10 s', Array.from({ length: 10 }, (_, index) => 1 + 10 * index), 60],
  ['with one that comes late', [5], 2],
])('%s, asked at %j s, the daemon answers for %i s', async (_, asked, seconds) => {
  const clock = createFakeClock()
  const begunMs = clock.now().bootMs
  const signal = new AbortController().signal
  let endedMs: number | null = null
  const last = (): number | null =>
    asked.map((at) => begunMs + at * 1_000).findLast((at) => at <= clock.now().bootMs) ?? null
  void whileAsked(last, { forMs: 60_000, clock, signal }).then(() => (endedMs = clock.now().bootMs - begunMs))
  for (let step = 0; step < 70; step += 1) await clock.advance(1_000)
  expect(endedMs).toBe(seconds * 1_000)
})
