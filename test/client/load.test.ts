// A service, a daemon and clients that call the service all the time, through all that goes wrong.
import { setTimeout as pause } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { clientOf } from '../support/client-world.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { accountInactive, granting, type ArrivedRequest, type ScriptedAnswer } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

const CLIENTS = 3
const LANES = 12
/** More ticks of 100 ms than this are a slow call. They are counted here, so that a busy machine slows both. */
const SLOW_TICKS = 10

test('no call fails or waits while there is a good token, or another one that would do', async () => {
  /** `underWay`: requests for a token at the same time; `together`: at most. */
  const api = { tokens: 0, valid: '', isInactive: false, calls: 0, underWay: 0, together: 0 }
  /** A new token to each request, the newest of which alone counts, until that is revoked. */
  async function answer({ path, headers }: ArrivedRequest): Promise<ScriptedAnswer> {
    if (path !== '/token/external/jwt') {
      api.calls += 1
      return { status: headers.authorization === `Bearer ${api.valid}` ? 200 : 401 }
    }
    api.underWay += 1
    api.together = Math.max(api.together, api.underWay)
    await pause(50)
    api.underWay -= 1
    if (api.isInactive) return accountInactive
    api.tokens += 1
    api.valid = hourToken(api.tokens)
    return granting(api.valid)
  }
  const world = await commandWorld({ answer })
  let { daemon } = world
  await expectUntil('a first token', () => api.tokens === 1)

  /** Calls that failed or were slow. */
  const oddities: { isSlow: boolean; result: number | string }[] = []
  let ticks = 0
  const stop = new AbortController()
  const ticking = setInterval(() => (ticks += 1), 100)
  onTestFinished(() => clearInterval(ticking))
  const clients = Array.from({ length: CLIENTS }, () => clientOf({ path: daemon.ipcPath }, { name: 'load' }))
  const lanes = Array.from({ length: LANES }, async (_, lane) => {
    for (; !stop.signal.aborted; await pause(50)) {
      const beganAt = ticks
      const result = await clients[lane % CLIENTS]!.fetch(`${world.service.url}/call`).then(
        ({ status }) => status,
        (error: { code: string }) => error.code,
      )
      const isSlow = ticks - beganAt > SLOW_TICKS
      if (result !== 200 || isSlow) oddities.push({ isSlow, result })
    }
  })
  /** So many more calls: everything that is under way now has been seen. */
  const moreCalls = async (): Promise<void> => {
    const from = api.calls
    await expectUntil('more calls', () => api.calls > from + 20 * LANES)
  }
  await moreCalls()

  // A restart, a crash, and a daemon that is suspended.
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    await daemon.end(signal)
    await moreCalls()
    daemon = await world.again()
    await moreCalls()
  }
  daemon.process.kill('SIGSTOP')
  await moreCalls()
  daemon.process.kill('SIGCONT')
  await moreCalls()

  // The account becomes inactive, and active again.
  api.isInactive = true
  daemon.process.kill('SIGUSR2')
  await daemon.logged('alert')
  await moreCalls()
  api.isInactive = false
  const before = api.tokens
  daemon.process.kill('SIGUSR2')
  await expectUntil('a token again', () => api.tokens === before + 1)
  await moreCalls()
  expect(oddities).toEqual([])

  // A revocation: the daemon asks at once, and the calls that it hits wait for that.
  api.valid = 'none'
  await expectUntil('the token after the revocation', () => api.tokens === before + 2)
  await moreCalls()
  expect(oddities.filter(({ result }) => result !== 200)).toEqual([])

  stop.abort()
  await Promise.all(lanes)
  expect(api.together).toBe(1)
}, 90_000)
