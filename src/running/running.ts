// Keeps what is in use: reads the disk, has other pairs tried, and says how the files and the running
// configuration differ. What follows from what is decided in `in-use.ts`.
import { revealAll, type Config } from '../config/config.ts'
import { createDiskReader, type OnDisk } from '../config/on-disk.ts'
import { withTimeout } from '../lib/clock.ts'
import { createProblemLog } from '../lib/log.ts'
import { createKeeper, type Keeper, type Refreshed } from '../token/keeper.ts'
import { isRefusedPair } from '../token/state.ts'
import { createAssertionWatch } from './assertion-watch.ts'
import {
  hasOtherPair,
  initialInUse,
  isCurrent,
  needingRestart,
  nextInUse,
  withoutRestart,
  type InUseEvent,
  type Loaded,
} from './in-use.ts'
import { createSources, type Source, type SourceOptions } from './source.ts'

/** Changed files must stay the same for so long before they are tried: a second may be written next. */
const SETTLE_MS = 2_000
/** The disk is first read so long after the start, because clients that wait for the start come first. */
const FIRST_AFTER_MS = 5_000
/** The longest time for which an operator's request waits for a disk. */
const MAX_LOOK_MS = 5_000

export interface ConfigurationState {
  readonly state: 'current' | 'changed' | 'faulty'
  /** The faults and their remedies, or why a reload does not help; null: neither. */
  readonly problem: string | null
  /** The problem is another pair in the files: the service refused it, or it is being tried. */
  readonly pair?: 'refused' | 'tried'
}

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
  const startedAtMs = clock.now().bootMs
  let inUse = initialInUse(initial, options)
  const sources = createSources({ ...options, keeper: () => keeper, secrets })
  let source = sources.of(initial)
  /** Of the candidate. */
  let candidateSource: Source | null = null
  /** Operators who ask at one time are answered by one request. */
  let settling: Promise<void> | null = null
  /** The problem that was reported last of the present candidate. */
  let reported: string | null = null
  const keeper: Keeper = createKeeper(await store.load(source.settings), {
    settings: source.settings,
    clock,
    random,
    saveState: (state) => store.save(state),
  })
  sources.use(source)
  const ofDisk = createDiskReader(
    () => load(inUse.config),
    () => inUse.read,
  )
  const { readDisk = ofDisk } = options
  const diskFault = createProblemLog((error) => {
    const sentence = 'The configuration on disk is faulty: the running one stays, and a restart would fail'
    if (error !== null) log('error', sentence, { event: 'configuration-faulty', error })
  })
  keeper.onEvent((event) => {
    if (event.type === 'tried' && event.outcome.kind !== 'postponed') report()
    const isTaken = keeper.state().credentialsId === candidateSource?.settings.credentialsId
    if (event.type === 'attempted' && isTaken) answered()
  })

  function secrets(): string[] {
    const { config, candidate, former } = inUse
    const configs = [config, candidate?.config ?? null, former].filter((one) => one !== null)
    return [...configs.flatMap(revealAll), keeper.state().token?.accessToken ?? '']
  }

  /** One synchronous step. Throws UserError, and then nothing has changed. */
  function apply(event: InUseEvent): void {
    const former = inUse
    const next = nextInUse(former, event)
    const isSame = next.candidate?.config === former.candidate?.config
    const nextSource = next.config === former.config ? source : sources.of(next.config)
    const nextCandidate = isSame ? candidateSource : next.candidate && sources.of(next.candidate.config)
    const dropped = candidateSource
    inUse = next
    candidateSource = nextCandidate
    if (nextSource !== source) {
      source = nextSource
      sources.use(source)
      keeper.reload(source.settings)
    }
    if (isSame) return
    reported = null
    keeper.setCandidate(candidateSource?.settings ?? null)
    if (dropped !== null) sources.drop(dropped)
  }

  /** The candidate has given a token: the keeper asks with its settings already. */
  function answered(): void {
    const { candidate } = inUse
    if (candidate === null || candidateSource === null) return
    source = candidateSource
    candidateSource = null
    inUse = nextInUse(inUse, { type: 'answered' })
    sources.use(source)
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
    if (isRefused && candidateSource !== null) sources.drop(candidateSource)
    const problem = pairProblem()?.problem ?? null
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

  /** What the files hold against what is in use; secrets in files are not compared. */
  function configuration(): ConfigurationState {
    const { onDisk, config } = inUse
    if (onDisk !== null && onDisk.kind !== 'loaded') {
      const words = 'No rotation of the secrets is noticed until this is corrected: '
      return { state: 'faulty', problem: (hasSecretFiles(config) ? words : '') + onDisk.problem }
    }
    const ofPair = pairProblem()
    if (ofPair !== null || onDisk === null) return ofPair ?? { state: 'current', problem: null }
    const fixed = needingRestart(onDisk.config, inUse)
    if (fixed.length === 0 && isCurrent(inUse, onDisk)) return { state: 'current', problem: null }
    const problem = fixed.length === 0 ? null : `${fixed.join(' and ')} can be changed by a restart alone`
    return { state: 'changed', problem }
  }

  /** The other pair in the files, which is not in use; null: there is none. */
  function pairProblem(): ConfigurationState | null {
    const { candidate: tried } = keeper.state()
    if (inUse.candidate === null || tried === null) return null
    const { failure } = tried
    const files = filesOf(inUse.candidate.config).join(' with ')
    if (failure === null || !isRefusedPair(tried)) {
      const why = failure === null ? '' : ` (${failure.reason}: ${failure.detail})`
      const problem = `${files} holds another pair, which is tried until there is an answer${why}`
      return { state: 'changed', pair: 'tried', problem }
    }
    const when = new Date(failure.since.wallMs).toISOString().slice(11, 16)
    const words = `holds a pair that the service refused at ${when} UTC (${failure.reason}: ${failure.detail})`
    const problem = `Correct these files first, because a restart would use them: ${files} ${words}`
    return { state: 'faulty', pair: 'refused', problem }
  }

  async function look(): Promise<OnDisk> {
    const onDisk = await readDisk()
    apply({ type: 'looked', onDisk, isSettled: false })
    return onDisk
  }

  /** Has another pair in the files tried, once they have been the same for a moment. */
  async function settle(): Promise<void> {
    const onDisk = await look()
    diskFault.set(onDisk.kind === 'loaded' ? null : onDisk.problem)
    if (!isNew(onDisk)) return
    await clock.sleep(SETTLE_MS, stop)
    if (!stop.aborted && (await readDisk()) === onDisk && !stop.aborted)
      apply({ type: 'looked', onDisk, isSettled: true })
  }

  const isNew = (onDisk: OnDisk): onDisk is Loaded =>
    onDisk.kind === 'loaded' && hasOtherPair(inUse, onDisk) && inUse.candidate?.found !== onDisk

  return {
    keeper,
    assertionWatch: createAssertionWatch({ config: () => inUse.config, keeper }),
    sharing: sources.sharing,
    config: (): Config => inUse.config,
    /** The token and every secret that was or may be sent: no log shows one. */
    secrets,
    look,
    configuration,
    /** Reports whether the next start would be refused, or would fail for a secret file. */
    isFaulty: (): boolean => hasSecretFiles(inUse.config) && configuration().state === 'faulty',
    /** The settings of this configuration that need a restart. Throws UserError if it cannot be used. */
    examine(loaded: Config): string[] {
      sources.of(loaded)
      return needingRestart(loaded, inUse)
    },
    /** The configuration without them: what can be used now. */
    settingsOf: (loaded: Config): Config => withoutRestart(loaded, inUse),
    /**
     * This configuration is in use from now on, and another pair for the same service is the candidate:
     * `candidateId` is its id. `known`: what became of the pair, if there is none.
     */
    take(loaded: Config): { candidateId: string | null; known: 'in-use' | null } {
      const { former } = inUse
      apply({ type: 'reload', loaded })
      const candidateId = candidateSource?.settings.credentialsId ?? null
      return { candidateId, known: inUse.former === former ? null : 'in-use' }
    },
    /** An operator asks: first another pair in the files, then, where it gives no token, the running one. */
    refresh: async (signal: AbortSignal): Promise<Refreshed | undefined> => {
      settling ??= settle().finally(() => (settling = null))
      await withTimeout(MAX_LOOK_MS, settling, clock)
      return keeper.refresh(signal)
    },
    /** Notices changed files at each tick of the keeper, until the signal is aborted. */
    async run(signal: AbortSignal): Promise<void> {
      await keeper.listenUntil(signal, ({ type }) => {
        const isEarly = clock.now().bootMs < startedAtMs + FIRST_AFTER_MS
        if (type === 'tick' && hasSecretFiles(inUse.config) && !isEarly && !stop.aborted) void settle()
      })
    },
  }
}

function hasSecretFiles({ secretFiles }: Config): boolean {
  return Object.keys(secretFiles).length > 0
}

/** The files that hold the pair. */
function filesOf({ secretFiles, file }: Config): string[] {
  const files = Object.values(secretFiles)
  return files.length === 0 ? [file] : files
}
