// The state of the store: connected, alone or denied, logged once per change.
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import type { StoreError } from './store.ts'

export type StoreState = Pick<NonNullable<StatusResult['share']>, 'state' | 'since' | 'lastError'>

export interface StoreStateLog {
  current(): StoreState
  /** An operation succeeded. */
  connected(): void
  /** An operation failed. */
  failed(error: StoreError): void
}

const REMEDY_OF_LOSS =
  'Nothing to do if it passes: the token is served meanwhile, and this host asks by itself when its time comes; if it lasts, check share.servers from this host with `kyc-tokend check`'
const REMEDY_OF_DELAY =
  'Nothing to do if it passes; if it lasts, find out what keeps the server busy (redis-cli --latency, SLOWLOG GET), or raise share.timeout'

/** `aclLine`: the command that grants the rights that are needed. */
export function createStoreState({
  server,
  log,
  wallMs,
  aclLine,
}: {
  server: string
  log: Log
  wallMs: () => number
  aclLine: string
}): StoreStateLog {
  const isoNow = (): string => new Date(wallMs()).toISOString()
  let current: StoreState = { state: 'alone', since: isoNow(), lastError: null }
  let failures = 0

  function logFailure(kind: StoreError['kind'], error: string): void {
    if (kind === 'lost') {
      log('warning', 'The shared store cannot be used: this host is alone', {
        event: 'share-lost',
        server,
        error,
        remedy: REMEDY_OF_LOSS,
      })
    } else if (kind === 'slow') {
      log('warning', 'The shared store does not answer in time: this host is alone', {
        event: 'share-slow',
        server,
        error,
        remedy: REMEDY_OF_DELAY,
      })
    } else {
      log('error', 'The shared store denies access: this host is alone', {
        event: 'share-denied',
        server,
        error,
        remedy: `Check share.user and share.password; the user needs these rights: ${aclLine}`,
      })
    }
  }

  return {
    current: () => current,
    connected() {
      if (current.state === 'connected') return
      log('info', 'Connected to the shared store', {
        event: 'share-connected',
        server,
        ...(failures > 0 && {
          failures,
          aloneSeconds: Math.round((wallMs() - Date.parse(current.since)) / 1000),
        }),
      })
      failures = 0
      current = { state: 'connected', since: isoNow(), lastError: null }
    },
    failed({ kind, message }) {
      failures += 1
      // A server that refuses the password closes the connection: that is no other failure.
      const isFirst = failures === 1 || (kind === 'denied' && current.state !== 'denied')
      const state = kind === 'denied' || current.state === 'denied' ? 'denied' : 'alone'
      const since = current.state === 'connected' || failures === 1 ? isoNow() : current.since
      const lastError = state === 'denied' && kind !== 'denied' ? current.lastError : message
      current = { state, since, lastError }
      if (isFirst) logFailure(kind, message)
    },
  }
}
