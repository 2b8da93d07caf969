// A fleet for long: 20 daemons, rotations, kills, stops, and a Redis that is away, is emptied or fails over. One
// minute in CI; KYC_TOKEND_FLEET_MINUTES=30 for longer.
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { tokenFile, type Daemon } from '../support/daemon.ts'
import { oneToken, startHost, startHosts, startTokenService, type FleetSettings } from '../support/fleet.ts'
import { createRandom } from '../support/random.ts'
import { isWithoutRedis, startRedis } from '../support/redis.ts'

const MINUTES = Number(process.env['KYC_TOKEND_FLEET_MINUTES'] ?? 1)
const HOSTS = 20
const LIFE_S = 40
/** A host refreshes at half of a life under 2 min, less a tenth of the life at most. */
const ROTATION_S = 0.4 * LIFE_S
/** Each trouble, and the calm after it. */
const TROUBLE_MS = 6_000
const CALM_MS = 16_000

test.skipIf(isWithoutRedis('test/bench/fleet'))(
  'no host is without a token, and the service is asked no more than it must',
  { timeout: (MINUTES + 3) * 60_000 },
  async () => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const service = await startTokenService(LIFE_S)
    const more = { share: { timeout: '1s' }, config: { request: { timeout: '3s' } } }
    const settings: FleetSettings = { redis, baseUrl: service.url, ...more }
    const hosts = await startHosts(HOSTS, settings)
    await oneToken(hosts)
    const random = createRandom(1)
    const one = (): number => Math.floor(random() * HOSTS)
    /** Hosts that are being started again. */
    const away = new Set<Daemon>()
    let [checks, without] = [0, 0]
    const watch = setInterval(() => {
      const missing = hosts.filter((host) => !away.has(host) && tokenFile(host) === undefined)
      checks += HOSTS
      without += missing.length
    }, 100)
    onTestFinished(() => clearInterval(watch))

    async function kill(): Promise<void> {
      const index = one()
      const killed = hosts[index]!
      away.add(killed)
      await killed.end('SIGKILL')
      const again = await startHost(`host-${index}`, settings, killed)
      away.add(again)
      hosts[index] = again
      await again.listening()
      away.delete(again)
    }
    async function stop(): Promise<void> {
      const stopped = hosts[one()]!
      away.add(stopped)
      stopped.process.kill('SIGSTOP')
      await sleep(3_000)
      stopped.process.kill('SIGCONT')
      await sleep(1_000)
      away.delete(stopped)
    }
    const lasting = (begin: () => unknown, end: () => unknown) => async (): Promise<void> => {
      await begin()
      await sleep(TROUBLE_MS)
      await end()
    }
    const calm = [kill, stop, async () => void redis.cli('flushall')]
    const alone = [
      lasting(
        () => redis.kill(),
        async () => redis.start(),
      ),
      lasting(
        () => redis.cli('replicaof', '127.0.0.1', '1'),
        () => redis.cli('replicaof', 'no', 'one'),
      ),
      lasting(
        () => redis.signal('SIGSTOP'),
        () => redis.signal('SIGCONT'),
      ),
    ]
    const begunMs = Date.now()
    let [turn, aloneMs] = [0, 0]
    while (Date.now() - begunMs < MINUTES * 60_000) {
      const isAlone = turn % 2 === 1
      const trouble = (isAlone ? alone : calm)[(turn >> 1) % 3]!
      const troubleMs = Date.now()
      await trouble()
      if (isAlone) aloneMs += Date.now() - troubleMs + 5_000
      turn += 1
      await sleep(CALM_MS)
    }
    await oneToken(hosts, { withinMs: 20_000 })
    const seconds = (Date.now() - begunMs) / 1_000
    const rotations = Math.ceil(seconds / ROTATION_S) + turn
    const ofAlone = Math.ceil((HOSTS * aloneMs) / 1_000 / ROTATION_S)
    const requests = service.requests.length
    process.stdout.write(
      `fleet of ${HOSTS}, ${Math.round(seconds)} s, life ${LIFE_S} s, ${turn} troubles: ${requests} requests ` +
        `(${rotations} rotations, and ${ofAlone} of hosts alone; all alone ${Math.ceil((HOSTS * seconds) / ROTATION_S)}), ` +
        `${without} of ${checks} checks without a token\n`,
    )
    expect(without).toBe(0)
    expect(requests).toBeLessThanOrEqual(1.2 * rotations + ofAlone)
  },
)
