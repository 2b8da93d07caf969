// The composition root: one loop asks the service, one variable holds the answer, everything else reads it or is notified.
import { join } from 'node:path'
import type { Writable } from 'node:stream'
import { revealAll, type Config } from './config/config.ts'
import { createConfigOnDisk } from './config/on-disk.ts'
import { createSecretWatch } from './config/secret-watch.ts'
import { createTokenFiles } from './delivery/files/token-files.ts'
import { createReplies } from './delivery/replies.ts'
import { createServers } from './delivery/servers.ts'
import type { StatusParts } from './delivery/status.ts'
import { createFleetKeeper, type FleetKeeperOptions } from './fleet-keeper.ts'
import { raceAbort, runTasks, after } from './lib/tasks.ts'
import { accountOfConfig, remedyOf } from './lib/account.ts'
import { withTimeout } from './lib/clock.ts'
import type { DaemonSignals } from './lib/daemon-signals.ts'
import type { Log } from './lib/log.ts'
import type { InheritedSockets } from './lib/socket-activation.ts'
import { version } from './lib/version.ts'
import { createReload, type Load } from './reload.ts'
import { createAlerts } from './report/alerts.ts'
import { createHostName } from './report/host.ts'
import { createLog } from './report/log.ts'
import { createMetrics, type MetricsSample } from './report/metrics.ts'
import { logStart } from './report/startup-log.ts'
import { createSystemdNotifier, type SendDatagram } from './report/systemd.ts'
import { createTokenLog } from './report/token-log.ts'
import { createStateStore } from './storage/state-store.ts'

/** A disk that does not answer holds up a status no longer, in ms. */
const MAX_LOOK_MS = 500

export interface Daemon {
  readonly log: Log
  run(signals: DaemonSignals): Promise<void>
  /** Resolves when the log is written. */
  close(): Promise<void>
}
/** The surroundings of the daemon, settled before any component is built: time, chance, the service, the host. */
export interface Environment extends Omit<FleetKeeperOptions, 'log' | 'store'> {
  readonly stderr: Writable
  readonly inherited: InheritedSockets
  readonly load: Load
  readonly sendDatagram: SendDatagram
  /** Keeps the host fit for the daemon. To be called every 15 s; never fails. */
  readonly tick: (log: Log, signal: AbortSignal) => Promise<unknown>
}

/** Builds the components in the order in which a token travels. Throws UserError where the settings cannot work. */
export async function createDaemon(initial: Config, environment: Environment): Promise<Daemon> {
  const { env, clock, inherited, load } = environment
  const startedAtMs = Math.trunc(clock.now().wallMs)
  const account = accountOfConfig(initial.file)
  let config = initial
  const running = (): Config => config
  let secrets = (): string[] => revealAll(initial)
  const logSecrets = (): string[] => secrets()
  const logging = createLog({ ...config.log, stream: environment.stderr, env, clock, secrets: logSecrets })
  const { log } = logging

  const store = await createStateStore({ ...config, clock, log })
  const fleetKeeper = await createFleetKeeper(config, { ...environment, log, store })
  const { keeper, fleet } = fleetKeeper
  secrets = fleetKeeper.secrets

  const files = createTokenFiles({ config, keeper, log })
  const hostName = createHostName()
  const alerts = createAlerts({
    keeper,
    log,
    path: join(config.runtimeDirectory, 'alert.json'),
    settings: config.alerts,
    host: () => hostName.current(),
    account,
  })
  const onDisk = createConfigOnDisk({ load, running })
  const secretWatch = createSecretWatch({
    onDisk,
    running,
    async tryCredentials(next, trial) {
      const outcome = await fleetKeeper.tryCredentials(next, trial)
      if (outcome?.kind === 'ok') config = { ...config, credentials: next.credentials }
      return outcome
    },
    clock,
    log,
  })
  /** An operator's: a pair that lies in the files comes before the running one. */
  const refresh: typeof keeper.refresh = async (signal) =>
    (await secretWatch.refresh(signal)) ?? keeper.refresh(signal)
  const statusParts: StatusParts = {
    look: () => withTimeout(MAX_LOOK_MS, onDisk.examine(), clock),
    files: () => files.status(),
    clients: () => servers.clients(),
    daemon: () => ({
      version,
      pid: process.pid,
      startedAt: new Date(startedAtMs).toISOString(),
      configFile: config.file,
      host: hostName.current(),
      configuration: secretWatch.state(),
      stateProblem: store.problem(),
    }),
    alert() {
      const alert = alerts.current()
      const { contact } = config.alerts
      return alert && { ...alert, remedy: remedyOf(alert.remedy, account), contact }
    },
    share: () => fleet.status(),
  }
  const metricsSample = (): MetricsSample => ({
    version,
    startedAtMs,
    residentBytes: process.memoryUsage.rss(),
    servers: servers.counts(),
    files: files.counts(),
    logRecordsLost: logging.lost(),
    alert: alerts.current(),
    isRefusedOnDisk: secretWatch.isRefused(),
    share: fleet.sample(),
  })
  const replies = createReplies({ keeper: { ...keeper, refresh }, parts: statusParts })
  const metrics = createMetrics({ keeper, sample: metricsSample })
  const servers = createServers(config, {
    inherited,
    replies,
    metrics,
    testAlert: () => alerts.test(),
    log,
    clock,
  })
  const systemd = createSystemdNotifier({ ...environment, pid: process.pid, keeper, log })

  /** First what can fail: a configuration is taken over as a whole or not at all. */
  async function reconfigure(next: Config): Promise<void> {
    const goOn = fleetKeeper.prepare(next)
    await servers.reconfigure(next)
    config = next
    logging.reconfigure(next.log)
    goOn()
    alerts.reconfigure(next.alerts)
    await files.reconfigure(next)
  }
  const reload = createReload({ load, inherited, running, reconfigure, log, systemd })
  const tick = async (signal: AbortSignal): Promise<unknown> =>
    Promise.all([environment.tick(log, signal), servers.tick(), store.tick(), secretWatch.tick(signal)])

  return {
    log,
    async run(signals) {
      const { stop } = signals
      const listening = Promise.withResolvers<void>()
      signals.onReload(() => void raceAbort(listening.promise, stop).then(() => reload(stop)))
      signals.onRefresh(() => void refresh(stop))
      /** The service is asked only once it is certain that this daemon has its sockets. */
      async function keepToken(signal: AbortSignal): Promise<void> {
        logging.begin()
        if (!signal.aborted) systemd.ready()
        if (!signal.aborted) logStart(config, log, inherited)
        await keeper.run(signal)
      }
      await runTasks(
        [
          (signal) => servers.run(signal, { onListening: listening.resolve }),
          createTokenLog({ keeper, log, account }),
          // Clients come first: what none of them waits for begins once they can connect.
          after(listening.promise, alerts),
          after(listening.promise, files),
          after(listening.promise, keepToken),
          systemd,
          hostName,
          fleet,
          (signal) => keeper.listenUntil(signal, ({ type }) => type === 'tick' && void tick(signal)),
        ],
        stop,
      )
      // Not after an internal fault: that is a crash, and the next start must not take it for an orderly stop.
      await store.close(keeper.state())
    },
    close: async () => logging.close(),
  }
}
