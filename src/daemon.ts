// The composition root: one loop asks the service, one variable holds the answer, everything else reads it or is notified.
import { join } from 'node:path'
import type { Writable } from 'node:stream'
import { revealAll, type Config } from './config/config.ts'
import { createConfigOnDisk } from './config/on-disk.ts'
import { createSecretWatch } from './config/secret-watch.ts'
import { createTokenFiles } from './delivery/files/token-files.ts'
import type { InstanceLock } from './delivery/listener/instance-lock.ts'
import { createReplies } from './delivery/replies.ts'
import { createServers } from './delivery/servers.ts'
import { createFleetKeeper } from './fleet-keeper.ts'
import { orAborted } from './lib/abort.ts'
import { createSystemClock } from './lib/clock.ts'
import type { DaemonSignals } from './lib/daemon-signals.ts'
import type { Directories } from './lib/directories.ts'
import { createIdleGc } from './lib/idle-gc.ts'
import type { Log } from './lib/log.ts'
import { runTasks, type Task, type TaskObject } from './lib/run-tasks.ts'
import type { InheritedSockets } from './lib/socket-activation.ts'
import { createReload, type Load } from './reload.ts'
import { createAlerts } from './report/alerts.ts'
import { createHostName } from './report/host-name.ts'
import { createLog } from './report/log.ts'
import { createMetrics } from './report/metrics.ts'
import { logStart } from './report/startup-log.ts'
import { subscribeUntil } from './report/subscribe-until.ts'
import { createSystemdNotifier } from './report/systemd.ts'
import { createTokenLog } from './report/token-log.ts'
import { createSamples } from './samples.ts'
import { createStateStore } from './storage/state-store.ts'

export interface Daemon {
  readonly log: Log
  run(signals: DaemonSignals): Promise<void>
  close(): Promise<void>
}
/** Settled before any component is built: the inherited sockets, the directories, the instance lock. */
export interface Environment {
  readonly env: NodeJS.ProcessEnv
  readonly stderr: Writable
  readonly inherited: InheritedSockets
  readonly load: Load
  readonly directories: Directories
  readonly lock: InstanceLock
}

/** Builds the components in the order in which a token travels. Throws UserError where the settings cannot work. */
export async function createDaemon(initial: Config, environment: Environment): Promise<Daemon> {
  const { env, stderr, inherited, directories, lock } = environment
  const clock = createSystemClock()
  let config = initial
  let tried = config
  let secrets = (): string[] => revealAll(config)
  const logging = createLog({ ...config.log, stream: stderr, env, clock, secrets: () => secrets() })
  const { log } = logging

  const store = await createStateStore({ ...config, clock, log })
  const { keeper, fleet, settingsOf } = await createFleetKeeper(config, {
    env,
    clock,
    log,
    store,
    secrets: () => secrets(),
    running: () => config,
  })
  secrets = () => [...revealAll(config), ...revealAll(tried), keeper.state().token?.accessToken ?? '']

  const files = createTokenFiles({ config, keeper, log })
  const hostName = createHostName()
  const alerts = createAlerts({
    keeper,
    log,
    path: join(config.runtimeDirectory, 'alert.json'),
    settings: config.alerts,
    host: () => hostName.current(),
  })
  const onDisk = createConfigOnDisk({ load: environment.load, running: () => config })
  const samples = createSamples({
    startedAtMs: clock.now().wallMs,
    running: () => config,
    logging,
    fleet,
    files,
    alerts,
    hostName,
    onDisk,
    servers: () => servers,
  })
  const replies = createReplies({ keeper, parts: samples.statusParts })
  const metrics = createMetrics({ keeper, sample: samples.metricsSample })
  const servers = createServers(config, {
    inherited,
    replies,
    metrics: () => metrics.render(),
    testAlert: () => alerts.test(),
    log,
  })
  const systemd = createSystemdNotifier({ env, pid: process.pid, keeper, clock, log })

  /** The sockets first, because only they can fail: a configuration is taken over as a whole or not at all. */
  async function reconfigure(next: Config): Promise<void> {
    await servers.reconfigure(next)
    config = next
    logging.reconfigure(next.log)
    const settings = settingsOf(next)
    fleet.use(next)
    keeper.reload(settings)
    alerts.reconfigure(next.alerts)
    await files.reconfigure(next)
  }
  const reload = createReload({ ...environment, running: () => config, reconfigure, log, systemd })
  const watchSecrets = createSecretWatch({
    onDisk,
    running: () => config,
    async tryCredentials(next, signal) {
      tried = next
      const outcome = await keeper.tryCredentials(settingsOf(next), signal)
      if (outcome?.kind !== 'ok') return outcome
      config = { ...config, credentials: next.credentials }
      fleet.use(config)
      return outcome
    },
    clock,
    log,
  })

  const idleGc = createIdleGc({ clock })
  const tick = async (signal: AbortSignal): Promise<unknown> =>
    Promise.all([
      directories.repair(log),
      lock.repair(log),
      servers.tick(),
      store.repair(),
      idleGc.tick(signal),
      watchSecrets(signal),
    ])

  return {
    log,
    async run(signals) {
      const { stop } = signals
      const listening = Promise.withResolvers<void>()
      /** Clients come first: what none of them waits for begins once they can connect, or to end what is to be stopped. */
      const onceListening =
        (task: TaskObject): Task =>
        async (signal) => {
          await orAborted(listening.promise, signal)
          await task.run(signal)
        }
      signals.onReload(() => void orAborted(listening.promise, stop).then(() => reload(stop)))
      signals.onRefresh(() => void keeper.refresh(stop))
      await runTasks(
        [
          (signal) => servers.run(signal, { onListening: listening.resolve }),
          createTokenLog({ keeper, log }),
          onceListening(alerts),
          onceListening(files),
          systemd,
          hostName,
          fleet,
          (signal) => subscribeUntil(keeper, signal, ({ type }) => type === 'tick' && void tick(signal)),
          async (signal) => {
            // The service is asked only once it is certain that this daemon has its sockets.
            await orAborted(listening.promise, signal)
            logging.begin()
            if (!signal.aborted) systemd.ready()
            if (!signal.aborted) logStart(config, log, inherited)
            await keeper.run(signal)
          },
        ],
        stop,
      )
      // Not after an internal fault: that is a crash, and the next start must not take it for an orderly stop.
      await store.close(keeper.state())
    },
    async close() {
      await lock.close()
      await logging.close()
    },
  }
}
