// A daemon on a fake clock that is scraped: the real keeper and metrics, as series for promtool's unit tests.
import type { MetricsSample } from '../../src/report/metrics.ts'
import { createMetrics } from '../../src/report/metrics.ts'
import { restoredState, savedStateOf, savedTokenOf } from '../../src/storage/saved-state.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { currentAlert, type TokenState } from '../../src/token/state.ts'
import { createFakeClock } from './fake-clock.ts'
import { jwtOf } from './jwt.ts'
import { createKeeperWorld, type KeeperWorld } from './keeper-world.ts'

/** The name with its labels, and a value for each scrape, in promtool's notation. */
export interface Series {
  readonly series: string
  readonly values: string
}
export interface ScrapedDaemon {
  /** The service answers so from now on. */
  answer(next: () => FetchOutcome): void
  /** Another token. */
  readonly token: () => FetchOutcome
  /** Age of the token at hand, in parts of its life. */
  age(): number
  /** Values of the other components from now on. */
  sample(change: Partial<MetricsSample>): void
  /** Time passes, with a scrape at each interval. */
  pass(seconds: number): Promise<void>
  /** Time passes until the condition holds, for an hour or two lives at most. */
  passUntil(condition: () => boolean): Promise<void>
  /** It ends, and starts again after so long; scrapes fail meanwhile. */
  restart(downSeconds: number): Promise<void>
  /** An operator's `kyc-tokend refresh`. */
  refresh(): Promise<void>
}

const LABELS = 'instance="host:9477",job="kyc-tokend"'
const NO_TOKEN_AFTER_MS = 600_000
const SAMPLE: Omit<MetricsSample, 'alert' | 'startedAtMs'> = {
  version: '1.2.3',
  residentBytes: 45_000_000,
  servers: {
    ipc: { connections: 0, subscribers: 0, reads: 0, rejects: {}, dropped: { idle: 0, stalled: 0 } },
    http: null,
  },
  files: { writes: 0, repairs: 0, errors: 0 },
  logRecordsLost: 0,
  isFaultyOnDisk: false,
  share: null,
}

/** Runs a story of a daemon, whose first scrape is before its first request, and gives its series of these names. */
export async function scrapedSeries(
  {
    lifeSeconds,
    intervalSeconds,
    names,
  }: {
    readonly lifeSeconds: number
    readonly intervalSeconds: number
    readonly names: ReadonlySet<string>
  },
  story: (daemon: ScrapedDaemon) => Promise<void>,
): Promise<{ series: Series[]; seconds: number }> {
  // The time of promtool's unit tests begins at 0.
  const clock = createFakeClock({ wallMs: 0 })
  const scrapes: ReadonlyMap<string, string>[] = []
  let issued = 0
  const token = (): FetchOutcome => {
    const iat = Math.floor(clock.now().wallMs / 1000)
    issued += 1
    return { kind: 'ok', accessToken: jwtOf({ iat, exp: iat + lifeSeconds }, issued) }
  }
  let service = token
  let others = SAMPLE
  let running = startProcess()
  let isUp = true

  function startProcess(state?: TokenState): {
    world: KeeperWorld
    metrics: ReturnType<typeof createMetrics>
  } {
    const world = createKeeperWorld({
      clock,
      ...(state && { state }),
      async fetchToken(_signal, { beforeRequest }) {
        await beforeRequest()
        return service()
      },
    })
    const { keeper } = world
    const startedAtMs = clock.now().wallMs
    const alert = () => currentAlert(keeper.state(), clock.now(), NO_TOKEN_AFTER_MS)
    return {
      world,
      metrics: createMetrics({ keeper, sample: () => ({ ...others, startedAtMs, alert: alert() }) }),
    }
  }

  function scrape(): void {
    const body = isUp ? running.metrics().body : ''
    const values = new Map([[`up{${LABELS}}`, isUp ? '1' : '0']])
    for (const [, name = '', labels, value = ''] of body.matchAll(/^(\w+)(?:\{(.*)\})? (\S+)$/gm))
      if (names.has(name)) values.set(`${name}{${LABELS}${labels === undefined ? '' : `,${labels}`}}`, value)
    scrapes.push(values)
  }

  async function pass(seconds: number): Promise<void> {
    for (let passed = 0; passed < seconds; passed += intervalSeconds) {
      await clock.advance(intervalSeconds * 1000)
      scrape()
    }
  }

  const state = (): TokenState => running.world.keeper.state()
  const daemon: ScrapedDaemon = {
    answer(next) {
      service = next
    },
    token,
    age() {
      const { token: held } = state()
      return held === null ? 0 : 1 - (held.expiresAtMs - clock.now().bootMs) / held.lifeMs
    },
    sample(change) {
      others = { ...others, ...change }
    },
    pass,
    async passUntil(condition) {
      for (const endMs = clock.now().bootMs + Math.max(3_600, 2 * lifeSeconds) * 1000; !condition();) {
        if (clock.now().bootMs > endMs) throw new Error(`Waited in vain for ${condition.toString()}`)
        await pass(intervalSeconds)
      }
    },
    async restart(downSeconds) {
      await running.world.stop()
      const last = state()
      const written = { at: clock.now(), bootId: null }
      isUp = false
      await pass(downSeconds)
      isUp = true
      const remembered = savedStateOf(last, { isOrderly: true })
      const restored = restoredState(last, {
        now: clock.now(),
        token: savedTokenOf(last),
        saved: { remembered, written, isThisBoot: true },
      })
      running = startProcess(restored)
      running.world.start()
      await clock.settle()
    },
    async refresh() {
      void running.world.keeper.refresh(new AbortController().signal)
      await clock.settle()
    },
  }

  scrape()
  running.world.start()
  try {
    await story(daemon)
  } finally {
    await running.world.stop()
  }
  return { series: seriesOf(scrapes), seconds: clock.now().wallMs / 1000 }
}

/** A series that ends, or is not scraped, is stale from then on, as for Prometheus. */
function seriesOf(scrapes: readonly ReadonlyMap<string, string>[]): Series[] {
  const names = new Set(scrapes.flatMap((scrape) => [...scrape.keys()]))
  return [...names].map((name) => {
    const runs: { value: string; count: number }[] = []
    for (const scrape of scrapes) {
      const last = runs.at(-1)
      const value = scrape.get(name) ?? (runs.some((run) => run.value !== '_') ? 'stale' : '_')
      if (last?.value === value) last.count += 1
      else runs.push({ value, count: 1 })
    }
    return { series: name, values: runs.map(notation).join(' ') }
  })
}

/** `1+0x3` is 1 four times, `_x3` nothing three times. */
function notation({ value, count }: { value: string; count: number }): string {
  if (value === '_') return `_x${count}`
  if (value === 'stale') return count === 1 ? 'stale' : `stale _x${count - 1}`
  return count === 1 ? value : `${value}+0x${count - 1}`
}
