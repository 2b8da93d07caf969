// Reads the files, gives the keeper the newest pair in them, and applies a reload in one step. The keeper alone
// knows which pair is in use and what became of the other one.
import type { Config } from '../config/config.ts'
import { revealAll } from '../config/pair.ts'
import { withTimeout } from '../lib/clock.ts'
import { createProblemLog } from '../lib/log.ts'
import { createKeeper, type Keeper, type Refreshed } from '../token/keeper.ts'
import { candidateOf, refusalOf } from '../token/selectors.ts'
import { configurationState, type ConfigurationState } from './configuration-state.ts'
import { createDiskReader, type OnDisk } from './on-disk.ts'
import { createSources, type SourceOptions } from './source.ts'

/**
 * Changed secret files must stay the same for so long before they are used, since a second one may be written next;
 * where the service has refused the running pair, nothing is lost by haste.
 */
const SETTLE_MS = { usual: 30_000, refused: 2_000 }
/** The disk is first read so long after the start, because clients that wait for the start come first. */
const FIRST_AFTER_MS = 5_000
/** The longest time for which an operator's request waits for a disk. */
const MAX_READ_MS = 5_000

export interface RunningOptions extends SourceOptions {
  /** Reads the configuration, as a daemon with this one has it until a restart. Throws only UserError. */
  readonly load: (running: Config) => Promise<Config>
  /** Reads the disk, and gives another object once a file has changed; by `load`, unless it is given. */
  readonly readDisk?: () => Promise<OnDisk>
  /** That of the daemon: nothing is read or used any more. */
  readonly stop: AbortSignal
}

export type Running = Awaited<ReturnType<typeof createRunning>>

/** Throws UserError for an environment that names an unfit proxy. */
export async function createRunning(initial: Config, options: RunningOptions) {
  const { clock, random, log, store, load, stop } = options
  const startedAtMs = clock.now().bootMs
  /** As the start or the last reload read it. */
  let inForce = initial
  const sources = createSources({ ...options, keeper: () => keeper, secrets })
  let newest = sources.of(initial)
  /** The source of the running pair. */
  let running = newest
  /** Where the secrets of a pair were read: of the two, and of the former running one, which answers may name. */
  const pairs = new Map([[newest.id, initial]])
  /** What the files held when they were read last, and since when; null: they were not read since the start. */
  let onDisk: { readonly found: OnDisk; readonly sinceMs: number } | null = null
  const files = sources.filesOf(initial, newest)
  const keeper: Keeper = createKeeper(await store.load(files, random()), {
    settings: { ...files, newest, running: null },
    clock,
    random,
    save: async (state) => store.save(state),
  })
  sources.use(newest)
  const {
    readDisk = createDiskReader(
      async () => load(inForce),
      () => inForce,
    ),
  } = options
  const fault = createProblemLog((error) => {
    const sentence = 'The configuration on disk is faulty: the running one stays, and a restart would fail'
    if (error !== null) log('error', sentence, { event: 'configuration-faulty', error })
  })
  /** Why the candidate gives no token: once for each reason. */
  const untaken = createProblemLog((problem) => problem !== null && logUntaken())
  keeper.onEvent((event) => {
    if (event.type === 'tried' && event.outcome.kind !== 'postponed') {
      const view = candidateOf(keeper.state(), clock.now())
      untaken.set(view && `${view.id} ${view.reason}: ${view.detail}`)
    }
    if (event.type === 'attempted' && event.outcome.kind === 'ok') taken()
  })

  /** The candidate, if it was that, has given a token. */
  function taken(): void {
    if (keeper.state().running === running.id) return
    running = newest
    sources.use(running)
    untaken.set(null)
    log('notice', 'The credentials were changed and are in use', {
      event: 'credentials-taken-over',
      files: filesOf(newest.id),
    })
  }

  function logUntaken(): void {
    const view = candidateOf(keeper.state(), clock.now())
    if (view === null) return
    log('error', 'The credentials were changed and give no token: the former ones stay in use', {
      event: 'credentials-not-taken-over',
      files: filesOf(view.id),
      error: `${view.reason}: ${view.detail}`,
      remedy: view.isRefused
        ? 'Correct these files first: they are tried again when one changes, and a restart would use them'
        : 'Nothing to do if it passes: the files are tried again and again',
    })
  }

  /** The files that hold the pair. */
  const filesOf = (id: string): readonly string[] => (pairs.get(id) ?? inForce).pair.files

  /** The token and every secret that was or may be sent. */
  function secrets(): string[] {
    return [...[inForce, ...pairs.values()].flatMap(revealAll), keeper.state().token?.accessToken ?? '']
  }

  /** One synchronous step: these settings and this pair count from now on. Throws UserError, and nothing changed. */
  function use(settings: Config, ofPair: Config): void {
    const { id } = running
    const nextNewest = sources.of(withPairOf(settings, ofPair))
    const isRunning = nextNewest.id === id
    const nextRunning = isRunning ? nextNewest : sources.of(withPairOf(settings, pairs.get(id)!))
    newest = nextNewest
    inForce = settings
    pairs.delete(newest.id)
    pairs.set(newest.id, ofPair)
    keeper.reload({ ...sources.filesOf(settings, newest), newest, running: isRunning ? null : nextRunning })
    // Another service is asked with the newest pair alone.
    running = keeper.state().running === newest.id ? newest : nextRunning
    if (running.id !== id || isRunning) untaken.set(null)
    for (const known of [...pairs.keys()].slice(0, -3)) if (known !== running.id) pairs.delete(known)
    sources.use(running)
  }

  /** Reads the files. */
  async function read(): Promise<OnDisk> {
    const found = await readDisk()
    if (found !== onDisk?.found) onDisk = { found, sinceMs: clock.now().bootMs }
    return found
  }

  /** The files hold another pair than the newest, and the settings are those in force: it may be used. */
  function otherPair(found: OnDisk): Config | null {
    if (found.kind !== 'loaded' || sources.idOf(found.config) === newest.id) return null
    return hasSameSettings(found.config, inForce) ? found.config : null
  }

  /** Uses changed files: at once, or where they have been the same for long enough. */
  async function follow({ isAtOnce }: { isAtOnce: boolean }): Promise<void> {
    const found = await read()
    fault.set(found.kind === 'loaded' ? null : found.problem)
    const pair = otherPair(found)
    if (stop.aborted || pair === null || onDisk === null) return
    const settleMs = refusalOf(keeper.state()) === null ? SETTLE_MS.usual : SETTLE_MS.refused
    if (isAtOnce || clock.now().bootMs - onDisk.sinceMs >= settleMs) return use(inForce, pair)
    if (settleMs === SETTLE_MS.usual) return
    await clock.sleep(settleMs, stop)
    if ((await read()) === found && !stop.aborted) use(inForce, pair)
  }
  let following: Promise<void> | null = null

  const hasSecretFiles = (): boolean => inForce.pair.files.some((file) => file !== inForce.read.file)

  function configuration(): ConfigurationState {
    const candidate = candidateOf(keeper.state(), clock.now())
    const loaded = onDisk?.found.kind === 'loaded' ? onDisk.found.config : null
    const isOther =
      loaded !== null && sources.idOf(loaded) !== newest.id && sources.isSameService(loaded, inForce)
    return configurationState({
      onDisk: onDisk?.found ?? null,
      hasSecretFiles: hasSecretFiles(),
      files: filesOf(newest.id),
      candidate,
      other: isOther ? { isSettling: otherPair(onDisk!.found) !== null } : null,
      needsRestart: loaded?.read.needsRestart ?? [],
      isCurrent: loaded === null || hasSameSettings(loaded, inForce),
    })
  }

  return {
    keeper,
    sharing: sources.sharing,
    /** The settings in force, with the running pair. */
    config: (): Config => withPairOf(inForce, pairs.get(running.id) ?? inForce),
    /** The token and every secret that was or may be sent: no log shows one. */
    secrets,
    /** Reads the files again: `configuration` says then how they differ. */
    readDisk: read,
    configuration,
    /** Reports whether the next start would be refused, or would fail for a secret file. */
    isFaulty: (): boolean => hasSecretFiles() && configuration().state === 'faulty',
    /** Throws UserError if this configuration cannot be used. */
    validate: (loaded: Config): void => void sources.of(loaded),
    /** This configuration is in force from now on. Returns whether its pair is another one than before. */
    reload(loaded: Config): boolean {
      const before = sources.filesOf(inForce, newest)
      use(loaded, loaded)
      const after = sources.filesOf(inForce, newest)
      return before.pair !== after.pair || before.service.id !== after.service.id
    },
    /** An operator asks: first another pair in the files, then, where it gives no token, the running one. */
    refresh: async (signal: AbortSignal): Promise<Refreshed | undefined> => {
      await withTimeout(MAX_READ_MS, follow({ isAtOnce: true }), clock)
      return keeper.refresh(signal)
    },
    /** Notices changed files at each tick of the keeper, until the signal is aborted. */
    async run(signal: AbortSignal): Promise<void> {
      await keeper.listenUntil(signal, ({ type }) => {
        const isEarly = clock.now().bootMs < startedAtMs + FIRST_AFTER_MS
        if (type !== 'tick' || isEarly || !hasSecretFiles()) return
        following ??= follow({ isAtOnce: false }).finally(() => (following = null))
      })
    },
  }
}

/** These settings with the pair of another configuration. */
function withPairOf(settings: Config, { pair }: Config): Config {
  return { ...settings, pair }
}

/** Reports whether both documents are the same: the content of secret files is none of them. */
function hasSameSettings(one: Config, other: Config): boolean {
  return one.read.document.reveal() === other.read.document.reveal()
}
