// The composition root: one loop asks the service, one variable holds the answer, all else reads it.
import { hostname } from 'node:os'
import { join } from 'node:path'
import type { Writable } from 'node:stream'
import { revealAll, type Config } from '../config/config.ts'
import { createReload } from '../running/reload.ts'
import { createFollower } from '../running/follower.ts'
import type { FollowerOptions } from '../running/sources.ts'
import { createReplies } from '../delivery/replies.ts'
import { createServers } from '../delivery/servers.ts'
import { createTokenFiles } from '../delivery/token-files.ts'
import { raceAbort, runTasks, after } from '../lib/tasks.ts'
import { placeOf, withFileSentences, createRemedies } from '../host/remedy.ts'
import { withTimeout } from '../lib/clock.ts'
import type { DaemonSignals } from './daemon-signals.ts'
import { isSocketActivated, type InheritedSockets } from '../host/system.ts'
import program from '../../package.json' with { type: 'json' }
import { createAlerts } from '../report/alerts.ts'
import { announcedEnd, credentialsEnd, logCredentialsEnd, logStart } from '../report/configuration-log.ts'
import { createLog } from '../report/log.ts'
import { createMetrics } from '../report/metrics.ts'
import { accountOf } from '../host/account.ts'
import { ownSockets, OWN_FILES } from '../host/paths.ts'
import { createSystemdNotifier, type SendDatagram } from '../report/systemd.ts'
import { startTokenLog } from '../report/token-log.ts'
import { createStateStore } from '../storage/state-store.ts'

/** The longest time for which a status waits for a disk, in ms. */
const MAX_EXAMINE_MS = 500
const MAINTENANCE_MS = 15_000

export type Daemon = Awaited<ReturnType<typeof createDaemon>>
/** Reads the configuration, as a daemon has it until a restart where this one is in force. Throws only UserError. */
export type Load = (inForce?: Config) => Promise<Config>
/** The environment of the daemon, which exists before any component: time, chance, the service, the host. */
interface Environment extends Omit<FollowerOptions, 'log' | 'store'> {
  readonly stderr: Writable
  readonly inherited: InheritedSockets
  readonly load: Load
  readonly sendDatagram: SendDatagram
}

/** Builds the components in the order in which a token travels. Throws UserError for unfit settings. */
export async function createDaemon(initial: Config, environment: Environment) {
  const { env, clock, inherited, stderr: stream, stop } = environment
  const { file: configFile } = initial.read
  // A socket of systemd is where clients look for it.
  const socket = isSocketActivated(inherited) ? undefined : ownSockets(initial.runtimeDirectory).ipc
  const place = { ...placeOf(env), account: accountOf(configFile), pid: process.pid, configFile, socket }
  const { remedyOf } = createRemedies(place)
  /** Until there is a keeper, which knows more of them. */
  let secrets = (): string[] => revealAll(initial)
  const logging = createLog({ ...initial.log, stream, env, clock, secrets: () => secrets() })
  const log = withFileSentences(logging.log, remedyOf)

  const store = await createStateStore({ ...initial, clock, log })
  const follower = await createFollower(initial, { ...environment, log, store })
  const { keeper, share, config } = follower
  secrets = follower.secrets

  const files = createTokenFiles({ config: initial.tokenFiles, keeper, log, remedyOf })
  startTokenLog({ keeper, log, remedyOf })
  const alerts = createAlerts({
    keeper,
    log,
    path: join(initial.runtimeDirectory, OWN_FILES.runtimeDirectory.alert),
    settings: initial.alerts,
    host: hostname,
    account: place.account,
    remedyOf,
  })
  const replies = createReplies({
    remedyOf,
    keeper,
    refresh: follower.refresh,
    async sources() {
      await withTimeout(MAX_EXAMINE_MS, follower.disk.read(), clock)
      const problem = store.problem()
      return {
        files: files.status(),
        clients: servers.clients(),
        daemon: {
          version: program.version,
          pid: process.pid,
          startedAt: new Date(performance.timeOrigin).toISOString(),
          configFile,
          host: hostname(),
          configuration: follower.configuration(),
          credentials: credentialsEnd(config().pair, clock.now().wallMs),
          stateProblem: problem && remedyOf(problem),
          pathProblems: servers.problems(),
        },
        alert: alerts.current(),
        share: share.status(),
      }
    },
  })
  const metrics = createMetrics({
    keeper,
    sample: () => ({
      servers: servers.counts(),
      files: files.counts(),
      logRecordsLost: logging.lost(),
      alert: alerts.current(),
      isFaultyOnDisk: follower.configuration().state === 'faulty',
      credentialsEnd: announcedEnd(config().pair, clock.now().wallMs),
      share: share.sample(),
    }),
  })
  const servers = createServers(initial, {
    paths: ownSockets(initial.runtimeDirectory),
    inherited,
    replies,
    metrics,
    requests: { testAlert: () => alerts.test(), reload: () => reload() },
    log,
    remedyOf,
  })
  const systemd = createSystemdNotifier({ ...environment, pid: process.pid, keeper })
  const reload = createReload({
    ...environment,
    follower,
    notifier: systemd,
    log,
    async prepare(next) {
      const useSockets = servers.prepare(next)
      return async () => {
        useSockets()
        logging.reconfigure(next.log)
        alerts.reconfigure(next.alerts)
        await files.reconfigure(next.tokenFiles)
      }
    },
  })

  /** Maintains every component, every 15 s. */
  async function maintain(signal: AbortSignal): Promise<void> {
    for (; !signal.aborted; await clock.sleep(MAINTENANCE_MS, signal)) {
      logCredentialsEnd(config().pair, { keeper, log })
      servers.maintain()
      void store.maintain()
    }
  }

  return {
    log,
    async run(signals: Pick<DaemonSignals, 'onReload' | 'onRefresh'>): Promise<void> {
      const listening = Promise.withResolvers<void>()
      signals.onReload(() => void raceAbort(listening.promise, stop).then(reload))
      signals.onRefresh(() => void follower.refresh(stop))
      /** Runs the keeper, which asks the service only once this daemon has its sockets. */
      async function keepToken(signal: AbortSignal): Promise<void> {
        if (!signal.aborted) systemd.ready()
        if (!signal.aborted) logStart(config(), log)
        await keeper.run(signal)
      }
      await runTasks(
        [
          { run: (signal) => servers.run(signal, { onListening: listening.resolve }) },
          // Clients come first: work for which no client waits begins once they can connect.
          after(listening.promise, alerts),
          after(listening.promise, files),
          after(listening.promise, { run: keepToken }),
          systemd,
          after(listening.promise, share),
          follower,
          after(listening.promise, { run: maintain }),
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
