// What the daemon says of itself in the log: that it has started, and what became of a reload.
import type { Config } from '../config/config.ts'
import type { Log } from '../lib/log.ts'
import { version } from '../lib/version.ts'

/** `ipc` and `http`: where the daemon listens, in words. */
export function announceStart(config: Config, log: Log, places: { ipc: string; http: string }): void {
  const { file: configFile, baseUrl } = config
  log('info', 'kyc-tokend has started', { event: 'started', version, configFile, baseUrl, ...places })
  warn(config, log)
}

/** `needingRestart`: settings that are others now and not taken over. */
export function announceReload(config: Config, log: Log, needingRestart: readonly string[]): void {
  warn(config, log)
  for (const setting of needingRestart) {
    log('warning', 'A setting was changed that takes effect at a restart', {
      event: 'restart-needed',
      setting,
    })
  }
  if (config.systemdCredentials.length > 0) {
    log('notice', 'A systemd credential is what it was when the service started: to change it, restart', {
      event: 'credentials-of-start',
      credentials: config.systemdCredentials,
    })
  }
  log('notice', 'The configuration was read anew', { event: 'reloaded', configFile: config.file })
}

/** `fault` is a sentence for people, with the remedy. */
export function announceFaultyReload(fault: string, log: Log): void {
  log('error', 'The configuration was not taken over: the running one stays', {
    event: 'reload-failed',
    error: fault,
  })
}

function warn({ warnings }: Config, log: Log): void {
  for (const warning of warnings) {
    log('warning', 'The configuration can be better', { event: 'config-warning', warning })
  }
}
