// A service, a daemon and several programs that call the service all the time, through everything that goes wrong.
import { spawn } from 'node:child_process'
import { dirname, join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { hourToken } from '../support/command-world.ts'
import { PROGRAM, startDaemon, type Daemon } from '../support/daemon.ts'
import {
  accountInactive,
  granting,
  startService,
  type ArrivedRequest,
  type Service,
} from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const WORKERS = 3
const LANES = 4

interface Oddity {
  readonly fromMs: number
  readonly toMs: number
  readonly isSlow: boolean
  readonly result: number | string
}

/** A service that grants a new token to each request, and that can revoke the one that counts. */
async function revokingService(): Promise<{
  service: Service
  tokens: () => number
  revoke: () => void
  refuse: (isInactive: boolean) => void
  calls: () => number
  /** Most requests for a token at the same time. */
  together: () => number
  /** The 401s by token. */
  refusals: Map<string, number>
}> {
  let [issued, valid, isInactive, calls, underWay, together] = [0, '', false, 0, 0, 0]
  const refusals = new Map<string, number>()
  async function answerToken(): Promise<ReturnType<typeof granting>> {
    underWay += 1
    together = Math.max(together, underWay)
    await pause(50)
    underWay -= 1
    if (isInactive) return accountInactive
    issued += 1
    valid = hourToken(issued)
    return granting(valid)
  }
  function answerCall({ headers }: ArrivedRequest): { status: number } {
    calls += 1
    if (headers.authorization === `Bearer ${valid}`) return { status: 200 }
    const key = String(headers.authorization)
    refusals.set(key, (refusals.get(key) ?? 0) + 1)
    return { status: 401 }
  }
  const service = await startService({
    answer: (request) => (request.path === '/token/external/jwt' ? answerToken() : answerCall(request)),
  })
  onTestFinished(() => service.stop())
  return {
    service,
    tokens: () => issued,
    revoke: () => {
      valid = 'none'
    },
    refuse: (inactive) => {
      isInactive = inactive
    },
    calls: () => calls,
    together: () => together,
    refusals,
  }
}

function startWorker(socketPath: string, url: string): { oddities: Oddity[]; end: () => Promise<number> } {
  const client = join(dirname(PROGRAM[1]), 'client.js')
  const script = join(import.meta.dirname, '../support/load-worker.mjs')
  const child = spawn(process.execPath, [script, client, socketPath, url, String(LANES)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const oddities: Oddity[] = []
  let output = ''
  let calls = 0
  child.stdout.on('data', (chunk: Buffer) => {
    const lines = (output + chunk.toString()).split('\n')
    output = lines.pop() ?? ''
    for (const line of lines.map((text) => JSON.parse(text) as Oddity & { calls?: number })) {
      if (line.calls === undefined) oddities.push(line)
      else calls = line.calls
    }
  })
  return {
    oddities,
    async end() {
      const closed = new Promise((resolve) => child.on('close', resolve))
      child.kill('SIGTERM')
      await closed
      return calls
    },
  }
}

test(
  'no call fails or waits while there is a good token, and a refused token is sent a few times',
  {
    timeout: 90_000,
  },
  async () => {
    const api = await revokingService()
    const directory = await tempDirectory()
    const start = async (): Promise<Daemon> => {
      const started = startDaemon({ directory, baseUrl: api.service.url })
      await started.listening()
      return started
    }
    let daemon = await start()
    await expectUntil('a first token', () => api.tokens() === 1)
    const workers = Array.from({ length: WORKERS }, () =>
      startWorker(daemon.ipcPath, `${api.service.url}/call`),
    )
    const oddities = (): Oddity[] => workers.flatMap((worker) => worker.oddities)
    /** So many more calls: everything that is under way now has been seen. */
    const moreCalls = async (): Promise<void> => {
      const from = api.calls()
      await expectUntil('more calls', () => api.calls() > from + 20 * WORKERS * LANES)
    }
    await moreCalls()

    // A restart, a crash, and a daemon that is suspended.
    await daemon.end('SIGTERM')
    await moreCalls()
    daemon = await start()
    await moreCalls()
    await daemon.end('SIGKILL')
    await moreCalls()
    daemon = await start()
    await moreCalls()
    daemon.process.kill('SIGSTOP')
    await pause(5_000)
    daemon.process.kill('SIGCONT')
    await moreCalls()

    // The account becomes inactive, and active again.
    api.refuse(true)
    daemon.process.kill('SIGUSR2')
    await daemon.logged('alert')
    await moreCalls()
    api.refuse(false)
    const before = api.tokens()
    daemon.process.kill('SIGUSR2')
    await expectUntil('a token again', () => api.tokens() === before + 1)
    await moreCalls()
    expect(oddities()).toEqual([])

    // Two revocations: after the first the daemon asks at once, after the second only an operator does so soon.
    api.revoke()
    await expectUntil('the token after the first revocation', () => api.tokens() === before + 2)
    await moreCalls()
    expect(oddities().filter(({ result }) => result !== 200)).toEqual([])
    api.revoke()
    const revokedAtMs = Date.now()
    await expectUntil('a rejected call', () => oddities().some(({ result }) => result === 401), {
      withinMs: 20_000,
    })
    daemon.process.kill('SIGUSR2')
    await expectUntil('the token after the second revocation', () => api.tokens() === before + 3)
    const renewedAtMs = Date.now()
    await moreCalls()
    await moreCalls()

    const calls = await Promise.all(workers.map((worker) => worker.end()))
    for (const count of calls) expect(count).toBeGreaterThan(100)
    const inHold = (oddity: Oddity): boolean =>
      oddity.toMs >= revokedAtMs - 1_000 &&
      oddity.fromMs <= renewedAtMs &&
      [200, 401, 'token-refused'].includes(oddity.result)
    expect(oddities().filter((oddity) => !inHold(oddity) && oddity.result !== 200)).toEqual([])
    // Each lane may be under way once with a token when the first 401 comes. After that each client sends it a few times, then once a second.
    const turns = 6 + (renewedAtMs - revokedAtMs) / 1_000
    for (const count of api.refusals.values()) expect(count).toBeLessThanOrEqual(WORKERS * (LANES + turns))
    expect(api.together()).toBe(1)
    expect(api.tokens()).toBeLessThanOrEqual(before + 3)
  },
)
