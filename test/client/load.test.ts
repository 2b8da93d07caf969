// A service, a daemon and clients that call the service all the time, through all that goes wrong.
import { setTimeout as pause } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { clientOf } from '../support/client-world.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { accountInactive, granting, type ArrivedRequest, type ScriptedAnswer } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

const CLIENTS = 3
const LANES = 4
const PAUSE_MS = 50
const TICK_MS = 100
/** More ticks than this are a slow call. They are counted here, so that a busy machine slows both. */
const SLOW_TICKS = 10

interface Oddity {
  readonly isSlow: boolean
  readonly result: number | string
}

/** A service that grants a new token to each request, and that can revoke the one that counts. */
function revokingService() {
  const it = {
    tokens: 0,
    valid: '',
    isInactive: false,
    calls: 0,
    /** Requests for a token at the same time: now, and at most. */
    underWay: 0,
    together: 0,
    answer: async ({ path, headers }: ArrivedRequest): Promise<ScriptedAnswer> => {
      if (path !== '/token/external/jwt') return it.answerCall(String(headers.authorization))
      it.underWay += 1
      it.together = Math.max(it.together, it.underWay)
      await pause(50)
      it.underWay -= 1
      if (it.isInactive) return accountInactive
      it.tokens += 1
      it.valid = hourToken(it.tokens)
      return granting(it.valid)
    },
    answerCall(authorization: string): ScriptedAnswer {
      it.calls += 1
      return { status: authorization === `Bearer ${it.valid}` ? 200 : 401 }
    },
  }
  return it
}

/** Calls the service in several lanes until it is stopped; gives the calls that fail or are slow. */
function loadWith(socketPath: string, url: string): { oddities: Oddity[]; end: () => Promise<number> } {
  const client = clientOf({ path: socketPath }, { name: 'load' })
  const oddities: Oddity[] = []
  const stop = new AbortController()
  let [ticks, calls] = [0, 0]
  const ticking = setInterval(() => (ticks += 1), TICK_MS)
  onTestFinished(() => clearInterval(ticking))
  const lanes = Array.from({ length: LANES }, async () => {
    for (; !stop.signal.aborted; await pause(PAUSE_MS)) {
      const beganAt = ticks
      const result = await client.fetch(url).then(
        ({ status }) => status,
        (error: { code: string }) => error.code,
      )
      calls += 1
      const isSlow = ticks - beganAt > SLOW_TICKS
      if (result !== 200 || isSlow) oddities.push({ isSlow, result })
    }
  })
  return {
    oddities,
    async end() {
      stop.abort()
      await Promise.all(lanes)
      return calls
    },
  }
}

test('no call fails or waits while there is a good token, or another one that would do', async () => {
  const api = revokingService()
  const world = await commandWorld({ answer: api.answer })
  let { daemon } = world
  await expectUntil('a first token', () => api.tokens === 1)
  const url = `${world.service.url}/call`
  const loads = Array.from({ length: CLIENTS }, () => loadWith(daemon.ipcPath, url))
  const oddities = (): Oddity[] => loads.flatMap((load) => load.oddities)
  /** So many more calls: everything that is under way now has been seen. */
  const moreCalls = async (): Promise<void> => {
    const from = api.calls
    await expectUntil('more calls', () => api.calls > from + 20 * CLIENTS * LANES)
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
  expect(oddities()).toEqual([])

  // A revocation: the daemon asks at once, and the calls that it hits wait for that.
  api.valid = 'none'
  await expectUntil('the token after the revocation', () => api.tokens === before + 2)
  await moreCalls()
  expect(oddities().filter(({ result }) => result !== 200)).toEqual([])

  for (const load of loads) expect(await load.end()).toBeGreaterThan(100)
  expect(api.together).toBe(1)
}, 90_000)
