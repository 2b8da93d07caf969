// A session with the shared store of one account: it makes the keeper's attempts, looks at the store from
// time to time and at each message, and offers the keeper what other hosts obtained.
import type { ShareConfig } from '../config/config.ts'
import { createWakeableSleep, withTimeout, type Clock } from '../lib/clock.ts'
import { randomHex } from '../lib/crypto.ts'
import type { StatusResult } from '../protocol.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import { isAsking } from '../token/state.ts'
import { createAttempts, LOOK_EVERY_MS, type AttemptOptions } from './attempt.ts'
import { resumed } from './known.ts'
import { createLink } from './link.ts'
import type { AclSettings } from './redis-store.ts'
import type { Store } from './store.ts'
import { createTelemetry } from './telemetry.ts'

export interface SessionOptions extends Omit<AttemptOptions, 'link' | 'telemetry' | 'sleep' | 'share'> {
  readonly store: Store
  readonly share: Pick<ShareConfig, 'timeoutMs' | 'asks' | 'whenAlone'> & AclSettings
  readonly keeper: AttemptOptions['keeper'] & {
    /** False: not now, but soon. */
    readonly offer: (outcome: FetchOutcome) => boolean
    /** False: the keeper uses other credentials, and these are only tried. */
    readonly isUsing: () => boolean
  }
}

export type Session = ReturnType<typeof createSession>

/** The time after which an outcome that the keeper could not take is offered again. */
const OFFER_AGAIN_MS = 50
/** The time between two looks while a request is under way that began before the session. */
const FORMER_REQUEST_MS = 1_000
/** Messages cause no more looks than one in this time. */
const MESSAGE_MS = 250

export function createSession(options: SessionOptions) {
  const { store, clock, host, credentialsId, share, keeper } = options
  const telemetry = createTelemetry({ ...options, server: store.server })
  /** What the keeper has, as an answer that is known. */
  const inKeeper = () => resumed(keeper.state(), { credentialsId, host, id: randomHex(8), now: clock.now() })
  const link = createLink({
    ...options,
    timeoutMs: share.timeoutMs,
    telemetry,
    resumed: inKeeper(),
  })
  /** Of the attempt that waits for another host, and of the looks. */
  const [waiting, resting] = [createBell(clock), createBell(clock)]
  const attempts = createAttempts({ ...options, link, telemetry, sleep: waiting.wait })
  let underWay: Promise<unknown> | null = null

  /** Offers the keeper what it lacks, until it takes it. An attempt under way takes it by itself. */
  async function deliver(signal: AbortSignal): Promise<void> {
    while (link.isNew() && keeper.isUsing() && !signal.aborted) {
      if (underWay !== null) return
      const outcome = attempts.knownOutcome()
      if (outcome === null || keeper.offer(outcome)) return attempts.adopted()
      await clock.sleep(OFFER_AGAIN_MS, signal)
    }
  }

  /** A request that began before this session may have been answered: the answer belongs to the account. */
  function learn(): void {
    if (keeper.isUsing() && underWay === null && !link.isNew()) link.learn(inKeeper())
  }

  async function lookAgainAndAgain(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      learn()
      await link.look().catch(telemetry.failed)
      waiting.ring()
      await deliver(signal)
      await clock.sleep(MESSAGE_MS, signal)
      const isAskedElsewhere = keeper.isUsing() && underWay === null && isAsking(keeper.state())
      await resting.wait(isAskedElsewhere ? FORMER_REQUEST_MS : LOOK_EVERY_MS, signal)
    }
  }

  const fetchToken: FetchToken = async (signal, attempt) => {
    learn()
    const outcome = attempts.make(attempt, signal)
    underWay = outcome
    try {
      return await outcome
    } finally {
      underWay = null
      if (link.isNew() || !link.known().isWritten) resting.ring()
    }
  }

  return {
    fetchToken,
    /** Looks until the signal is aborted. Then closes the store, once an attempt under way has ended. */
    async run(signal: AbortSignal): Promise<void> {
      store.listen(resting.ring)
      await lookAgainAndAgain(signal)
      // A reload ends no request: other hosts of the store may still want its answer.
      const requestMs = keeper.isUsing() ? 0 : options.service().requestTimeoutMs
      if (underWay !== null) await withTimeout(requestMs + 2 * share.timeoutMs, underWay, clock)
      store.close()
    },
    status(): NonNullable<StatusResult['share']> {
      const { by } = link.known()
      return { ...telemetry.storeState(), server: store.server, hosts: link.hosts(), askedBy: by || null }
    },
    sample: () => ({ ...telemetry.sample(), hosts: link.hosts() }),
  }
}

/** A sleep that a ring ends; one that came since the last sleep spares the next. */
function createBell(clock: Clock) {
  const { sleep, wake } = createWakeableSleep(clock)
  let isRung = false
  return {
    ring: (): void => {
      isRung = true
      wake()
    },
    wait: async (ms: number, signal: AbortSignal): Promise<void> => {
      if (!isRung) await sleep(ms, signal)
      isRung = false
    },
  }
}
