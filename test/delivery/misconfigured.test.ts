// Answers at sockets of systemd while the configuration is faulty, and the time for which they are given.
import { existsSync, lstatSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { serveMisconfigured } from '../../src/delivery/servers.ts'
import { loadLibc } from '../../src/lib/libc.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { httpAsk } from '../support/outside.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'

/** A daemon with both sockets, which answers until it returns, with the times at which it has ended, in s. */
async function serve() {
  const directory = await tempDirectory()
  const [ipcPath, httpPath] = [join(directory, 'ipc.sock'), join(directory, 'http.sock')]
  const [ipc, http] = [ipcPath, httpPath].map((path) => loadLibc().listenAt(path, 16))
  const clock = createFakeClock()
  const begunMs = clock.now().bootMs
  const inherited = { ipc: [ipc!], http: [http!], metrics: [], credential: [], unknown: [] }
  const { log } = createRecords()
  let endedAfterMs: number | null = null
  const signal = new AbortController().signal
  const ended = serveMisconfigured(inherited, { message: 'Fix it', log, clock, signal }).then(
    () => (endedAfterMs = clock.now().bootMs - begunMs),
  )
  return { ipcPath, httpPath, clock, ended, endedAfterMs: () => endedAfterMs }
}

it('clients that wait at inherited sockets are answered, and the sockets stay', async () => {
  const { ipcPath, httpPath, clock, ended } = await serve()
  const { ino, mode } = lstatSync(ipcPath)
  const ipc = await connectRaw(ipcPath)
  const requests = [
    ['token.get', { waitSeconds: 60 }],
    ['token.subscribe', {}],
    ['token.reject', { fingerprint: '0123456789abcdef' }],
    ['status.get', {}],
    ['refresh.request', {}],
    ['alert.test', {}],
  ] as const
  for (const [index, [type, data]] of requests.entries()) {
    ipc.ask(type, { id: type, ...data })
    expect(await ipc.frame(index)).toEqual({
      type: 'fault',
      data: { id: type, code: 'misconfigured', message: 'Fix it' },
    })
  }
  expect(await httpAsk({ httpPath }, '/v1/token')).toMatchObject({
    status: 503,
    json: { code: 'misconfigured' },
  })
  await clock.advance(2_000)
  await ended
  expect(lstatSync(ipcPath)).toMatchObject({ ino, mode })
  expect(existsSync(httpPath)).toBe(true)
})

it('the daemon ends after 2 s, also if a client goes on asking', async () => {
  const { ipcPath, clock, ended, endedAfterMs } = await serve()
  await clock.settle()
  await clock.advance(1_999)
  expect(await askOnce(ipcPath, 'token.get', {})).toMatchObject({ type: 'fault' })
  expect(endedAfterMs()).toBeNull()
  await clock.advance(1)
  await ended
  expect(endedAfterMs()).toBe(2_000)
})
