// The face of the room: the keeper's attempts are made in the fleet, and the keeper is offered what other hosts
// were answered. One connection, and a host for the account in use and for each that is a candidate.
import { isSamePart, type ShareConfig } from '../config/config.ts'
import { withTimeout, type Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import type { Held } from './answers.ts'
import { createHost, LOOK_EVERY_MS, type Account, type Host } from './host.ts'
import { createSeal } from './seal.ts'
import { openStore } from './store.ts'
import { createTelemetry } from './telemetry.ts'

export interface ShareOptions {
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  readonly keeper: {
    /** Null: there is none. */
    readonly held: () => Held | null
    /** False: an attempt is under way, and nothing has changed. */
    readonly offer: (outcome: FetchOutcome) => boolean
  }
  /** Redis, unless it is given. */
  readonly open?: typeof openStore | undefined
}

/** The time after which an outcome that the keeper could not take is offered again. */
const OFFER_AGAIN_MS = 500

export function createShare({ keeper, open = openStore, ...around }: ShareOptions) {
  const { clock } = around
  let connection: ReturnType<typeof connect> | null = null
  let current: Account | null = null
  /** The attempt that is under way. */
  let underWay: Promise<FetchOutcome> | null = null
  /** Ends the sleep until the next look. */
  let waking = new AbortController()

  function connect(settings: ShareConfig) {
    return {
      settings,
      store: open(settings, { ...around, onReady: () => waking.abort() }),
      telemetry: createTelemetry({ ...around, settings }),
      hosts: new Map<string, Host>(),
    }
  }

  function hostOf({ text, share, pairId }: Account): Host {
    const { hosts, ...connected } = connection!
    const seal = createSeal(JSON.stringify([text, share.key?.reveal() ?? null]), share.prefix)
    const host =
      hosts.get(seal.keys.record) ?? createHost({ ...around, ...connected, seal, pairId, held: keeper.held })
    hosts.set(seal.keys.record, host)
    return host
  }

  /** Looks at the store, and offers the keeper what it lacks. Returns how long to sleep then, in ms. */
  async function offerNews(): Promise<number> {
    if (current === null) return LOOK_EVERY_MS
    const account = current
    const { answers, adopt } = hostOf(account)
    await answers.look().catch(connection!.telemetry.failed)
    if (!answers.isNew() || current !== account) return LOOK_EVERY_MS
    // An attempt that is under way takes it by itself.
    if (!keeper.offer(answers.outcome())) return OFFER_AGAIN_MS
    adopt()
    return LOOK_EVERY_MS
  }

  return {
    /** This account is in use from now on; null: this host shares no more. */
    use(account: Account | null): void {
      if (connection !== null && !isSamePart(connection.settings, account?.share)) {
        void connection.store.then(({ close }) => close())
        connection = null
      }
      if (account !== null) connection ??= connect(account.share)
      current = account
      waking.abort()
    },
    /** One attempt with this account, which is in use or a candidate. */
    async attempt(account: Account, ...attempt: Parameters<FetchToken>): Promise<FetchOutcome> {
      underWay = hostOf(account).attempt(account, ...attempt)
      return underWay
    },
    /** Looks every 15 s and at each connection until the signal is aborted. Rejects for internal errors alone. */
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
      if (connection === null || current === null) return null
      return { ...connection.telemetry.state(), askedBy: hostOf(current).answers.latest()?.by ?? null }
    },
    /** For metrics. */
    sample: () => connection?.telemetry.sample() ?? null,
  }
}
