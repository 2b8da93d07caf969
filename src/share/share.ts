// The face of the room: the keeper's attempts are made in the fleet, and the keeper is offered what other hosts
// were answered. There is one connection to the store, and a fleet for the pair in use and for each candidate.
import { isSamePart, type ShareConfig } from '../config/config.ts'
import { withTimeout, type Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import { createFleet, READ_EVERY_MS, type Fleet, type HeldToken, type SharedPair } from './fleet.ts'
import { createSeal } from './seal.ts'
import { openStore } from './store.ts'
import { createTelemetry } from './telemetry.ts'

export interface ShareOptions {
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  readonly keeper: {
    /** Null: there is none. */
    readonly held: () => HeldToken | null
    /** False: an attempt is under way, and nothing has changed. */
    readonly offer: (outcome: FetchOutcome) => boolean
  }
  /** It opens Redis, unless it is given. */
  readonly open?: typeof openStore | undefined
}

/** An outcome that the keeper could not take is offered again after this time. */
const OFFER_AGAIN_MS = 500

export function createShare({ keeper, open = openStore, ...around }: ShareOptions) {
  const { clock } = around
  let connection: ReturnType<typeof connect> | null = null
  let inUse: SharedPair | null = null
  /** This attempt is under way. */
  let underWay: Promise<FetchOutcome> | null = null
  /** Ends the sleep until the next reading. */
  let waking = new AbortController()

  function connect(settings: ShareConfig) {
    return {
      settings,
      store: open(settings, { ...around, onReady: () => waking.abort() }),
      telemetry: createTelemetry({ ...around, settings }),
      fleets: new Map<string, Fleet>(),
    }
  }

  function fleetOf({ text, share, pairId }: SharedPair): Fleet {
    const { fleets, ...connected } = connection!
    const seal = createSeal(JSON.stringify([text, share.key?.reveal() ?? null]), share.prefix)
    const own = { seal, pairId, held: keeper.held }
    const fleet = fleets.get(seal.keys.record) ?? createFleet({ ...around, ...connected, ...own })
    fleets.set(seal.keys.record, fleet)
    return fleet
  }

  /** Reads the store, and offers the keeper what it lacks. Returns how long to sleep then, in ms. */
  async function offerNews(): Promise<number> {
    if (inUse === null) return READ_EVERY_MS
    const shared = inUse
    const { answers, adopt } = fleetOf(shared)
    await answers.read().catch(connection!.telemetry.failed)
    if (!answers.hasNews() || inUse !== shared) return READ_EVERY_MS
    // An attempt that is under way takes it by itself.
    if (!keeper.offer(answers.outcome())) return OFFER_AGAIN_MS
    adopt()
    return READ_EVERY_MS
  }

  return {
    /** This pair is in use from now on; null: this host shares no more. */
    use(shared: SharedPair | null): void {
      if (connection !== null && !isSamePart(connection.settings, shared?.share)) {
        void connection.store.then(({ close }) => close())
        connection = null
      }
      if (shared !== null) connection ??= connect(shared.share)
      inUse = shared
      waking.abort()
    },
    /** Makes one attempt with this pair, which is in use or a candidate. */
    async attempt(shared: SharedPair, ...attempt: Parameters<FetchToken>): Promise<FetchOutcome> {
      underWay = fleetOf(shared).attempt(shared, ...attempt)
      return underWay
    },
    /** Reads every 15 s and at each connection until the signal is aborted. Rejects for internal errors alone. */
    async run(signal: AbortSignal): Promise<void> {
      while (!signal.aborted) {
        waking = new AbortController()
        const pauseMs = await offerNews()
        await clock.sleep(pauseMs, AbortSignal.any([signal, waking.signal]))
      }
      // An attempt that ends gives its lease back.
      await withTimeout(connection?.settings.timeoutMs ?? 0, Promise.allSettled([underWay]), clock)
      ;(await connection?.store)?.close()
    },
    status(): StatusResult['share'] {
      if (connection === null || inUse === null) return null
      return { ...connection.telemetry.state(), askedBy: fleetOf(inUse).answers.latest()?.by ?? null }
    },
    /** Metrics read this. */
    sample: () => connection?.telemetry.sample() ?? null,
  }
}
