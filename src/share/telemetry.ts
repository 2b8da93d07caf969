// What people learn of the store: its state, counts for metrics, records, and the row of `check`.
import { randomUUID } from 'node:crypto'
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import { aclLine, formatServers, openStore, StoreError, type StoreSettings } from './store.ts'

type State = Omit<NonNullable<StatusResult['share']>, 'askedBy'>
export type Telemetry = ReturnType<typeof createTelemetry>

/** The shortest time between two records of a loss: a server may be lost and back a thousand times. */
const LOST_EVERY_MS = 600_000

export function createTelemetry(options: { settings: StoreSettings; log: Log; clock: Pick<Clock, 'now'> }) {
  const { settings, log, clock } = options
  const server = formatServers(settings.servers)
  const outcomes = { asked: 0, adopted: 0, alone: 0 }
  const isoNow = (): string => new Date(clock.now().wallMs).toISOString()
  let state: State = { state: 'alone', server, since: isoNow(), lastError: null }
  /** The state that the last record said; null: there is none yet. */
  let recorded: State['state'] | null = null
  let lostRecordedAtMs = -Infinity
  let aloneRecordedSince = ''

  function change(name: State['state'], lastError: string | null): void {
    state = { state: name, server, since: state.state === name ? state.since : isoNow(), lastError }
  }

  return {
    sample: () => ({ state: state.state, outcomes: { ...outcomes } }),
    state: (): State => state,
    /** `alone`: this host asked without the store. */
    asked(how: 'asked' | 'alone'): void {
      outcomes[how] += 1
      if (how === 'asked') log('info', 'Asked the service for the fleet', { event: 'share-asked' })
    },
    adopted(by: string, ageMs: number): void {
      outcomes.adopted += 1
      const fields = { event: 'share-adopted', by, ageMs: Math.round(ageMs) }
      log('debug', 'Took over what another host was answered', fields)
    },
    /** The store is of use. */
    connected(): void {
      change('connected', null)
      if (recorded !== 'connected')
        log('info', 'Connected to the shared store', { event: 'share-connected', server })
      recorded = 'connected'
    },
    /** The store is of no use. Throws an error that is not the store's, because it is an internal one. */
    failed: (thrown: unknown): null => {
      if (!(thrown instanceof StoreError)) throw thrown
      const { kind, message: error } = thrown
      // A server that refuses the password then closes the connection, which is no other failure.
      const isDenied = kind === 'denied' || state.state === 'denied'
      const { bootMs } = clock.now()
      change(isDenied ? 'denied' : 'alone', error)
      if (recorded === state.state || (!isDenied && bootMs - lostRecordedAtMs < LOST_EVERY_MS)) return null
      recorded = state.state
      if (isDenied) {
        const remedy = `Check share.user and share.password; these rights are needed: ${aclLine(settings)}`
        log('error', 'The shared store denies access', { event: 'share-denied', server, error, remedy })
      } else {
        lostRecordedAtMs = bootMs
        log('warning', 'The shared store cannot be used', { event: 'share-lost', server, error })
      }
      return null
    },
    /** This host will ask by itself. Recorded once for each loss. */
    alone(inMs: number): void {
      if (aloneRecordedSince !== state.since)
        log('warning', 'This host asks the service by itself', { event: 'share-alone', inMs })
      aloneRecordedSince = state.since
    },
  }
}

const REACH =
  'share.servers, the way from this host, and share.tls: false if the server speaks no TLS; else caFile, ' +
  'serverName, certFile and key'

/**
 * Connects, and uses every right that a host needs. Leaves no key behind. Throws no error of the store. The sentence
 * is without its subject, the store.
 */
export async function checkStore(
  ...[settings, around]: Parameters<typeof openStore>
): Promise<{ readonly level: 'ok' | 'fault'; readonly sentence: string }> {
  const key = `${settings.prefix}:3:{check-${randomUUID()}}:lease`
  const store = await openStore(settings, around)
  try {
    const info = await store.info()
    await store.swap(key, '', 'check', 1_000)
    const { lease } = await store.read({ record: key, lease: key })
    await store.swap(key, lease, '', 1_000)
    const field = (name: string) => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1]
    const valkey = field('valkey_version')
    const version = valkey === undefined ? `Redis ${field('redis_version')}` : `Valkey ${valkey}`
    if (field('role') === 'master')
      return { level: 'ok', sentence: `is ${version}, role master, and lets this host read and write` }
    const remedy = 'name the master in share.servers, or set share.sentinel'
    return {
      level: 'fault',
      sentence: `is ${version}, role ${field('role')}, and takes no writes: ${remedy}`,
    }
  } catch (error) {
    if (!(error instanceof StoreError)) throw error
    const check = error.kind === 'denied' ? `share.user and share.password: ${aclLine(settings)}` : REACH
    const sentence = `cannot be used at ${formatServers(settings.servers)}: ${error.message}. Check ${check}`
    return { level: 'fault', sentence }
  } finally {
    store.close()
  }
}
