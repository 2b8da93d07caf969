// Follows the files: gives the keeper the newest pair in them. The keeper alone knows which pair is the running one,
// and what became of the other.
import { revealAll, type Config } from '../config/config.ts'
import { versionOf } from '../config/read.ts'
import { withTimeout } from '../lib/clock.ts'
import { UserError } from '../lib/error.ts'
import { createProblemLog } from '../lib/log.ts'
import { raceAbort } from '../lib/tasks.ts'
import type { StatusResult } from '../protocol.ts'
import { createKeeper, type Keeper } from '../token/keeper.ts'
import { candidateOf, isRefused, refusalOf } from '../token/selectors.ts'
import { createSources, type FollowerOptions, type Source } from './sources.ts'

/**
 * Changed secret files must stay the same for so long before they are used, since a second one may be written next;
 * where the service has refused the running pair, nothing is lost by haste.
 */
const SETTLE_MS = { usual: 30_000, refused: 2_000 }
const READ_EVERY_MS = 15_000
/** The longest time for which an operator's request waits for a disk. */
const MAX_READ_MS = 5_000
/** The longest list of secrets that no log shows. */
const MAX_SECRETS = 100

/** The configuration on disk, or why it cannot be used: a sentence with the remedy. */
type OnDisk = { readonly sinceMs: number } & ({ readonly config: Config } | { readonly problem: string })

export type Follower = Awaited<ReturnType<typeof createFollower>>

export async function createFollower(initial: Config, options: FollowerOptions) {
  const { clock, random, log, store, stop } = options
  /** The settings in force, with the newest pair. */
  let inForce = initial
  const sources = createSources({ ...options, keeper: () => keeper, secrets })
  let newestSource = sources.of(initial)
  let runningSource = newestSource
  /** Also former ones: a request with them may be under way. */
  let knownSecrets = revealAll(initial)
  const disk = createDisk(() => inForce, options)
  const state = await store.load(newestSource.files, random())
  const sourceOf = (pair: string): Source => (pair === runningSource.id ? runningSource : newestSource)
  const keeper: Keeper = createKeeper(state, { sourceOf, clock, random, save: store.save })
  sources.share.use(runningSource.shared)

  const fault = createProblemLog((error) => {
    const sentence = 'The configuration on disk is faulty: the running one stays, and a restart would fail'
    if (error !== null) log('error', sentence, { event: 'configuration-faulty', error })
  })
  /** Why the candidate gives no token: once for each reason. */
  const untaken = createProblemLog((error) => {
    const sentence = 'The credentials were changed and give no token: the former ones stay in use'
    const { files } = inForce.pair
    if (error !== null) log('error', sentence, { event: 'credentials-not-taken-over', files, error })
  })
  keeper.onEvent((event) => {
    if (event.type === 'tried' && 'reason' in event.outcome && event.outcome.kind !== 'postponed')
      untaken.set(`${event.outcome.reason}: ${event.outcome.detail}`)
    if (event.type !== 'attempted' || keeper.state().running === runningSource.id) return
    runningSource = newestSource
    sources.share.use(runningSource.shared)
    const { files } = inForce.pair
    log('notice', 'The credentials were changed and are in use', { event: 'credentials-taken-over', files })
  })

  const candidate = () => candidateOf(keeper.state())

  /** The token and every secret that was or may be sent. */
  function secrets(): string[] {
    return [...knownSecrets, keeper.state().token?.accessToken ?? '']
  }

  /** One synchronous step: these settings and this pair count from now on. */
  function use(next: Config): void {
    if (isOther(next)) untaken.set(null)
    runningSource = sources.of({ ...next, pair: runningSource.pair })
    newestSource = sources.of(next)
    inForce = next
    const all = [...revealAll(next), ...revealAll({ ...next, pair: runningSource.pair }), ...knownSecrets]
    knownSecrets = [...new Set(all)].slice(0, MAX_SECRETS)
    keeper.reload(newestSource.files)
    if (keeper.state().running === newestSource.id) runningSource = newestSource
    sources.share.use(runningSource.shared)
  }

  /** The configuration has another pair than the newest. */
  const isOther = (config: Config): boolean => sources.idOf(config) !== newestSource.id

  /** The documents are the same: the content of secret files is none of them. */
  const hasSameSettings = ({ read }: Config): boolean =>
    read.document.reveal() === inForce.read.document.reveal()

  /** Uses another pair in the files that has been the same for so long. Returns whether there is one that has not. */
  async function follow(settleMs: number): Promise<boolean> {
    const found = await disk.read()
    fault.set('problem' in found ? found.problem : null)
    if (stop.aborted || 'problem' in found) return false
    if (!isOther(found.config) || !hasSameSettings(found.config)) return false
    if (clock.now().bootMs < found.sinceMs + settleMs) return true
    use({ ...inForce, pair: found.config.pair })
    return false
  }

  async function watch(signal: AbortSignal): Promise<void> {
    let waitMs = READ_EVERY_MS
    while (!signal.aborted) {
      await clock.sleep(waitMs, signal)
      const settleMs = refusalOf(keeper.state()) === null ? SETTLE_MS.usual : SETTLE_MS.refused
      waitMs = (await follow(settleMs)) ? SETTLE_MS.refused : READ_EVERY_MS
    }
  }

  function configuration(): StatusResult['daemon']['configuration'] {
    const found = disk.last()
    if (found !== null && 'problem' in found) return { state: 'faulty', problem: found.problem }
    const config = found?.config ?? inForce
    const asked = candidate()
    if (asked !== null || isOther(config)) {
      const why = asked?.failure ? ` (${asked.failure.reason}: ${asked.failure.detail})` : ''
      const holds = `${config.pair.files.join(' with ')} holds another pair, which`
      if (asked === null || !isRefused(asked))
        return { state: 'changed', pair: 'tried', problem: `${holds} has given no token yet${why}` }
      const problem = `${holds} the service refused${why}: correct it, because a restart would use it`
      return { state: 'faulty', pair: 'refused', problem }
    }
    if (hasSameSettings(config)) return { state: 'current', problem: null }
    const names = config.read.needsRestart.join(' and ')
    return { state: 'changed', problem: names === '' ? null : `${names} can be changed by a restart alone` }
  }

  return {
    keeper,
    share: sources.share,
    disk,
    /** The settings in force, with the running pair. */
    config: (): Config => ({ ...inForce, pair: runningSource.pair }),
    secrets,
    use,
    candidate,
    configuration,
    /** An operator asks: first another pair in the files, then, where it gives no token, the running one. */
    refresh: async (signal: AbortSignal): ReturnType<Keeper['refresh']> => {
      await withTimeout(MAX_READ_MS, follow(0), clock)
      return keeper.refresh(signal)
    },
    /** Notices changed files until the signal is aborted. A disk that does not answer keeps no process from its end. */
    run: async (signal: AbortSignal): Promise<void> => raceAbort(watch(signal), signal),
  }
}

/**
 * The configuration on disk. It is loaded again only when one of its files has changed; a faulty one each
 * time, because its fault may go by itself: a group is made, a directory is opened. `load` throws only UserError.
 */
function createDisk(inForce: () => Config, { load, clock }: Pick<FollowerOptions, 'load' | 'clock'>) {
  let version = ''
  let last: OnDisk | null = null
  let reading: Promise<OnDisk> | null = null

  async function read(): Promise<OnDisk> {
    const before = last !== null && 'config' in last ? last : null
    const now = await versionOf((before?.config ?? inForce()).read.files)
    if (before !== null && version === now) return before
    version = now
    const sinceMs = clock.now().bootMs
    try {
      last = { sinceMs, config: await load(inForce()) }
    } catch (error) {
      if (!(error instanceof UserError)) throw error
      last = { sinceMs, problem: error.message }
    }
    return last
  }

  return {
    /** Calls at the same time share one reading. The same object is returned until a file changes. */
    read: async (): Promise<OnDisk> => (reading ??= read().finally(() => (reading = null))),
    /** Null: the files were not read since the start. */
    last: (): OnDisk | null => last,
  }
}
