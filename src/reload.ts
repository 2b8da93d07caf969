// Reload: load, validate, then reconfigure every component; a faulty configuration is logged, and the running one stays.
import type { Config } from './config/config.ts'
import type { LoadOptions } from './config/load.ts'
import { errorCode, exitStatus, UserError } from './lib/error.ts'
import type { Log } from './lib/log.ts'
import type { InheritedSockets } from './lib/socket-activation.ts'
import { logReload } from './report/startup-log.ts'
import type { SystemdNotifier } from './report/systemd.ts'

/** Reads the configuration; `running` has settings that only a restart changes. Throws nothing but UserError. */
export type Load = (running?: { runtimeDirectory: string }) => Promise<Config>

/** Returns what a reload calls: never twice at once; what is requested meanwhile is done once more. */
export function createReload(options: {
  load: Load
  inherited: InheritedSockets
  running: () => Config
  /** Takes the whole configuration over or throws UserError. */
  reconfigure: (next: Config) => Promise<void>
  log: Log
  systemd: Pick<SystemdNotifier, 'reloading' | 'reloaded'>
}): (stop: AbortSignal) => Promise<void> {
  const { load, inherited, running, reconfigure, log, systemd } = options

  async function reload(stop: AbortSignal): Promise<void> {
    if (stop.aborted) return
    systemd.reloading()
    try {
      const { runtimeDirectory, stateDirectory, http } = running()
      const next = await load({ runtimeDirectory })
      if (stop.aborted) return
      // An inherited socket that was closed could not be opened again.
      const isHttpFixed = inherited.http.length > 0 && (next.http === null) !== (http === null)
      await reconfigure({ ...next, stateDirectory, http: isHttpFixed ? http : next.http })
      const needingRestart = [
        ...(next.wantedRuntimeDirectory === runtimeDirectory ? [] : ['runtimeDirectory']),
        ...(next.stateDirectory === stateDirectory ? [] : ['stateDirectory']),
        ...(isHttpFixed ? ['http'] : []),
      ]
      logReload(next, log, needingRestart)
    } catch (error) {
      if (!(error instanceof UserError)) throw error
      log('error', 'The configuration was not taken over: the running one stays', {
        event: 'reload-failed',
        error: error.message,
      })
    } finally {
      systemd.reloaded()
    }
  }

  return coalesce(reload)
}

/** Returns the function that reads the configuration again: no fault of the files is a fault of the daemon. */
export function createLoad(options: LoadOptions): Load {
  return async (running) => {
    const { loadConfig } = await import('./config/load.ts')
    try {
      return await loadConfig({ ...options, ...running })
    } catch (error) {
      if (error instanceof UserError) throw error
      // Not its message, which could quote what was read.
      const why = errorCode(error) ?? 'an internal fault'
      throw new UserError(
        `The configuration cannot be read (${why}): try \`kyc-tokend check\`, or restart`,
        exitStatus.configuration,
        { cause: error },
      )
    }
  }
}

function coalesce(work: (stop: AbortSignal) => Promise<void>): (stop: AbortSignal) => Promise<void> {
  let last = Promise.resolve()
  let isWaiting = false
  return (stop) => {
    if (isWaiting) return last
    isWaiting = true
    last = last.then(() => {
      isWaiting = false
      return work(stop)
    })
    return last
  }
}
