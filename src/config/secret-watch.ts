// Notices that secret files have changed, and goes on with the new pair once the service gives a token for it.
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { Config } from './config.ts'
import { hasSameSettings, type ConfigOnDisk } from './on-disk.ts'

/** Files that were written are left alone until they have been the same for so long: the next one may follow. */
const SETTLE_MS = 2_000
const FIRST_AFTER_MS = 5_000

/** Outcome of the request; undefined: a reload or the end came in between. */
export type Trial =
  | { readonly kind: 'ok' }
  | { readonly kind: 'postponed' }
  | { readonly kind: 'transient' | 'permanent'; readonly reason: string; readonly detail: string }
  | undefined

/**
 * Returns the check, for every tick. Nothing is tried while the configuration on disk differs from the running one, or
 * while a secret is missing, empty or unfit; a pair that was refused is tried again when a file changes.
 */
export function createSecretWatch(options: {
  onDisk: ConfigOnDisk
  running: () => Config
  /** Asks the service once with these credentials, and goes on with them where that gives a token. */
  tryCredentials: (next: Config, signal: AbortSignal) => Promise<Trial>
  clock: Clock
  log: Log
}): (signal: AbortSignal) => Promise<void> {
  const { onDisk, running, clock, log } = options
  /** Clients that wait for the start come first. */
  const firstAtMs = clock.now().bootMs + FIRST_AFTER_MS
  let isBusy = false
  /** The version on disk with which nothing is to be tried: it has no other pair, or one that was refused. */
  let done: string | null = null

  /** Another pair that has been the same for a while; null: there is none, or the signal was aborted. */
  async function settled(signal: AbortSignal): Promise<{ version: string; next: Config } | null> {
    for (;;) {
      const { version, onDisk: found } = await onDisk.examine()
      if (version === done) return null
      const next = found.kind === 'loaded' && isOtherPair(found.config, running()) ? found.config : null
      if (next === null) {
        done = version
        return null
      }
      await clock.sleep(SETTLE_MS, signal)
      if (signal.aborted) return null
      if ((await onDisk.examine()).version === version) return { version, next }
    }
  }

  async function check(signal: AbortSignal): Promise<void> {
    const change = await settled(signal)
    if (change === null) return
    const { version, next } = change
    const trial = await options.tryCredentials(next, signal)
    if (trial === undefined || trial.kind === 'postponed') return
    const files = Object.values(next.secretFiles).filter((file) => file !== null)
    if (trial.kind === 'ok') {
      log('notice', 'The credentials in the files were changed and are in use', {
        event: 'credentials-taken-over',
        files,
      })
      return
    }
    done = version
    log('error', 'The credentials in the files were changed and give no token: the former ones stay in use', {
      event: 'credentials-not-taken-over',
      files,
      error: `${trial.reason}: ${trial.detail}`,
      remedy:
        'Correct the files: they are tried again when one changes; or reload, which takes them over as they are',
    })
  }

  return async (signal) => {
    if (isBusy || signal.aborted || clock.now().bootMs < firstAtMs) return
    isBusy = true
    await check(signal).finally(() => {
      isBusy = false
    })
  }
}

function isOtherPair(next: Config, running: Config): boolean {
  const reveal = ({ credentials: { apiKey, apiSecret } }: Config): string =>
    JSON.stringify([apiKey.reveal(), apiSecret.reveal()])
  return hasSameSettings(next, running) && reveal(next) !== reveal(running)
}
