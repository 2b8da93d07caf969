// The composition root: one loop asks the service, one variable holds the answer, all else reads it.
import { hostname } from 'node:os'
import { join } from 'node:path'
import type { Writable } from 'node:stream'
import { revealAll, type Config } from '../config/config.ts'
import { createLook } from '../config/on-disk.ts'
import { createSecretWatch } from '../running/secret-watch.ts'
import { createConfiguredKeeper, type ConfiguredKeeperOptions } from '../running/configured-keeper.ts'
import { createTokenFiles } from '../delivery/files/token-files.ts'
import { createReplies } from '../delivery/replies.ts'
import { createServers } from '../delivery/servers.ts'
import { raceAbort, runTasks, after } from '../lib/tasks.ts'
import { unitNames } from '../host/account.ts'
import { fileProblem, withFileSentences } from '../host/file-remedy.ts'
import { placeAt, placeOf, type Place } from '../host/remedy.ts'
import { monotonicMs, withTimeout } from '../lib/clock.ts'
import { UserError } from '../lib/error.ts'
import { limitFaults } from '../lib/internal-fault.ts'
import type { DaemonSignals } from './daemon-signals.ts'
import { isSocketActivated, type InheritedSockets } from '../lib/socket-activation.ts'
import program from '../../package.json' with { type: 'json' }
import { alertRemedy, createAlerts } from '../report/alerts.ts'
import { logReload, logStart } from '../report/configuration-log.ts'
import { createCredentialsEnd } from '../report/credentials-end.ts'
import { createLog } from '../report/log.ts'
import { createMetrics } from '../report/metrics.ts'
import { createPathWatch } from '../host/path-watch.ts'
import { isFoundByClients, OWN_FILES } from '../host/paths.ts'
import { createSystemdNotifier, type SendDatagram } from '../report/systemd.ts'
import { createTokenLog } from '../report/token-log.ts'
import { createStateStore } from '../storage/state-store.ts'

/** The longest time for which a status waits for a disk, in ms. */
const MAX_EXAMINE_MS = 500

export type Daemon = Awaited<ReturnType<typeof createDaemon>>
/** Reads the configuration; `running` has settings that only a restart changes. Throws only UserError. */
export type Load = (running?: { runtimeDirectory: string }) => Promise<Config>
/** The environment of the daemon, which exists before any component: time, chance, the service, the host. */
interface Environment extends Omit<ConfiguredKeeperOptions, 'log' | 'store'> {
  readonly stderr: Writable
  readonly inherited: InheritedSockets
  readonly load: Load
  /** See createStateStore. */
  readonly bootMark: string | null
  readonly sendDatagram: SendDatagram
  /** Keeps the host fit for the daemon. To be called every 15 s; never fails. */
  readonly tick: () => Promise<unknown>
}

/** Builds the components in the order in which a token travels. Throws UserError for unfit settings. */
export async function createDaemon(initial: Config, environment: Environment) {
  const { env, clock, inherited, load, stderr: stream } = environment
  const startedAtMs = Math.trunc(clock.now().wallMs)
  const place = placeOfThis(initial, environment)
  let config = initial
  const running = (): Config => config
  /** Until there is a keeper, which knows more of them. */
  let secrets = (): string[] => revealAll(initial)
  const logging = createLog({
    ...config.log,
    stream,
    env,
    clock,
    secrets: () => secrets(),
    sendEntry: environment.sendDatagram,
    identifier: unitNames(place.account).unit,
  })
  const log = limitFaults(withFileSentences(logging.log, place), monotonicMs)

  const store = await createStateStore({ ...config, clock, log, bootMark: environment.bootMark })
  const configured = await createConfiguredKeeper(config, { ...environment, log, store })
  const { keeper, sharing } = configured
  secrets = configured.secrets

  const files = createTokenFiles({ config, keeper, log, place })
  const alerts = createAlerts({
    keeper,
    log,
    path: join(config.runtimeDirectory, OWN_FILES.runtimeDirectory.alert),
    settings: config.alerts,
    host: hostname,
    place,
  })
  const pathWatch = createPathWatch({ config: running, inherited, place, log })
  const secretWatch = createSecretWatch({
    look: createLook(load, running),
    running,
    async tryCredentials(next, trial) {
      const outcome = await configured.tryCredentials(next, trial)
      const { credentials, endsAtMs } = next
      if (outcome?.kind === 'ok') config = { ...config, credentials, endsAtMs }
      return outcome
    },
    clock,
    log,
  })
  const ending = createCredentialsEnd({ config: running, keeper, log })
  /** An operator's refresh: another pair in the secret files is tried before the running one. */
  const refresh: typeof keeper.refresh = async (signal) =>
    (await secretWatch.refresh(signal)) ?? keeper.refresh(signal)
  const replies = createReplies({
    place,
    keeper: { ...keeper, refresh },
    sources: {
      examineConfiguration: () => withTimeout(MAX_EXAMINE_MS, secretWatch.look(), clock),
      files: () => files.status(),
      clients: () => servers.clients(),
      daemon: () => ({
        version: program.version,
        pid: process.pid,
        startedAt: new Date(startedAtMs).toISOString(),
        configFile: config.file,
        host: hostname(),
        configuration: secretWatch.state(),
        credentials: ending.current(),
        stateProblem: fileProblem(store.problem(), place),
        pathProblems: pathWatch.problems(),
      }),
      alert() {
        const alert = alerts.current()
        const { contact } = config.alerts
        return alert && { ...alert, remedy: alertRemedy(alert, place), contact }
      },
      share: () => sharing.status(),
    },
  })
  const metrics = createMetrics({
    keeper,
    sample: () => ({
      version: program.version,
      startedAtMs,
      residentBytes: process.memoryUsage.rss(),
      servers: servers.counts(),
      files: files.counts(),
      logRecordsLost: logging.lost(),
      alert: alerts.current(),
      isFaultyOnDisk: secretWatch.isFaulty(),
      credentialsEnd: ending.sample(),
      share: sharing.sample(),
    }),
  })
  const servers = createServers(config, {
    inherited,
    replies,
    metrics,
    testAlert: () => alerts.test(),
    log,
    clock,
  })
  const systemd = createSystemdNotifier({ ...environment, pid: process.pid, keeper, log })

  /** Does first what can fail, so that a configuration is taken over as a whole or not at all. */
  async function reconfigure(next: Config): Promise<void> {
    const activate = configured.prepare(next)
    await servers.reconfigure(next)
    config = next
    logging.reconfigure(next.log)
    activate()
    alerts.reconfigure(next.alerts)
    await files.reconfigure(next)
  }

  /** A faulty configuration is logged, and the running one stays. */
  async function reload(stop: AbortSignal): Promise<void> {
    if (stop.aborted) return
    systemd.reloading()
    try {
      const loaded = await load({ runtimeDirectory: config.runtimeDirectory })
      if (stop.aborted) return
      const { next, needingRestart } = withoutRestart(loaded, { running: config, inherited })
      await reconfigure(next)
      logReload(next, needingRestart, log)
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

  /** The upkeep of every component, every 15 s. */
  async function tick(signal: AbortSignal): Promise<void> {
    ending.tick()
    const ticks = [environment.tick(), servers.tick(), store.tick(), secretWatch.tick(signal)]
    await Promise.all([...ticks, pathWatch.tick(), configured.assertionWatch.tick()])
  }

  return {
    log,
    async run(signals: DaemonSignals): Promise<void> {
      const { stop } = signals
      const listening = Promise.withResolvers<void>()
      // One after the other.
      let reloads = raceAbort(listening.promise, stop)
      signals.onReload(() => void (reloads = reloads.then(async () => reload(stop))))
      signals.onRefresh(() => void refresh(stop))
      /** Runs the keeper, which asks the service only once this daemon has its sockets. */
      async function keepToken(signal: AbortSignal): Promise<void> {
        if (!signal.aborted) systemd.ready()
        if (!signal.aborted) logStart(config, { version: program.version, inherited, log })
        await keeper.run(signal)
      }
      await runTasks(
        [
          { run: (signal) => servers.run(signal, { onListening: listening.resolve }) },
          createTokenLog({ keeper, log, place }),
          // Clients come first: work for which no client waits begins once they can connect.
          after(listening.promise, alerts),
          after(listening.promise, files),
          after(listening.promise, { run: keepToken }),
          systemd,
          after(listening.promise, sharing),
          { run: (signal) => keeper.listenUntil(signal, ({ type }) => type === 'tick' && void tick(signal)) },
        ],
        stop,
      )
      // Not after an internal error: the next start must take that for a crash.
      await store.close(keeper.state())
    },
    /** Resolves when the log is written. */
    close: logging.close,
  }
}

/** For the commands in log and status. A socket of systemd is where clients look for it. */
function placeOfThis({ file, ipc }: Config, { env, inherited }: Environment): Place {
  const isFound = isSocketActivated(inherited) || isFoundByClients(ipc.path, { env, uid: process.geteuid!() })
  const socket = isFound ? undefined : ipc.path
  return placeAt({ configFile: file, socket }, placeOf(env, process.pid))
}

/** What a reload can take over of a configuration, and the settings for which a restart is needed. */
function withoutRestart(
  loaded: Config,
  { running, inherited }: { running: Config; inherited: InheritedSockets },
): { next: Config; needingRestart: string[] } {
  const { runtimeDirectory, stateDirectory, http } = running
  // An inherited socket that was closed could not be opened again.
  const isHttpFixed = inherited.http.length > 0 && (loaded.http === null) !== (http === null)
  return {
    next: { ...loaded, stateDirectory, http: isHttpFixed ? http : loaded.http },
    needingRestart: [
      ...(loaded.wantedRuntimeDirectory === runtimeDirectory ? [] : ['runtimeDirectory']),
      ...(loaded.stateDirectory === stateDirectory ? [] : ['stateDirectory']),
      ...(isHttpFixed ? ['http'] : []),
    ],
  }
}
