// A reload: all that can fail is prepared first, then one synchronous step makes it so, and never after a stop
// has begun.
import type { Config } from '../config/config.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import type { Log } from '../lib/log.ts'
import type { ReloadResult } from '../protocol.ts'
import { logReload } from '../report/configuration-log.ts'
import { isRefused } from '../token/selectors.ts'
import type { Follower } from './follower.ts'

/** The longest time for which the answer waits for the first attempt with another pair. */
const MAX_CANDIDATE_MS = 60_000

interface ReloadOptions {
  readonly follower: Follower
  /**
   * Prepares the components for these settings. Throws UserError. Returns the function that has them used from
   * then on; it resolves once the files are as they are to be.
   */
  readonly prepare: (next: Config) => Promise<() => Promise<void>>
  /** Hears that a reload begins and has ended. */
  readonly notifier: { reloading(): void; ready(): void }
  readonly log: Log
  /** That of the daemon: no reload has any effect once it stops. */
  readonly stop: AbortSignal
}

/**
 * Returns the function that reloads: one at a time, each beginning when the one before is in force. Resolves
 * when the first attempt with another pair has ended, after 60 s at the latest.
 */
export function createReload({ follower, prepare, notifier, log, stop }: ReloadOptions) {
  const { keeper, disk, candidate } = follower
  let last: Promise<unknown> = Promise.resolve()

  /** Brings the configuration on disk into force, or gives the reason why not: then nothing has changed. */
  async function begin(): Promise<{ needsRestart: readonly string[]; former: string } | UserError> {
    notifier.reloading()
    try {
      // A reading that is under way may have begun before the files were as they are.
      await disk.read()
      const found = await disk.read()
      if ('problem' in found) throw new UserError(found.problem, exitStatus.configuration)
      const { config } = found
      const usePrepared = await prepare(config)
      if (stop.aborted) throw new UserError('kyc-tokend is stopping', exitStatus.unavailable)
      const { running: former } = keeper.state()
      follower.use(config)
      await usePrepared()
      logReload(config.read, log)
      return { needsRestart: config.read.needsRestart, former }
    } catch (error) {
      if (!(error instanceof UserError)) throw error
      const fields = { event: 'reload-failed', error: error.message }
      log('error', 'The configuration was not taken over: the running one stays', fields)
      return error
    } finally {
      notifier.ready()
    }
  }

  return async (): Promise<ReloadResult> => {
    const begun = last.then(begin)
    last = begun.catch(() => undefined)
    const result = await begun
    if (result instanceof UserError)
      return { outcome: 'faulty', problems: result.message.split('\n'), needsRestart: [], pair: null }
    const needsRestart = [...result.needsRestart]
    await keeper.waitUntil(() => candidate()?.failure !== null, { waitMs: MAX_CANDIDATE_MS, signal: stop })
    if (candidate() === null) {
      const pair = keeper.state().running === result.former ? null : 'in-use'
      return { outcome: 'ok', problems: [], needsRestart, pair }
    }
    const { problem } = follower.configuration()
    const pair = isRefused(candidate()!) ? 'refused' : 'tried'
    return { outcome: 'failed', problems: problem === null ? [] : [problem], needsRestart, pair }
  }
}
