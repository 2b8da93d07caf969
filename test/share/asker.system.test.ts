// The host that asks for the others is killed or paused for 30 s at every step of its request; with real
// daemons and a real redis-server.
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import type { Daemon } from '../support/daemon.ts'
import { askAll, oneToken, startHost, startTokenService } from '../support/fleet.ts'
import { isWithoutRedis, startRedis, type RedisServer } from '../support/redis.ts'
import { lacks } from '../support/lacks.ts'
import { createHalts, untilStopped, type Halt } from '../support/preloaded.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const isLeftOut = isWithoutRedis('test/share/asker') || lacks('cc')

/** Eighteen programs start at once. */
const PATIENTLY = { withinMs: 60_000 }

interface Step {
  readonly name: string
  readonly halt: Halt
  /** The service has answered the asker. */
  readonly isAsked: boolean
  /** The record is in the store, and the others are notified: one step inside Redis. */
  readonly isWritten: boolean
}
/** The writes of the scripts that take the lease and that store the answer. */
const [ACQUIRE, WRITE] = ['lease == ARGV[4]', "'PUBLISH'"]
const STEPS = (
  [
    ['before the lease', 'before', ACQUIRE, false, false],
    ['with the lease', 'after', ACQUIRE, false, false],
    ['during the request', 'after', 'POST /', true, false],
    ['with the answer', 'before', WRITE, true, false],
    ['after the write', 'after', WRITE, true, true],
    ['after the announcement', 'before', '"share-asked"', true, true],
  ] as const
).map(([name, when, text, isAsked, isWritten]): Step => ({ name, halt: { when, text }, isAsked, isWritten }))

let redis: RedisServer
beforeEach(async () => {
  if (isLeftOut) return
  redis = await startRedis()
  onTestFinished(() => redis.stop())
})

type Fleet = Awaited<ReturnType<typeof startFleet>>

/** Three hosts with an account of their own, of which the first stops where it is asked to. */
async function startFleet() {
  const service = await startTokenService(3_600)
  const settings = { redis, baseUrl: service.url, share: { timeout: '2s' } }
  const halts = createHalts(await tempDirectory())
  const directory = join(await tempDirectory(), 'asker')
  const asker = await startHost('asker', { ...settings, directory, env: halts.env })
  onTestFinished(() => void asker.process.kill('SIGCONT'))
  await expectUntil('the token of the asker', () => tokenOf(asker), PATIENTLY)
  const others = await Promise.all(['two', 'three'].map((name) => startHost(name, settings)))
  const before = await oneToken([asker, ...others], PATIENTLY)
  expect(service.requests).toHaveLength(1)
  /** Starts the asker again in its directory. */
  const again = () => startHost('asker', settings, asker)
  return { asker, others, halts, service, before, again }
}

async function tokenOf(host: Daemon): Promise<string | undefined> {
  const [answer] = await askAll([host], 'token.get').catch(() => [])
  return answer?.['accessToken'] as string | undefined
}

/** An operator has the asker ask, and it stops at this step. */
async function haltAsker({ asker, halts }: Fleet, { halt }: Step): Promise<void> {
  halts.at(halt)
  asker.process.kill('SIGUSR2')
  await untilStopped(asker.process.pid ?? 0)
}

/** Every fleet of a test lives at the same time: each is idle for most of it. */
async function atEveryStep(live: (step: Step) => Promise<void>): Promise<void> {
  const ends = await Promise.allSettled(STEPS.map(live))
  const failures = ends.flatMap((end, index) =>
    end.status === 'rejected' ? [`${STEPS[index]?.name}: ${String(end.reason)}`] : [],
  )
  expect(failures).toEqual([])
}

describe.skipIf(isLeftOut)('at every step of its request an asker', { timeout: 200_000 }, () => {
  test('is killed: the others have one token after its lease, and it takes that later', async () => {
    await atEveryStep(async (step) => {
      const fleet = await startFleet()
      const { asker, others, service, before } = fleet
      await haltAsker(fleet, step)
      const killedAtMs = Date.now()
      await asker.end('SIGKILL')
      if (!step.isWritten) others[0]?.process.kill('SIGUSR2')
      const live = await oneToken(others, { not: before })
      expect(live).toBe(service.lastToken())
      expect(Date.now() - killedAtMs).toBeLessThan(step.isWritten ? 5_000 : 12_000)
      const again = await fleet.again()
      await again.logged('share-connected')
      expect(await oneToken([again, ...others])).toBe(live)
      expect(service.requests).toHaveLength(step.isAsked && !step.isWritten ? 3 : 2)
    })
  })

  test('is paused for 30 s: the others do not wait, and all end on the last token', async () => {
    await atEveryStep(async (step) => {
      const fleet = await startFleet()
      const { asker, others, service, before } = fleet
      await haltAsker(fleet, step)
      const stoppedAtMs = Date.now()
      if (!step.isWritten) others[0]?.process.kill('SIGUSR2')
      const live = await oneToken(others, { not: before })
      expect(Date.now() - stoppedAtMs).toBeLessThan(12_000)
      await sleep(stoppedAtMs + 30_000 - Date.now())
      expect(await oneToken(others)).toBe(live)
      asker.process.kill('SIGCONT')
      await expectUntil(
        'one token, and the last',
        async () => {
          const tokens = await Promise.all([asker, ...others].map(tokenOf))
          return tokens.every((token) => token === service.lastToken())
        },
        { withinMs: 40_000 },
      )
      expect(service.requests.length).toBeLessThanOrEqual(step.isWritten ? 2 : 3)
    })
  })
})
