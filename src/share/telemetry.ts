// Telemetry of sharing: the state of the store, counts for metrics, and log records, each change once.
import type { ShareConfig } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import { KEY_VERSION } from './redis-store.ts'
import { StoreError } from './store.ts'

type StoreState = Pick<NonNullable<StatusResult['share']>, 'state' | 'since' | 'lastError'>

/**
 * The shortest time between two records in the log: a process that may write to the store can write a
 * thousand times a second.
 */
const UNREADABLE_EVERY_MS = 600_000

export function createTelemetry(options: {
  server: string
  log: Log
  clock: Pick<Clock, 'now'>
  share: AclSettings
}) {
  const { server, log, clock } = options
  const isoNow = (): string => new Date(clock.now().wallMs).toISOString()
  const outcomes = { asked: 0, adopted: 0, alone: 0 }
  let unreadable = 0
  let unreadableAtMs = -Infinity
  let storeState: StoreState = { state: 'alone', since: isoNow(), lastError: null }
  let failures = 0
  let isAloneLogged = false

  return {
    sample: () => ({ outcomes: { ...outcomes }, unreadable, state: storeState.state }),
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
    failed: (thrown: unknown): void => {
      if (!(thrown instanceof StoreError)) throw thrown
      const { kind, message: error } = thrown
      failures += 1
      // A server that refuses the password then closes the connection, which is no other failure.
      if (storeState.state === 'denied' && kind !== 'denied') return
      const isFirst = failures === 1 || (kind === 'denied' && storeState.state !== 'denied')
      const since = failures === 1 ? isoNow() : storeState.since
      storeState = { state: kind === 'denied' ? 'denied' : 'alone', since, lastError: error }
      if (!isFirst) return
      if (kind === 'denied')
        log('error', 'The shared store denies access: this host is alone', {
          event: 'share-denied',
          server,
          error,
          remedy: `Check share.user and share.password; the user needs these rights: ${aclLine(options.share)}`,
        })
      else
        log('warning', 'The shared store cannot be used: this host is alone', {
          event: 'share-lost',
          server,
          error,
          remedy:
            'Nothing to do if it passes: the token is served meanwhile, and this host asks by itself when its time comes; if it lasts, check share.servers from this host with `kyc-tokend check`',
        })
    },
    /** This host will ask by itself. Logged once for each loss of the store. */
    alone(plan: { spreadMs: number; inMs: number }): void {
      if (isAloneLogged) return
      isAloneLogged = true
      const sentence = 'This host asks the service by itself when its time comes'
      log('warning', sentence, { event: 'share-alone', ...plan })
    },
    counted(how: keyof typeof outcomes): void {
      outcomes[how] += 1
    },
    /** A text does not open; logged once in 10 min at most. */
    unreadable(): void {
      unreadable += 1
      const nowMs = clock.now().bootMs
      if (nowMs - unreadableAtMs < UNREADABLE_EVERY_MS) return
      unreadableAtMs = nowMs
      log('error', 'A process that does not know the secret writes to the shared store', {
        event: 'share-unreadable',
        remedy:
          'Find out which others may write to the server under share.prefix, and take that right away; what they wrote was removed',
      })
    },
  }
}

/** Settings that decide which rights are needed. */
export type AclSettings = Pick<ShareConfig, 'user' | 'prefix' | 'database' | 'cluster'>

/** For `ACL SETUSER`: the commands, keys and channels of this prefix, and nothing else. */
export function aclLine({ user, prefix, database, cluster }: AclSettings): string {
  const commands =
    '-@all +ping +auth +hello +info +client +eval +evalsha +script +time +get +set +del +pttl +publish +subscribe +unsubscribe +pubsub|numsub'
  const select = database === 0 ? '' : ' +select'
  const slots = cluster ? ' +cluster|slots +cluster|info' : ''
  const all = `${prefix}:${KEY_VERSION}:*`
  return `ACL SETUSER ${user ?? 'default'} on >PASSWORD resetkeys ~${all} resetchannels &${all} ${commands}${select}${slots}`
}
