// What the log says of the configuration, when the daemon starts and at a reload.
import type { Config } from '../config/config.ts'
import type { Log } from '../lib/log.ts'
import { descriptorsOf, type InheritedSockets } from '../host/inherited-sockets.ts'
import { ownSockets } from '../host/paths.ts'

type ReadConfig = Config['read']
type LoggedConfig = Pick<Config, 'service' | 'http' | 'runtimeDirectory' | 'read'>

export function logStart(
  { service, http, runtimeDirectory, read }: LoggedConfig,
  { version, inherited, log }: { version: string; inherited: InheritedSockets; log: Log },
): void {
  const where = (name: 'ipc' | 'http'): string => {
    const fds = descriptorsOf(inherited, name)
    if (fds === null) return ownSockets(runtimeDirectory)[name]
    return fds.length === 0 ? 'off' : "systemd's socket"
  }
  log('info', 'kyc-tokend has started', {
    event: 'started',
    version,
    configFile: read.file,
    baseUrl: service.baseUrl,
    ipc: where('ipc'),
    http: http === null ? 'off' : where('http'),
  })
  logWarnings(read, log)
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

export function logReload(read: ReadConfig, log: Log): void {
  logWarnings(read, log)
  for (const setting of read.needsRestart) {
    log('warning', 'A setting was changed that takes effect at a restart', {
      event: 'restart-needed',
      setting,
    })
  }
  if (read.systemdCredentials.length > 0) {
    log('notice', 'A systemd credential is what it was when the daemon started: to change it, restart', {
      event: 'credentials-of-start',
      credentials: read.systemdCredentials,
    })
  }
  log('notice', 'The configuration was read again', { event: 'reloaded', configFile: read.file })
}

function logWarnings({ warnings }: ReadConfig, log: Log): void {
  for (const warning of warnings)
    log('warning', 'The configuration has a problem', { event: 'config-warning', warning })
}
