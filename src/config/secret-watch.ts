// Notices that secret files have changed, and has the new pair used once the service gives a token for it.
import { withTimeout, type Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { Config } from './config.ts'
import { hasSameSettings, isSame, type ConfigOnDisk, type ConfigurationState } from './on-disk.ts'

/** Files that were written are left alone until they have been the same for so long: the next one may follow. */
const SETTLE_MS = 2_000
const FIRST_AFTER_MS = 5_000
/** An operator's request waits no longer for a disk. */
const MAX_LOOK_MS = 5_000

/** Outcome of a request. */
export interface Trial {
  readonly kind: 'ok' | 'postponed' | 'transient' | 'permanent'
  readonly reason?: string
  readonly detail?: string
}

export interface SecretWatch {
  /**
   * Notices changed files and has them tried. Nothing is tried while the configuration on disk differs from the running
   * one, or while a secret is missing, empty or unfit; a pair that was refused is tried again when a file changes.
   */
  tick(signal: AbortSignal): Promise<void>
  /** An operator asks: tries what is in the files now, and reports whether that gave a token. */
  refresh(signal: AbortSignal): Promise<boolean>
  /** The configuration on disk against the running one, and the pair in the files that gives no token. */
  state(): ConfigurationState
  /** Reports whether the files hold a pair that the service refused. */
  isRefused(): boolean
}

export function createSecretWatch({
  onDisk,
  running,
  tryCredentials,
  clock,
  log,
}: {
  onDisk: ConfigOnDisk
  running: () => Config
  /**
   * Tries these credentials until there is a token or a refusal, and uses them where they give a token; undefined: a
   * reload or the signal ended it. `onFailed`: an attempt failed for another reason.
   */
  tryCredentials: (
    next: Config,
    options: { cause: 'reload' | 'operator'; signal: AbortSignal; onFailed: (trial: Trial) => void },
  ) => Promise<Trial | undefined>
  clock: Clock
  log: Log
}): SecretWatch {
  /** Clients that wait for the start come first. */
  const firstAtMs = clock.now().bootMs + FIRST_AFTER_MS
  let isBusy = false
  /** The version on disk with which nothing is to be tried: it has no other pair, or one that was refused. */
  let done: string | null = null
  /** The version that is being tried. */
  let trial: { readonly version: string; readonly stop: AbortController } | null = null
  let problem: ConfigurationState | null = null
  /** The running configuration when that was found: a reload takes the files over. */
  let runningThen: Config | null = null

  /** Another pair that has been the same for a while; null: there is none, it is known, or the signal was aborted. */
  async function settled(
    signal: AbortSignal,
    isKnown: (version: string) => boolean,
  ): Promise<{ version: string; next: Config } | null> {
    for (;;) {
      const { version, found } = await onDisk.examine()
      if (isKnown(version)) return null
      if (found.kind === 'faulty' || !isOtherPair(found.config, running())) {
        giveUp()
        done = version
        return null
      }
      await clock.sleep(SETTLE_MS, signal)
      if (signal.aborted) return null
      if ((await onDisk.examine()).version === version) return { version, next: found.config }
    }
  }

  function giveUp(): void {
    trial?.stop.abort()
    trial = null
    problem = null
  }

  async function begin(
    { version, next }: { version: string; next: Config },
    { cause, signal, onFailed }: { cause: 'reload' | 'operator'; signal: AbortSignal; onFailed?: () => void },
  ): Promise<Trial | undefined> {
    giveUp()
    const own = { version, stop: new AbortController() }
    trial = own
    const files = Object.values(next.secretFiles).filter((file) => file !== null)
    const outcome = await tryCredentials(next, {
      cause,
      signal: AbortSignal.any([signal, own.stop.signal]),
      onFailed(failed) {
        if (trial === own) report(failed, files)
        onFailed?.()
      },
    })
    if (trial === own) trial = null
    if (outcome === undefined) return undefined
    if (outcome.kind === 'ok') {
      problem = null
      log('notice', 'The credentials in the files were changed and are in use', {
        event: 'credentials-taken-over',
        files,
      })
    } else {
      done = version
      report(outcome, files)
    }
    return outcome
  }

  /** Says why the files give no token, in the log once and in the state until it is over. */
  function report({ kind, reason = 'postponed', detail = '' }: Trial, files: readonly string[]): void {
    const error = `${reason}: ${detail}`
    const at = new Date(clock.now().wallMs).toISOString().slice(11, 16)
    const isRefused = kind === 'permanent' || reason === 'rejected'
    const words = isRefused
      ? `holds a pair that the service refused at ${at} UTC (${error}); the next restart will use it`
      : `holds another pair, which is tried until there is an answer (${error})`
    const former = problem?.problem
    runningThen = running()
    problem = { state: isRefused ? 'faulty' : 'changed', problem: `${files.join(' with ')} ${words}` }
    if (former === problem.problem) return
    log('error', 'The credentials in the files were changed and give no token: the former ones stay in use', {
      event: 'credentials-not-taken-over',
      files,
      error,
      remedy: isRefused
        ? 'Correct the files: they are tried again when one changes; or reload, which takes them over as they are'
        : 'Nothing to do if it passes: the files are tried again and again',
    })
  }

  return {
    async tick(signal) {
      if (isBusy || signal.aborted || clock.now().bootMs < firstAtMs) return
      isBusy = true
      const isKnown = (version: string): boolean => version === done || version === trial?.version
      const change = await settled(signal, isKnown).finally(() => (isBusy = false))
      // Not awaited: while it waits for the service the files may change again.
      if (change !== null) void begin(change, { cause: 'reload', signal })
    },
    async refresh(signal) {
      let change: Awaited<ReturnType<typeof settled>> = null
      const looking = settled(signal, () => false).then((found) => (change = found))
      await withTimeout(MAX_LOOK_MS, looking, clock)
      if (change === null) return false
      const failed = Promise.withResolvers<undefined>()
      const onFailed = (): void => failed.resolve(undefined)
      const trying = begin(change, { cause: 'operator', signal, onFailed })
      return (await Promise.race([trying, failed.promise]))?.kind === 'ok'
    },
    isRefused: () => runningThen === running() && problem?.state === 'faulty',
    state() {
      const state = onDisk.state()
      const isOver = problem === null || runningThen !== running()
      return state.state !== 'current' || isOver ? state : problem!
    },
  }
}

function isOtherPair(next: Config, running: Config): boolean {
  return hasSameSettings(next, running) && !isSame(next.credentials, running.credentials)
}
