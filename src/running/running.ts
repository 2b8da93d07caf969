// Keeps what is in use, with the sources made from it and the keeper that asks them. What follows from the
// disk, a reload or a token is decided in `in-use.ts`.
import { revealAll, type Config } from '../config/config.ts'
import { createDiskReader, type OnDisk } from '../config/on-disk.ts'
import { invariant } from '../lib/invariant.ts'
import { createKeeper, type Keeper, type Refreshed } from '../token/keeper.ts'
import { isRefusedPair } from '../token/state.ts'
import { createAssertionWatch } from './assertion-watch.ts'
import { configurationState, pairState, type ConfigurationState } from './configuration-state.ts'
import { createDiskWatch } from './disk-watch.ts'
import {
  filesOf,
  hasSecretFiles,
  initialInUse,
  needingRestart,
  nextInUse,
  withoutRestart,
  type InUseEvent,
} from './in-use.ts'
import { createSources, type Source, type SourceOptions } from './source.ts'

export interface RunningOptions extends SourceOptions {
  /** Reads the configuration for a daemon that has this runtime directory. Throws only UserError. */
  readonly load: (running: { runtimeDirectory: string }) => Promise<Config>
  /** Reads the disk, and gives another object once a file has changed; by `load`, unless it is given. */
  readonly readDisk?: () => Promise<OnDisk>
  /** The daemon binds its sockets itself. */
  readonly hasOwnSockets: boolean
  /** That of the daemon: nothing is read or tried any more. */
  readonly stop: AbortSignal
}

export type Running = Awaited<ReturnType<typeof createRunning>>

/** Throws UserError for an environment that names an unfit proxy. */
export async function createRunning(initial: Config, options: RunningOptions) {
  const { clock, random, log, store, load, stop } = options
  let inUse = initialInUse(initial, options)
  const sources = createSources({ ...options, keeper: () => keeper, secrets })
  let source = sources.of(initial)
  /** Of the candidate. */
  let candidateSource: Source | null = null
  /** The problem that was reported last of the present candidate. */
  let reported: string | null = null
  const keeper: Keeper = createKeeper(await store.load(source.settings), {
    settings: source.settings,
    clock,
    random,
    saveState: (state) => store.save(state),
  })
  sources.use(source)
  assertKept('start')
  const ofDisk = createDiskReader(
    () => load(inUse.config),
    () => inUse.read,
  )
  const { readDisk = ofDisk } = options
  const disk = createDiskWatch({ ...options, keeper, readDisk, inUse: () => inUse, apply })
  keeper.onEvent((event) => {
    if (event.type === 'tried' && event.outcome.kind !== 'postponed') report()
    const isInUse = keeper.state().credentialsId === candidateSource?.settings.credentialsId
    if (event.type === 'attempted' && isInUse) answered()
  })

  function secrets(): string[] {
    const { config, candidate, former } = inUse
    const configs = [config, candidate?.config ?? null, former].filter((one) => one !== null)
    return [...configs.flatMap(revealAll), keeper.state().token?.accessToken ?? '']
  }

  /**
   * One synchronous step. Throws UserError, and then nothing has changed. Without effect once the daemon
   * stops: what is saved then would be taken for the state of a crash.
   */
  function apply(event: InUseEvent): void {
    if (stop.aborted) return
    const former = inUse
    const next = nextInUse(former, event)
    const isSame = next.candidate?.config === former.candidate?.config
    const nextSource = next.config === former.config ? source : sources.of(next.config)
    const nextCandidate = isSame ? candidateSource : next.candidate && sources.of(next.candidate.config)
    inUse = next
    candidateSource = nextCandidate
    if (nextSource !== source) {
      source = nextSource
      sources.use(source)
      keeper.reload(source.settings)
    }
    if (!isSame) {
      reported = null
      keeper.setCandidate(candidateSource?.settings ?? null)
    }
    assertKept(event.type)
  }

  /** The keeper asks with what is in use, and tries what is the candidate. */
  function assertKept(after: InUseEvent['type'] | 'start'): void {
    const { credentialsId, candidate } = keeper.state()
    invariant(credentialsId === source.settings.credentialsId, 'the-keeper-asks-with-what-is-in-use', {
      after,
    })
    const triedId = candidateSource?.settings.credentialsId ?? null
    const isTried =
      (candidate?.credentialsId ?? null) === triedId && (triedId === null) === (inUse.candidate === null)
    invariant(isTried, 'the-keeper-tries-the-candidate', { after })
  }

  /** The candidate has given a token: the keeper asks with its settings already. */
  function answered(): void {
    const { candidate } = inUse
    if (candidate === null || candidateSource === null) return
    source = candidateSource
    candidateSource = null
    inUse = nextInUse(inUse, { type: 'answered' })
    sources.use(source)
    assertKept('answered')
    log('notice', 'The credentials were changed and are in use', {
      event: 'credentials-taken-over',
      files: filesOf(candidate.config),
    })
  }

  /** Logs why the candidate gives no token, once for each reason. */
  function report(): void {
    const { candidate } = keeper.state()
    if (inUse.candidate === null || candidate === null || candidate.failure === null) return
    const isRefused = isRefusedPair(candidate)
    const problem = pairState(inUse, candidate)?.problem ?? null
    if (problem === reported) return
    reported = problem
    const { reason, detail } = candidate.failure
    log('error', 'The credentials were changed and give no token: the former ones stay in use', {
      event: 'credentials-not-taken-over',
      files: filesOf(inUse.candidate.config),
      error: `${reason}: ${detail}`,
      remedy: isRefused
        ? 'Correct these files first: they are tried again when one changes, and a restart would use them'
        : 'Nothing to do if it passes: the files are tried again and again',
    })
  }

  const configuration = (): ConfigurationState => configurationState(inUse, keeper.state().candidate)

  return {
    keeper,
    assertionWatch: createAssertionWatch({ config: () => inUse.config, keeper }),
    sharing: sources.sharing,
    config: (): Config => inUse.config,
    /** The token and every secret that was or may be sent: no log shows one. */
    secrets,
    /** Reads the disk again: `configuration` says then how it differs. */
    readDisk: disk.read,
    configuration,
    /** Reports whether the next start would be refused, or would fail for a secret file. */
    isFaulty: (): boolean => hasSecretFiles(inUse.config) && configuration().state === 'faulty',
    /** What of this configuration can be used now, and what needs a restart. Throws UserError if it is unfit. */
    validate(loaded: Config): { settings: Config; needsRestart: string[] } {
      sources.of(loaded)
      return { settings: withoutRestart(loaded, inUse), needsRestart: needingRestart(loaded, inUse) }
    },
    /**
     * This configuration is in use from now on, and another pair for the same service is the candidate:
     * `candidateId` is its id. `pair`: what became of the pair, if there is none.
     */
    use(loaded: Config): { candidateId: string | null; pair: 'in-use' | null } {
      invariant(!stop.aborted, 'no-reload-after-a-stop', {})
      const { former } = inUse
      apply({ type: 'reload', loaded })
      const candidateId = candidateSource?.settings.credentialsId ?? null
      return { candidateId, pair: inUse.former === former ? null : 'in-use' }
    },
    /** An operator asks: first another pair in the files, then, where it gives no token, the running one. */
    refresh: async (signal: AbortSignal): Promise<Refreshed | undefined> => {
      await disk.settle()
      return keeper.refresh(signal)
    },
    run: disk.run,
  }
}
