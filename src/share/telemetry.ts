// Telemetry of sharing: the state of the store, counts for metrics, and log records, each change once.
import type { ShareConfig } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import { createHistogram } from '../lib/histogram.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import { StoreError, type StoreErrorKind } from './store.ts'

type StoreState = Pick<NonNullable<StatusResult['share']>, 'state' | 'since' | 'lastError'>

/** In seconds. */
const LAG_BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, Infinity]
/** The shortest time between two records in the log: a process that may write to the store can write a thousand times a second. */
const UNREADABLE_EVERY_MS = 600_000
/** If the service keeps only one token alive, hosts that ask by themselves end each other's tokens: young tokens are refused. */
const CONTENTION = { youngMs: 60_000, everyMs: 3_600_000 }

export function createTelemetry(options: {
  server: string
  log: Log
  clock: Pick<Clock, 'now'>
  share: AclSettings
}) {
  const { server, log, clock } = options
  const remedies: Readonly<Record<StoreErrorKind, string>> = {
    lost: 'Nothing to do if it passes: the token is served meanwhile, and this host asks by itself when its time comes; if it lasts, check share.servers from this host with `kyc-tokend check`',
    slow: 'Nothing to do if it passes; if it lasts, find out what keeps the server busy (redis-cli --latency, SLOWLOG GET), or raise share.timeout',
    denied: `Check share.user and share.password; the user needs these rights: ${aclLine(options.share)}`,
  }
  const isoNow = (): string => new Date(clock.now().wallMs).toISOString()
  const counts = {
    outcomes: { asked: 0, push: 0, look: 0, take: 0, alone: 0 },
    staleWrites: 0,
    unreadable: 0,
  }
  /** Delay of pushes, in seconds. */
  const lag = createHistogram(LAG_BOUNDS)
  let storeState: StoreState = { state: 'alone', since: isoNow(), lastError: null }
  let failures = 0
  let isAloneLogged = false
  let lastUnreadable = { fence: 0, loggedAtMs: -Infinity }
  let contentionLoggedAtMs = -Infinity

  function logLoss(kind: StoreErrorKind, error: string): void {
    const fields = (event: string) => ({ event, server, error, remedy: remedies[kind] })
    if (kind === 'denied')
      return log('error', 'The shared store denies access: this host is alone', fields('share-denied'))
    if (kind === 'slow')
      return log(
        'warning',
        'The shared store does not answer in time: this host is alone',
        fields('share-slow'),
      )
    log('warning', 'The shared store cannot be used: this host is alone', fields('share-lost'))
  }

  return {
    sample: () => ({ ...structuredClone(counts), lag: lag.observations() }),
    storeState: (): StoreState => storeState,
    /** An operation succeeded. */
    connected(): void {
      if (storeState.state === 'connected') return
      const aloneSeconds = Math.round((clock.now().wallMs - Date.parse(storeState.since)) / 1000)
      const loss = failures > 0 && { failures, aloneSeconds }
      log('info', 'Connected to the shared store', { event: 'share-connected', server, ...loss })
      failures = 0
      isAloneLogged = false
      storeState = { state: 'connected', since: isoNow(), lastError: null }
    },
    /** An operation failed. Throws an error that is not the store's, because it is an internal one. */
    failed: (error: unknown): void => {
      if (!(error instanceof StoreError)) throw error
      const { kind, message } = error
      failures += 1
      // A server that refuses the password then closes the connection, which is no other failure.
      if (storeState.state === 'denied' && kind !== 'denied') return
      const isFirst = failures === 1 || (kind === 'denied' && storeState.state !== 'denied')
      const since = failures === 1 ? isoNow() : storeState.since
      storeState = { state: kind === 'denied' ? 'denied' : 'alone', since, lastError: message }
      if (isFirst) logLoss(kind, message)
    },
    /** This host will ask by itself. Logged once for each loss of the store. */
    alone(plan: { spreadMs: number; inMs: number }): void {
      if (isAloneLogged) return
      isAloneLogged = true
      log('warning', 'This host asks the service by itself when its time comes', {
        event: 'share-alone',
        ...plan,
      })
    },
    counted(source: keyof typeof counts.outcomes): void {
      counts.outcomes[source] += 1
    },
    staleWrite(fence: number): void {
      counts.staleWrites += 1
      log('warning', 'Another host asked meanwhile: its answer counts, and the one of this host is dropped', {
        event: 'share-stale-write',
        fence,
      })
    },
    /** A record does not open; logged once for each fence, and once in 10 min at most. */
    unreadable(fence: number): void {
      counts.unreadable += 1
      const nowMs = clock.now().bootMs
      if (fence === lastUnreadable.fence || nowMs - lastUnreadable.loggedAtMs < UNREADABLE_EVERY_MS) return
      lastUnreadable = { fence, loggedAtMs: nowMs }
      log('error', 'A process that does not know the secret writes to the shared store', {
        event: 'share-unreadable',
        fence,
        remedy:
          'Find out which others may write to the server under share.prefix, and take that right away; what they wrote counts as not there',
      })
    },
    lag(ms: number): void {
      lag.observe(Math.max(0, ms) / 1000)
    },
    /** A client reported a token as refused; `aloneBy`: the other host that obtained it by itself. Logged once an hour at most. */
    rejected(ageMs: number, aloneBy: string | null): void {
      const nowMs = clock.now().bootMs
      const isSuspect = ageMs < CONTENTION.youngMs && (aloneBy !== null || storeState.state !== 'connected')
      if (!isSuspect || nowMs - contentionLoggedAtMs < CONTENTION.everyMs) return
      contentionLoggedAtMs = nowMs
      log('warning', 'The service refused a new token while hosts ask by themselves', {
        event: 'share-contention',
        ageMs: Math.round(ageMs),
        ...(aloneBy !== null && { by: aloneBy }),
        remedy:
          'If the service keeps only one token of an account alive, set share.whenAlone to "wait" on every host: then none asks while the shared store is away',
      })
    },
  }
}

/** Settings that decide which rights are needed. */
export type AclSettings = Pick<ShareConfig, 'user' | 'prefix' | 'database' | 'cluster'>

/** For `ACL SETUSER`: the commands, keys and channels of this prefix, and nothing else. */
export function aclLine({ user, prefix, database, cluster }: AclSettings): string {
  const commands =
    '-@all +ping +auth +hello +info +client +eval +evalsha +script +time +get +set +del +pttl +pexpire +hget +hset +hmget +publish +subscribe +unsubscribe'
  const select = database === 0 ? '' : ' +select'
  const slots = cluster ? ' +cluster|slots +cluster|info' : ''
  const names = `~${prefix}:1:* resetchannels &${prefix}:1:*`
  return `ACL SETUSER ${user ?? 'default'} on >PASSWORD resetkeys ${names} ${commands}${select}${slots}`
}
