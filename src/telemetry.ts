// The running components in numbers: the parts of `status`, and the values of the metrics.
import type { Config } from './config/config.ts'
import type { ConfigOnDisk } from './config/on-disk.ts'
import type { SecretWatch } from './config/secret-watch.ts'
import type { TokenFiles } from './delivery/files/token-files.ts'
import type { Servers } from './delivery/servers.ts'
import type { StatusParts } from './delivery/status.ts'
import { accountOfConfig, remedyOf } from './lib/account.ts'
import { withTimeout, type Clock } from './lib/clock.ts'
import { version } from './lib/version.ts'
import type { Alerts } from './report/alerts.ts'
import type { HostName } from './report/host-name.ts'
import type { OpenLog } from './report/log.ts'
import type { MetricsSample } from './report/metrics.ts'
import type { Fleet } from './share/fleet.ts'
import type { StateStore } from './storage/state-store.ts'

/** A disk that does not answer holds up a status no longer, in ms. */
const MAX_LOOK_MS = 500

export function createTelemetry(components: {
  /** In ms since the epoch. */
  startedAtMs: number
  running: () => Config
  logging: Pick<OpenLog, 'lost'>
  fleet: Fleet
  files: TokenFiles
  alerts: Alerts
  hostName: HostName
  onDisk: Pick<ConfigOnDisk, 'examine'>
  secretWatch: Pick<SecretWatch, 'state' | 'isRefused'>
  store: Pick<StateStore, 'problem'>
  clock: Pick<Clock, 'sleep'>
  servers: () => Servers
}): { readonly statusParts: StatusParts; readonly metricsSample: () => MetricsSample } {
  const { running, logging, fleet, files, alerts, hostName, onDisk, secretWatch, store, clock, servers } =
    components
  const startedAtMs = Math.trunc(components.startedAtMs)
  return {
    statusParts: {
      async look() {
        await withTimeout(MAX_LOOK_MS, onDisk.examine(), clock)
      },
      files: () => files.status(),
      clients: () => servers().clients(),
      daemon: () => ({
        version,
        pid: process.pid,
        startedAt: new Date(startedAtMs).toISOString(),
        configFile: running().file,
        host: hostName.current(),
        configuration: secretWatch.state(),
        stateProblem: store.problem(),
      }),
      alert() {
        const alert = alerts.current()
        const remedy = alert && remedyOf(alert.remedy, accountOfConfig(running().file))
        return alert && { ...alert, remedy: remedy ?? alert.remedy, contact: running().alerts.contact }
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
      isRefusedOnDisk: secretWatch.isRefused(),
      share: fleet.sample(),
    }),
  }
}
