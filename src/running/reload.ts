// A reload: all that can fail is prepared first, then one synchronous step makes it so, and never after a stop
// has begun. It is answered once another pair, if there is one, had its first attempt.
import type { Config } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import { UserError } from '../lib/error.ts'
import type { Log } from '../lib/log.ts'
import type { ReloadResult } from '../protocol.ts'
import { logReload } from '../report/configuration-log.ts'
import { candidateOf } from '../token/selectors.ts'
import type { Running } from './running.ts'

/** The longest time for which the answer waits for the first attempt with another pair. */
const MAX_TRIAL_MS = 60_000
const STOPPING: ReloadResult = {
  outcome: 'failed',
  problems: ['kyc-tokend is stopping: its next start reads the configuration'],
  needsRestart: [],
  pair: null,
}

interface ReloadOptions {
  readonly running: Running
  readonly load: (running: Config) => Promise<Config>
  /**
   * Prepares the components for these settings. Throws UserError. Returns the function that has them used from
   * then on; it resolves once the files are as they are to be.
   */
  readonly prepare: (next: Config) => Promise<() => Promise<void>>
  /** Hears that a reload begins and has ended. */
  readonly notifier: { reloading(): void; reloaded(): void }
  readonly clock: Clock
  readonly log: Log
  /** That of the daemon: no reload has any effect once it stops. */
  readonly stop: AbortSignal
}

/** What a reload has brought into force. */
interface InForce {
  readonly needsRestart: string[]
  readonly pair: Promise<ReloadResult['pair']>
}

/**
 * Returns the function that reloads: one at a time, each beginning when the one before is in force. Resolves
 * when the first attempt with another pair has ended, after 60 s at the latest.
 */
export function createReload({ running, load, prepare, notifier, clock, log, stop }: ReloadOptions) {
  const { keeper } = running
  let last: Promise<unknown> = Promise.resolve()

  /** Has the configuration on disk used. Null: the daemon stops. Throws UserError: then nothing has changed. */
  async function bringIntoForce(): Promise<InForce | null> {
    // What is written from here on is another change.
    await running.readDisk()
    const loaded = await load(running.config())
    running.validate(loaded)
    if (stop.aborted) return null
    const use = await prepare(loaded)
    if (stop.aborted) return null
    const isOtherPair = running.reload(loaded)
    const pair = pairAfter(isOtherPair)
    await use()
    logReload(loaded.read, log)
    return { needsRestart: [...loaded.read.needsRestart], pair }
  }

  /** Brings it into force, or gives the reason why not. */
  async function begin(): Promise<InForce | UserError | null> {
    notifier.reloading()
    try {
      return await bringIntoForce()
    } catch (error) {
      if (!(error instanceof UserError)) throw error
      log('error', 'The configuration was not taken over: the running one stays', {
        event: 'reload-failed',
        error: error.message,
      })
      return error
    } finally {
      notifier.reloaded()
    }
  }

  /** What becomes of the pair in the files. One that has failed before is not waited for. */
  async function pairAfter(isOther: boolean): Promise<ReloadResult['pair']> {
    const view = () => candidateOf(keeper.state(), clock.now())
    const first = view()
    if (first === null) return isOther ? 'in-use' : null
    const isOver = (): boolean => view()?.id !== first.id || view()?.reason !== null
    const isHeld = first.nextAttemptAtMs > clock.now().bootMs + MAX_TRIAL_MS
    if (!isHeld) await keeper.waitUntil(isOver, { waitMs: MAX_TRIAL_MS, signal: stop })
    if (keeper.state().running === first.id) return 'in-use'
    return view()?.id === first.id && view()?.isRefused === true ? 'refused' : 'tried'
  }

  return async (): Promise<ReloadResult> => {
    const reload = last.then(async () => begin())
    last = reload.catch(() => undefined)
    const result = await reload
    if (result === null) return STOPPING
    if (result instanceof UserError)
      return { outcome: 'faulty', problems: [...result.lines], needsRestart: [], pair: null }
    const { needsRestart } = result
    const pair = await result.pair
    if (pair === null || pair === 'in-use') return { outcome: 'ok', problems: [], needsRestart, pair }
    const { problem } = running.configuration()
    return { outcome: 'failed', problems: problem === null ? [] : [problem], needsRestart, pair }
  }
}
