// Samples of the running components: the parts of `status`, and the values of the metrics.
import type { Config } from './config/config.ts'
import type { ConfigOnDisk } from './config/on-disk.ts'
import type { TokenFiles } from './delivery/files/token-files.ts'
import type { Servers } from './delivery/servers.ts'
import type { StatusParts } from './delivery/status.ts'
import { version } from './lib/version.ts'
import type { Alerts } from './report/alerts.ts'
import type { HostName } from './report/host-name.ts'
import type { OpenLog } from './report/log.ts'
import type { MetricsSample } from './report/metric.ts'
import type { Fleet } from './share/fleet.ts'

export function createSamples(components: {
  /** In ms since the epoch. */
  startedAtMs: number
  running: () => Config
  logging: Pick<OpenLog, 'lost'>
  fleet: Fleet
  files: TokenFiles
  alerts: Alerts
  hostName: HostName
  onDisk: ConfigOnDisk
  servers: () => Servers
}): { readonly statusParts: StatusParts; readonly metricsSample: () => MetricsSample } {
  const { running, logging, fleet, files, alerts, hostName, onDisk, servers } = components
  const startedAtMs = Math.trunc(components.startedAtMs)
  return {
    statusParts: {
      files: () => files.status(),
      clients: () => servers().clients(),
      daemon: () => ({
        version,
        pid: process.pid,
        startedAt: new Date(startedAtMs).toISOString(),
        configFile: running().file,
        host: hostName.current(),
        configuration: onDisk.state(),
      }),
      alert() {
        const alert = alerts.current()
        return alert && { ...alert, contact: running().alerts.contact }
      },
      share: () => fleet.status(),
    },
    metricsSample: () => ({
      version,
      startedAtMs,
      residentBytes: process.memoryUsage.rss(),
      servers: servers().counts(),
      files: files.counts(),
      logRecordsLost: logging.lost(),
      alert: alerts.current(),
      share: fleet.sample(),
    }),
  }
}
