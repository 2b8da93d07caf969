// Compares the configuration on disk with the running one. Another pair in the secret files is tried, and is
// used once the service gives a token for it.
import { withTimeout, type Clock } from '../lib/clock.ts'
import { createProblemLog, type Log } from '../lib/log.ts'
import { isSame } from '../lib/secret.ts'
import { isAboutCredentials, type FetchOutcome, type TrialOptions } from '../token/outcome.ts'
import type { Config } from '../config/config.ts'
import type { OnDisk } from '../config/on-disk.ts'

/** Changed files must stay the same for so long before they are tried: a second may be written next. */
const SETTLE_MS = 2_000
/** The first look comes so long after the start, because clients that wait for the start come first. */
const FIRST_AFTER_MS = 5_000
/** The longest time for which an operator's request waits for a disk. */
const MAX_LOOK_MS = 5_000

/** Settings that take effect only at a restart. */
const OF_RESTART = ['runtimeDirectory', 'stateDirectory'] as const

interface ConfigurationState {
  readonly state: 'current' | 'changed' | 'faulty'
  /** The faults and their remedies, or why a reload does not help; null: neither. */
  readonly problem: string | null
  /** The problem is another pair in the secret files: the service refused it, or it is being tried. */
  readonly pair?: 'refused' | 'tried'
}

type Loaded = Extract<OnDisk, { kind: 'loaded' }>

/** The last trial of a pair in the files. */
interface Trial {
  readonly found: Loaded
  /** The running configuration at that time: the trial says nothing about another one. */
  readonly against: Config
  readonly over: AbortController
  /** Why it has given no token so far. */
  failure: ConfigurationState | null
}

export function createSecretWatch(options: {
  look: () => Promise<OnDisk>
  running: () => Config
  /** Uses these credentials once they give a token. Undefined: a reload or the signal ended the trial. */
  tryCredentials: (next: Config, options: TrialOptions) => Promise<FetchOutcome | undefined>
  clock: Clock
  log: Log
}) {
  const { running, tryCredentials, clock, log } = options
  const startedAtMs = clock.now().bootMs
  let onDisk: OnDisk | null = null
  /** Null: the files have the running pair, or one that is still to be tried. */
  let trial: Trial | null = null
  const diskFault = createProblemLog((error) => {
    const sentence = 'The configuration on disk is faulty: the running one stays, and a restart would fail'
    if (error !== null) log('error', sentence, { event: 'configuration-faulty', error })
  })

  async function look(): Promise<OnDisk> {
    onDisk = await options.look()
    return onDisk
  }

  /** The result of the last look against the running configuration; secrets in files are not compared. */
  function state(): ConfigurationState {
    if (onDisk === null) return { state: 'current', problem: null }
    if (onDisk.kind !== 'loaded') {
      const words = 'No rotation of the secrets is noticed until this is corrected: '
      return { state: 'faulty', problem: (hasSecretFiles(running()) ? words : '') + onDisk.problem }
    }
    if (trial?.against === running() && trial.failure !== null) return trial.failure
    const { config } = onDisk
    if (hasSameSettings(config, running())) return { state: 'current', problem: null }
    const fixed = OF_RESTART.filter((name) => config[name] !== running()[name])
    const problem = fixed.length === 0 ? null : `${fixed.join(' and ')} can be changed by a restart alone`
    return { state: 'changed', problem }
  }

  /** The other pair in the files, if there is one that has settled. */
  async function otherPair(signal: AbortSignal): Promise<Loaded | undefined> {
    const found = await look()
    diskFault.set(found.kind === 'loaded' ? null : found.problem)
    if (found.kind === 'stalled') return undefined
    if (found.kind === 'faulty' || !isOtherPair(found.config, running())) {
      endTrial()
      return undefined
    }
    await clock.sleep(SETTLE_MS, signal)
    return !signal.aborted && (await look()) === found ? found : undefined
  }

  function endTrial(): void {
    trial?.over.abort()
    trial = null
  }

  async function tryPair(found: Loaded, how: TrialOptions): Promise<FetchOutcome | undefined> {
    endTrial()
    const own: Trial = { found, against: running(), over: new AbortController(), failure: null }
    trial = own
    const outcome = await tryCredentials(found.config, {
      cause: how.cause,
      signal: AbortSignal.any([how.signal, own.over.signal]),
      onFailed(failed, retryAtMs) {
        if (trial === own) report(own, failed)
        how.onFailed?.(failed, retryAtMs)
      },
    })
    if (outcome?.kind === 'ok')
      log('notice', 'The credentials in the files were changed and are in use', {
        event: 'credentials-taken-over',
        files: Object.values(found.config.secretFiles),
      })
    // An operator's trial of the same pair may have replaced it.
    if (trial !== own) return outcome
    if (outcome === undefined || outcome.kind === 'ok') trial = null
    else report(own, outcome)
    return outcome
  }

  /** Reports why the pair in the files gives no token: in the log once, and in the state until it is over. */
  function report(own: Trial, failed: Exclude<FetchOutcome, { kind: 'ok' }>): void {
    const files = Object.values(own.found.config.secretFiles)
    const error = `${failed.reason ?? failed.kind}: ${failed.detail ?? ''}`
    const isRefused = isAboutCredentials(failed)
    const before = own.failure
    own.failure = isRefused ? refusedState(files, error) : triedState(files, error)
    if (own.failure.problem === before?.problem) return
    log('error', 'The credentials in the files were changed and give no token: the former ones stay in use', {
      event: 'credentials-not-taken-over',
      files,
      error,
      remedy: isRefused
        ? 'Correct the files: they are tried again when one changes. ' +
          'A reload or a restart uses them as they are'
        : 'Nothing to do if it passes: the files are tried again and again',
    })
  }

  function refusedState(files: readonly string[], error: string): ConfigurationState {
    const at = new Date(clock.now().wallMs).toISOString().slice(11, 16)
    const words = `holds a pair that the service refused at ${at} UTC (${error})`
    const remedy = 'the next restart will use it: correct these files'
    return { state: 'faulty', pair: 'refused', problem: `${files.join(' with ')} ${words}; ${remedy}` }
  }

  function triedState(files: readonly string[], error: string): ConfigurationState {
    const words = `holds another pair, which is tried until there is an answer (${error})`
    return { state: 'changed', pair: 'tried', problem: `${files.join(' with ')} ${words}` }
  }

  return {
    look,
    state,
    /** Reports whether the next start would be refused, or would fail for a secret file. */
    isFaulty: (): boolean => hasSecretFiles(running()) && state().state === 'faulty',
    /**
     * Notices changed files and has them tried. Nothing is tried while the configuration on disk differs
     * from the running one, or while a secret is missing, empty or unfit; a pair that was refused is tried
     * again when a file changes.
     */
    async tick(signal: AbortSignal): Promise<void> {
      const isEarly = clock.now().bootMs < startedAtMs + FIRST_AFTER_MS
      if (!hasSecretFiles(running()) || isEarly) return
      const found = await otherPair(signal)
      // Not awaited: while it waits for the service the files may change again.
      if (found !== undefined && found !== trial?.found) void tryPair(found, { cause: 'reload', signal })
    },
    /** An operator asks: tries the pair in the files now. Returns undefined if that gave no token. */
    async refresh(signal: AbortSignal): Promise<FetchOutcome | undefined> {
      const found = await withTimeout(MAX_LOOK_MS, otherPair(signal), clock)
      if (found === undefined) return undefined
      const failed = Promise.withResolvers<undefined>()
      const onFailed = (): void => failed.resolve(undefined)
      const asked = tryPair(found, { cause: 'operator', signal, onFailed })
      const outcome = await Promise.race([asked, failed.promise])
      return outcome?.kind === 'ok' ? outcome : undefined
    },
  }
}

function hasSecretFiles({ secretFiles }: Config): boolean {
  return Object.keys(secretFiles).length > 0
}

/** Authorities are not compared: an update of the host may change them, and must not hold up a rotation. */
function isOtherPair({ request, ...next }: Config, running: Config): boolean {
  const { ca } = running.request
  const hasSame = hasSameSettings({ ...next, request: { ...request, ca } }, running)
  return hasSame && !isSame(next.credentials, running.credentials)
}

/** Reports whether both are the same, apart from secrets that come from files. */
function hasSameSettings(one: Config, other: Config): boolean {
  return isSame(settingsOf(one), settingsOf(other))
}

function settingsOf({ credentials, endsAtMs, ...settings }: Config): object {
  const { apiKey, apiSecret, further } = credentials
  const secrets = { 'credentials.apiKey': apiKey, 'credentials.apiSecret': apiSecret, ...further }
  const written = Object.entries(secrets).filter(([at]) => !(at in settings.secretFiles))
  return { ...settings, warnings: null, endsAtMs: endsAtMs.pair, written: Object.fromEntries(written) }
}
