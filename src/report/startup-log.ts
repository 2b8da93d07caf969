// Log records of the daemon itself: its start and its reloads.
import type { Config } from '../config/config.ts'
import type { Log } from '../lib/log.ts'
import { descriptorsOf, type InheritedSockets } from '../lib/socket-activation.ts'
import { version } from '../lib/version.ts'

export function logStart(config: Config, log: Log, inherited: InheritedSockets): void {
  const { file: configFile, baseUrl } = config
  const where = (name: 'ipc' | 'http', path: string): string => {
    const fds = descriptorsOf(inherited, name)
    if (fds === null) return path
    return fds.length === 0 ? 'off' : "systemd's socket"
  }
  log('info', 'kyc-tokend has started', {
    event: 'started',
    version,
    configFile,
    baseUrl,
    ipc: where('ipc', config.ipc.path),
    http: config.http === null ? 'off' : where('http', config.http.path),
  })
  logWarnings(config, log)
  for (const { name } of inherited.unknown) {
    log('warning', 'A socket that was handed over has an unknown name', {
      event: 'socket-unknown',
      name,
      remedy: 'Give it FileDescriptorName=ipc, =http or =metrics in its unit, or disable that',
    })
  }
  if (config.http === null && inherited.http.length > 0) {
    log('warning', 'A socket that was handed over is not used', {
      event: 'socket-unused',
      name: 'http',
      remedy: 'Disable kyc-tokend-http.socket, or take `"http": false` out of the configuration',
    })
  }
}

/** `needingRestart`: settings that are others now and not taken over. */
export function logReload(config: Config, log: Log, needingRestart: readonly string[]): void {
  logWarnings(config, log)
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
  log('notice', 'The configuration was read again', { event: 'reloaded', configFile: config.file })
}

function logWarnings({ warnings }: Config, log: Log): void {
  for (const warning of warnings) {
    log('warning', 'The configuration can be better', { event: 'config-warning', warning })
  }
}
