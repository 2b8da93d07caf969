// Notices that secret files have changed, and has the new pair used once the service gives a token for it.
import { withTimeout, type Clock } from '../lib/clock.ts'
import { createProblemLog, type Log } from '../lib/log.ts'
import { isSame } from '../lib/secret.ts'
import type { FetchOutcome, TrialOptions } from '../token/outcome.ts'
import type { Config } from './config.ts'
import {
  hasSameSettings,
  hasSecretFiles,
  type ConfigOnDisk,
  type ConfigurationState,
  type OnDisk,
} from './on-disk.ts'

/** The time for which changed files must stay the same before they are tried: a second file may be written after the first. */
const SETTLE_MS = 2_000
const FIRST_AFTER_MS = 5_000
/** The longest time for which an operator's request waits for a disk. */
const MAX_LOOK_MS = 5_000

type Loaded = Extract<OnDisk, { kind: 'loaded' }>

export function createSecretWatch(options: {
  onDisk: Pick<ConfigOnDisk, 'examine' | 'state'>
  running: () => Config
  /** Uses these credentials once they give a token. Undefined: a reload or the signal ended it before the service decided. */
  tryCredentials: (next: Config, options: TrialOptions) => Promise<FetchOutcome | undefined>
  clock: Clock
  log: Log
}) {
  const { onDisk, running, tryCredentials, clock, log } = options
  /** The first look comes after this moment, because clients that wait for the start come first. */
  const firstAtMs = clock.now().bootMs + FIRST_AFTER_MS
  let isBusy = false
  /** Pairs that are being tried or were refused: they are not tried again. */
  const tried = new WeakSet<Loaded>()
  let trial: AbortController | null = null
  /** The pair in the files that gave no token, until a reload: `against` is the running configuration at that time. */
  let failedPair: { readonly state: ConfigurationState; readonly against: Config } | null = null
  const diskFault = createProblemLog((error) => {
    const sentence = 'The configuration on disk is faulty: the running one stays, and a restart would fail'
    if (error !== null) log('error', sentence, { event: 'configuration-faulty', error })
  })

  /** The configuration on disk against the running one, and the pair in the files that gives no token. */
  function state(): ConfigurationState {
    const found = onDisk.state()
    return found.state !== 'faulty' && failedPair?.against === running() ? failedPair.state : found
  }

  /**
   * The other pair in the files, once it has stayed the same for 2 s; null: there is none; undefined: a disk does not answer, or
   * the signal was aborted.
   */
  async function settledPair(signal: AbortSignal): Promise<Loaded | null | undefined> {
    for (;;) {
      const found = await onDisk.examine({ isFaultKept: false })
      diskFault.set(found.kind === 'loaded' ? null : found.problem)
      if (found.kind === 'stalled') return undefined
      if (found.kind === 'faulty' || !isOtherPair(found.config, running())) return null
      await clock.sleep(SETTLE_MS, signal)
      if (signal.aborted) return undefined
      if ((await onDisk.examine()) === found) return found
    }
  }

  function giveUp(): void {
    trial?.abort()
    trial = null
    failedPair = null
  }

  async function tryPair(found: Loaded, how: TrialOptions): Promise<FetchOutcome | undefined> {
    giveUp()
    tried.add(found)
    const own = new AbortController()
    trial = own
    const files = Object.values(found.config.secretFiles)
    const outcome = await tryCredentials(found.config, {
      cause: how.cause,
      signal: AbortSignal.any([how.signal, own.signal]),
      onFailed(failed, retryAtMs) {
        if (trial === own) report(failed, files)
        how.onFailed?.(failed, retryAtMs)
      },
    })
    if (trial === own) trial = null
    if (outcome?.kind === 'ok') {
      failedPair = null
      log('notice', 'The credentials in the files were changed and are in use', {
        event: 'credentials-taken-over',
        files,
      })
    } else if (outcome !== undefined) report(outcome, files)
    // A trial that was ended is repeated, unless an operator's trial of the same pair has replaced it.
    else if (trial === null) tried.delete(found)
    return outcome
  }

  /** Reports why the pair in the files gives no token: in the log once, and in the state until it is over. */
  function report(
    { kind, reason, detail = '' }: Exclude<FetchOutcome, { kind: 'ok' }>,
    files: readonly string[],
  ): void {
    const error = `${reason ?? kind}: ${detail}`
    const at = new Date(clock.now().wallMs).toISOString().slice(11, 16)
    const isRefused = kind === 'permanent' || reason === 'rejected'
    const words = isRefused
      ? `holds a pair that the service refused at ${at} UTC (${error}); the next restart will use it: correct these files`
      : `holds another pair, which is tried until there is an answer (${error})`
    const former = failedPair?.state.problem
    const sentence = `${files.join(' with ')} ${words}`
    const verdict = isRefused
      ? ({ state: 'faulty', pair: 'refused' } as const)
      : ({ state: 'changed', pair: 'tried' } as const)
    failedPair = { state: { ...verdict, problem: sentence }, against: running() }
    if (former === sentence) return
    log('error', 'The credentials in the files were changed and give no token: the former ones stay in use', {
      event: 'credentials-not-taken-over',
      files,
      error,
      remedy: isRefused
        ? 'Correct the files: they are tried again when one changes. A reload or a restart uses them as they are'
        : 'Nothing to do if it passes: the files are tried again and again',
    })
  }

  return {
    /**
     * Notices changed files and has them tried. Nothing is tried while the configuration on disk differs from the running
     * one, or while a secret is missing, empty or unfit; a pair that was refused is tried again when a file changes.
     */
    async tick(signal: AbortSignal): Promise<void> {
      const isEarly = clock.now().bootMs < firstAtMs
      if (!hasSecretFiles(running()) || isBusy || isEarly) return
      isBusy = true
      const found = await settledPair(signal).finally(() => (isBusy = false))
      if (found === null) giveUp()
      // Not awaited: while it waits for the service the files may change again.
      else if (found !== undefined && !tried.has(found)) void tryPair(found, { cause: 'reload', signal })
    },
    /** An operator asks: tries the pair in the files now. Returns undefined if that gave no token. */
    async refresh(signal: AbortSignal): Promise<FetchOutcome | undefined> {
      const found = await withTimeout(MAX_LOOK_MS, settledPair(signal), clock)
      if (found === null) giveUp()
      if (!found) return undefined
      const failed = Promise.withResolvers<undefined>()
      const onFailed = (): void => failed.resolve(undefined)
      const asked = tryPair(found, { cause: 'operator', signal, onFailed })
      const outcome = await Promise.race([asked, failed.promise])
      return outcome?.kind === 'ok' ? outcome : undefined
    },
    state,
    /** Reports whether the next start would be refused, or would fail for a secret file. */
    isFaulty: (): boolean => hasSecretFiles(running()) && state().state === 'faulty',
  }
}

/** Authorities are not compared: an update of the host may change them, and must not hold up a rotation. */
function isOtherPair({ request, ...next }: Config, running: Config): boolean {
  const { ca } = running.request
  const hasSame = hasSameSettings({ ...next, request: { ...request, ca } }, running)
  return hasSame && !isSame(next.credentials, running.credentials)
}
