// A session with the shared store of one account: it makes the keeper's attempts, polls the store from time to
// time and at each message, and offers the keeper what other hosts obtained.
import type { ShareConfig } from '../config/config.ts'
import { createWakeableSleep, withTimeout, type Clock } from '../lib/clock.ts'
import { randomHex } from '../lib/crypto.ts'
import type { StatusResult } from '../protocol.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import { isAsking } from '../token/state.ts'
import { createAttempts, POLL_EVERY_MS, type AttemptOptions } from './attempt.ts'
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
/** The time between two polls while a request is under way that began before the session. */
const FORMER_REQUEST_MS = 1_000
/** Messages cause no more than one poll in this time. */
const MESSAGE_MS = 250

export function createSession(options: SessionOptions) {
  const { store, clock, host, credentialsId, share, keeper } = options
  const telemetry = createTelemetry({ ...options, server: store.server })
  /** The answer that the keeper has. */
  const keeperAnswer = () =>
    resumed(keeper.state(), { credentialsId, host, id: randomHex(8), now: clock.now() })
  const link = createLink({
    ...options,
    timeoutMs: share.timeoutMs,
    telemetry,
    resumed: keeperAnswer(),
  })
  /** The first wakes the attempt that waits for another host, the second the polling. */
  const [attemptEvent, pollEvent] = [createAutoResetEvent(clock), createAutoResetEvent(clock)]
  const attempts = createAttempts({ ...options, link, telemetry, sleep: attemptEvent.wait })
  let underWay: Promise<unknown> | null = null

  /** Offers the keeper what it lacks, until it takes it. An attempt under way takes it by itself. */
  async function deliver(signal: AbortSignal): Promise<void> {
    while (link.isNew() && keeper.isUsing() && !signal.aborted) {
      if (underWay !== null) return
      const outcome = attempts.knownOutcome()
      if (outcome === null || keeper.offer(outcome)) return attempts.noteAdopted()
      await clock.sleep(OFFER_AGAIN_MS, signal)
    }
  }

  /** A request that began before this session may have been answered: the answer belongs to the account. */
  function learn(): void {
    if (keeper.isUsing() && underWay === null && !link.isNew()) link.learn(keeperAnswer())
  }

  async function keepPolling(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      learn()
      await link.poll().catch(telemetry.failed)
      attemptEvent.set()
      await deliver(signal)
      await clock.sleep(MESSAGE_MS, signal)
      const isAskedElsewhere = keeper.isUsing() && underWay === null && isAsking(keeper.state())
      await pollEvent.wait(isAskedElsewhere ? FORMER_REQUEST_MS : POLL_EVERY_MS, signal)
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
      if (link.isNew() || !link.known().isWritten) pollEvent.set()
    }
  }

  return {
    fetchToken,
    /** Polls until the signal is aborted. Then closes the store, once an attempt under way has ended. */
    async run(signal: AbortSignal): Promise<void> {
      store.listen(pollEvent.set)
      await keepPolling(signal)
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

/** A sleep that `set` ends. A call of `set` while nobody sleeps ends the next sleep at once. */
function createAutoResetEvent(clock: Clock) {
  const { sleep, wake } = createWakeableSleep(clock)
  let isSet = false
  return {
    set: (): void => {
      isSet = true
      wake()
    },
    wait: async (ms: number, signal: AbortSignal): Promise<void> => {
      if (!isSet) await sleep(ms, signal)
      isSet = false
    },
  }
}
