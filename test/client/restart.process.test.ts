// Calls over the end of a connection, and with the real daemon.
import { setTimeout as pause } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { clientOf, codeOf, daemonWith, generous } from '../support/client-world.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { granting, type ArrivedRequest, type ScriptedAnswer } from '../support/service.ts'
import { expectUntil, holds } from '../support/until.ts'

test('a call without an answer is sent once more on the next connection, and then fails', async () => {
  const daemon = await daemonWith((asking) => {
    if (asking.type !== 'status.get') generous(asking)
    else if (daemon.asked.length === 2) asking.socket.destroy()
    else asking.answer('status.result', { state: 'ready' })
  })
  const client = clientOf(daemon)
  await client.get()
  expect(await client.status()).toEqual({ state: 'ready' })
  const connectionsEnded = async (): Promise<void> => {
    daemon.cutAll()
    await holds(() => daemon.connections().open === 0)
  }
  // One that the daemon has closed while it was idle costs a call nothing.
  await connectionsEnded()
  expect(await client.status()).toEqual({ state: 'ready' })
  await connectionsEnded()
  expect((await client.get({ waitSeconds: 0 })).accessToken).toBe('token-1')
  const cutting = await daemonWith(({ socket }) => void socket.destroy())
  expect(await codeOf(clientOf(cutting).status())).toBe('daemon-unreachable')
  expect(cutting.asked).toHaveLength(2)
})

test('no call fails or is slow while there is a good token: through a restart, a crash and a suspension', async () => {
  const api = { tokens: 0, valid: '', calls: 0 }
  /** The newest token alone counts, until it is revoked. */
  function answer({ path, headers }: ArrivedRequest): ScriptedAnswer {
    if (path === '/token/external/jwt') return granting((api.valid = hourToken((api.tokens += 1))))
    api.calls += 1
    return { status: headers.authorization === `Bearer ${api.valid}` ? 200 : 401 }
  }
  const world = await commandWorld({ answer })
  let { daemon } = world
  await expectUntil('a first token', () => api.tokens === 1)
  const client = clientOf({ path: daemon.ipcPath })
  const results = new Set<unknown>()
  const stop = new AbortController()
  const lanes = Array.from({ length: 12 }, async () => {
    for (; !stop.signal.aborted; await pause(50)) {
      const call = client.fetch(`${world.service.url}/call`).then(({ status }) => status, codeIn)
      results.add(await Promise.race([call, pause(5_000, 'slow')]))
    }
  })
  const moreCalls = async (): Promise<void> => {
    const from = api.calls
    await expectUntil('more calls', () => api.calls > from + 200)
  }
  await moreCalls()
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    await daemon.end(signal)
    await moreCalls()
    daemon = await world.again()
    await moreCalls()
  }
  daemon.process.kill('SIGSTOP')
  await moreCalls()
  daemon.process.kill('SIGCONT')
  const before = api.tokens
  // All calls are refused, and one report has the daemon ask.
  api.valid = 'none'
  await expectUntil('the token after the revocation', () => api.tokens === before + 1)
  await moreCalls()
  stop.abort()
  await Promise.all(lanes)
  expect([...results]).toEqual([200])
  expect(api.tokens).toBe(before + 1)
}, 90_000)
const codeIn = ({ code }: { code: string }): string => code
