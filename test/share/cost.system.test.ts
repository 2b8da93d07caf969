// The price of sharing on one host: private memory, and the time until a token is answered; with real daemons and a real redis-server.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { startDaemon, type Daemon } from '../support/daemon.ts'
import { askAll, startTokenService } from '../support/fleet.ts'
import { isWithoutRedis, startRedis } from '../support/redis.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const withoutRedis = isWithoutRedis('test/share/cost')
const ROUNDS = 5
/** The daemon returns memory after 5 s without work. */
const IDLE_MS = 8_000

interface Cost {
  readonly freshMs: number
  readonly keptMs: number
  readonly privateMb: number
}
const KINDS = {
  freshMs: 'start with a request, ms',
  keptMs: 'start with the kept token, ms',
  privateMb: 'private memory, MB',
}

async function isAnswered(daemon: Daemon): Promise<boolean> {
  const [answer] = await askAll([daemon], 'token.get').catch(() => [])
  return typeof answer?.['accessToken'] === 'string'
}
function privateMb({ process: { pid } }: Daemon): number {
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')
  const kilobytes = [...rollup.matchAll(/^Private_(?:Clean|Dirty): +(\d+) kB$/gm)].map(([, size]) =>
    Number(size),
  )
  return kilobytes.reduce((sum, size) => sum + size, 0) / 1024
}

test.skipIf(withoutRedis)(
  'a daemon that shares takes a few MB more, and answers as soon as one that does not',
  { timeout: 240_000 },
  async () => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const { path } = redis.address as { path: string }
    const service = await startTokenService(3_600)

    async function measure(round: number, share: object | null): Promise<Cost> {
      const directory = join(await tempDirectory('memory'), 'host')
      // An account of its own: the first start asks the service.
      const credentials = { apiKey: `key-${round}`, apiSecret: 'a-secret-of-24-characters' }
      const options = { directory, baseUrl: service.url, config: { http: false, credentials, share } }
      const timed = async (): Promise<{ daemon: Daemon; ms: number }> => {
        const fromMs = performance.now()
        const daemon = startDaemon(options)
        await expectUntil('a token', () => isAnswered(daemon))
        return { daemon, ms: performance.now() - fromMs }
      }
      const fresh = await timed()
      await expectUntil('the kept token', () => {
        const kept = join(directory, 'run', 'kept.json')
        return readFileSync(kept, { encoding: 'utf8', flag: 'a+' }).includes('accessToken')
      })
      expect(await fresh.daemon.end()).toBe(0)
      const kept = await timed()
      await sleep(IDLE_MS)
      const memory = privateMb(kept.daemon)
      expect(await kept.daemon.end()).toBe(0)
      return { freshMs: fresh.ms, keptMs: kept.ms, privateMb: memory }
    }

    const costs: { readonly share: Cost[]; readonly alone: Cost[] } = { share: [], alone: [] }
    for (let round = 0; round < ROUNDS; round += 1) {
      costs.alone.push(await measure(round, null))
      costs.share.push(await measure(round, { servers: [path], host: 'host' }))
    }
    const median = (kind: keyof Cost, of: readonly Cost[]): number =>
      of.map((cost) => cost[kind]).toSorted((one, other) => one - other)[Math.floor(ROUNDS / 2)] ?? 0
    for (const [kind, title] of Object.entries(KINDS) as [keyof Cost, string][]) {
      const [alone, share] = [costs.alone, costs.share].map((of) =>
        median(kind, of).toFixed(kind === 'privateMb' ? 1 : 0),
      )
      process.stdout.write(`${title}: ${alone} without share, ${share} with\n`)
    }
    expect(median('privateMb', costs.share) - median('privateMb', costs.alone)).toBeLessThan(12)
    // A kept token needs no store: the client of Redis is loaded beside.
    expect(median('keptMs', costs.share)).toBeLessThan(1.5 * median('keptMs', costs.alone) + 200)
  },
)
