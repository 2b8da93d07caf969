// Telemetry of sharing: the state of the store, counts for metrics, and log records, each change once.
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import { aclLine, type AclSettings } from './redis-store.ts'
import { StoreError } from './store.ts'

type StoreState = Pick<NonNullable<StatusResult['share']>, 'state' | 'since' | 'lastError'>
export type Telemetry = ReturnType<typeof createTelemetry>

/**
 * The shortest time between two records of one kind: whoever may write to the store can write a thousand times
 * a second, and a server that restarts again and again is lost and found each time.
 */
const RECORD_EVERY_MS = 600_000

export function createTelemetry(options: {
  server: string
  log: Log
  clock: Pick<Clock, 'now'>
  share: AclSettings
}) {
  const { server, log, clock, share } = options
  const outcomes = { asked: 0, adopted: 0, alone: 0 }
  let unreadable = 0
  let unreadableAtMs = -Infinity
  let isAloneLogged = false
  let storeState = stateNow('alone', null)
  /** The state that the last record said; null: there is none yet. */
  let recorded: StoreState['state'] | null = null
  /** When the last record of a loss was written, and the losses since then, on the boot clock. */
  let lossRecordedAtMs = -Infinity
  let losses = 0

  function stateNow(state: StoreState['state'], lastError: string | null): StoreState {
    return { state, since: new Date(clock.now().wallMs).toISOString(), lastError }
  }

  const isEarly = (): boolean => clock.now().bootMs - lossRecordedAtMs < RECORD_EVERY_MS

  function recordLoss(error: string): void {
    recorded = 'alone'
    lossRecordedAtMs = clock.now().bootMs
    isAloneLogged = false
    log('warning', 'The shared store cannot be used: this host is alone', {
      event: 'share-lost',
      server,
      error,
      ...(losses > 1 && { losses }),
      remedy:
        'Nothing to do if it passes: the token is served meanwhile, and this host asks by itself when ' +
        'its time comes; if it lasts, check share.servers and share.tls here with `kyc-tokend check`',
    })
    losses = 0
  }

  function recordDenial(error: string): void {
    recorded = 'denied'
    isAloneLogged = false
    log('error', 'The shared store denies access: this host is alone', {
      event: 'share-denied',
      server,
      error,
      remedy: `Check share.user and share.password; the user needs these rights: ${aclLine(share)}`,
    })
  }

  return {
    sample: () => ({ outcomes: { ...outcomes }, unreadable, state: storeState.state }),
    storeState: (): StoreState => storeState,
    /** An operation succeeded. */
    connected(): void {
      if (storeState.state !== 'connected') storeState = stateNow('connected', null)
      // A loss that has no record is over, and so is told by the next record alone.
      if (recorded === 'connected' && (losses === 0 || isEarly())) return
      recorded = 'connected'
      const fields = { event: 'share-connected', server, ...(losses > 0 && { losses }) }
      log('info', 'Connected to the shared store', fields)
      losses = 0
    },
    /** An operation failed. Throws an error that is not the store's, because it is an internal one. */
    failed: (thrown: unknown): void => {
      if (!(thrown instanceof StoreError)) throw thrown
      const { kind, message: error } = thrown
      const state = kind === 'denied' ? kind : 'alone'
      // A server that refuses the password then closes the connection, which is no other failure.
      if (storeState.state === 'denied' && state !== 'denied') return
      const isNews = storeState.lastError === null || state !== storeState.state
      storeState = isNews ? stateNow(state, error) : { ...storeState, lastError: error }
      if (isNews && state === 'alone') losses += 1
      if (state === 'denied' && recorded !== state) recordDenial(error)
      else if (state === 'alone' && recorded !== state && !isEarly()) recordLoss(error)
    },
    /** This host will ask by itself. Logged once for each loss of the store. */
    alone(plan: { spreadMs: number; inMs: number }): void {
      if (isAloneLogged) return
      isAloneLogged = true
      const sentence = 'This host asks the service by itself when its time comes'
      log('warning', sentence, { event: 'share-alone', ...plan })
    },
    counted(name: keyof typeof outcomes): void {
      outcomes[name] += 1
    },
    /** A text does not open; logged once in 10 min at most. */
    unreadable(): void {
      unreadable += 1
      const nowMs = clock.now().bootMs
      if (nowMs - unreadableAtMs < RECORD_EVERY_MS) return
      unreadableAtMs = nowMs
      log('error', 'A process that does not know the secret writes to the shared store', {
        event: 'share-unreadable',
        remedy:
          'Find out which others may write to the server under share.prefix, and take that right away; ' +
          'what they wrote was removed',
      })
    },
  }
}
