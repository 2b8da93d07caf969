// What the log says of the configuration, when the daemon starts and at a reload.
import type { Config } from '../config/config.ts'
import type { Log } from '../lib/log.ts'
import { descriptorsOf, type InheritedSockets } from '../host/inherited-sockets.ts'

export function logStart(
  config: Config,
  { version, inherited, log }: { version: string; inherited: InheritedSockets; log: Log },
): void {
  const { file: configFile, baseUrl, ipc, http } = config
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
    ipc: where('ipc', ipc.path),
    http: http === null ? 'off' : where('http', http.path),
  })
  logWarnings(config, log)
  const isHttpUnused = http === null && inherited.http.length > 0
  for (const name of [...inherited.unknown, ...(isHttpUnused ? ['http'] : [])]) {
    log('warning', 'A socket that was handed over is not used', {
      event: 'socket-unused',
      name,
      remedy:
        name === 'http'
          ? 'Disable kyc-tokend-http.socket, or take `"http": false` out of the configuration'
          : 'Give it FileDescriptorName=ipc, =http or =metrics in its unit, or disable that',
    })
  }
}

/** `needingRestart`: settings that have changed and are not taken over. */
export function logReload(config: Config, needingRestart: readonly string[], log: Log): void {
  logWarnings(config, log)
  for (const setting of needingRestart) {
    log('warning', 'A setting was changed that takes effect at a restart', {
      event: 'restart-needed',
      setting,
    })
  }
  if (config.systemdCredentials.length > 0) {
    log('notice', 'A systemd credential is what it was when the daemon started: to change it, restart', {
      event: 'credentials-of-start',
      credentials: config.systemdCredentials,
    })
  }
  log('notice', 'The configuration was read again', { event: 'reloaded', configFile: config.file })
}

function logWarnings({ warnings }: Config, log: Log): void {
  for (const warning of warnings)
    log('warning', 'The configuration has a problem', { event: 'config-warning', warning })
}
