// What people learn of the store: its state, counts for metrics, records, and the row of `check`.
import { randomBytes } from 'node:crypto'
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
  let state: State = { state: 'alone', server, since: isoNow(), lastError: null }
  let lostRecordedAtMs = -Infinity
  let aloneRecordedSince = ''
  /** The state that the last record said; null: there is none yet. */
  let recorded: State['state'] | null = null

  function isoNow(): string {
    return new Date(clock.now().wallMs).toISOString()
  }

  function change(name: State['state'], lastError: string | null): void {
    state = { state: name, server, since: state.state === name ? state.since : isoNow(), lastError }
  }

  return {
    sample: () => ({ state: state.state, outcomes: { ...outcomes } }),
    state: (): State => state,
    counted: (how: keyof typeof outcomes): void => void (outcomes[how] += 1),
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
      change(isDenied ? 'denied' : 'alone', error)
      if (recorded === state.state) return null
      if (isDenied) {
        const remedy = `Check share.user and share.password; these rights are needed: ${aclLine(settings)}`
        log('error', 'The shared store denies access', { event: 'share-denied', server, error, remedy })
      } else {
        const { bootMs } = clock.now()
        if (bootMs - lostRecordedAtMs < LOST_EVERY_MS) return null
        lostRecordedAtMs = bootMs
        log('warning', 'The shared store cannot be used', { event: 'share-lost', server, error })
      }
      recorded = state.state
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

/** A sentence without its subject, the store, and with the remedy if one is needed. */
interface StoreFinding {
  readonly level: 'ok' | 'fault'
  readonly sentence: string
}

/** Connects, and uses every right that a host needs. Leaves no key behind. Throws no error of the store. */
export async function checkStore(...[settings, around]: Parameters<typeof openStore>): Promise<StoreFinding> {
  const key = `${settings.prefix}:3:{check-${randomBytes(16).toString('hex')}}:lease`
  const store = await openStore(settings, around)
  try {
    const info = await store.info()
    await store.swap(key, '', 'check', 1_000)
    const { lease } = await store.read({ record: key, lease: key })
    await store.swap(key, lease, '', 1_000)
    return findingOf(info)
  } catch (error) {
    if (!(error instanceof StoreError)) throw error
    const check = error.kind === 'denied' ? `share.user and share.password: ${aclLine(settings)}` : REACH
    const sentence = `cannot be used at ${formatServers(settings.servers)}: ${error.message}. Check ${check}`
    return { level: 'fault', sentence }
  } finally {
    store.close()
  }
}

const REACH =
  'share.servers, the way from this host, and share.tls: false if the server speaks no TLS; else caFile, ' +
  'serverName, certFile and key'

function findingOf(info: string): StoreFinding {
  const field = (name: string): string | undefined => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1]
  const valkey = field('valkey_version')
  const version = valkey === undefined ? `Redis ${field('redis_version')}` : `Valkey ${valkey}`
  const role = field('role')
  if (role === 'master')
    return { level: 'ok', sentence: `is ${version}, role ${role}, and lets this host read and write` }
  const master = 'name the master in share.servers, or set share.sentinel'
  return { level: 'fault', sentence: `is ${version} and a ${role}, which takes no writes: ${master}` }
}
