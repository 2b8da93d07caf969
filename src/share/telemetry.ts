// What people learn of sharing: the state of the store, counts for metrics, and records, each change once.
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import { aclLine, formatServers, StoreError, type StoreSettings } from './store.ts'

type StoreState = Omit<NonNullable<StatusResult['share']>, 'askedBy'>
export type Telemetry = ReturnType<typeof createTelemetry>

/** The shortest time between two records of a loss: a server may be lost and back a thousand times. */
const RECORD_EVERY_MS = 600_000

export function createTelemetry(options: { settings: StoreSettings; log: Log; clock: Pick<Clock, 'now'> }) {
  const { settings, log, clock } = options
  const server = formatServers(settings.servers)
  const outcomes = { asked: 0, adopted: 0, alone: 0 }
  let state = stateNow('alone', null)
  /** The state that the last record said; null: there is none yet. */
  let recorded: StoreState['state'] | null = null
  let isAloneRecorded = false
  let lossRecordedAtMs = -Infinity

  function stateNow(name: StoreState['state'], lastError: string | null): StoreState {
    return { state: name, server, since: new Date(clock.now().wallMs).toISOString(), lastError }
  }

  function recordFailure(error: string): void {
    const { bootMs } = clock.now()
    const isDenied = state.state === 'denied'
    if (recorded === state.state || (!isDenied && bootMs - lossRecordedAtMs < RECORD_EVERY_MS)) return
    recorded = state.state
    isAloneRecorded = false
    if (!isDenied) lossRecordedAtMs = bootMs
    const [level, event, sentence, remedy] = isDenied
      ? ([
          'error',
          'share-denied',
          'The shared store denies access',
          `${DENIED} ${aclLine(settings)}`,
        ] as const)
      : (['warning', 'share-lost', 'The shared store cannot be used', LOST] as const)
    log(level, `${sentence}: this host is alone`, { event, server, error, remedy })
  }

  return {
    sample: () => ({ state: state.state, outcomes: { ...outcomes } }),
    state: (): StoreState => state,
    counted: (how: keyof typeof outcomes): void => void (outcomes[how] += 1),
    /** The store is of use. */
    connected(): void {
      if (state.state !== 'connected') state = stateNow('connected', null)
      if (recorded === 'connected') return
      recorded = 'connected'
      log('info', 'Connected to the shared store', { event: 'share-connected', server })
    },
    /** The store is of no use. Throws an error that is not the store's, because it is an internal one. */
    failed: (thrown: unknown): null => {
      if (!(thrown instanceof StoreError)) throw thrown
      const { kind, message } = thrown
      // A server that refuses the password then closes the connection, which is no other failure.
      const name = kind === 'denied' || state.state === 'denied' ? 'denied' : 'alone'
      const isSame = state.lastError !== null && state.state === name
      state = isSame ? { ...state, lastError: message } : stateNow(name, message)
      recordFailure(message)
      return null
    },
    /** This host will ask by itself. Recorded once for each loss. */
    alone(inMs: number): void {
      if (!isAloneRecorded)
        log('warning', 'This host asks the service by itself when its time comes', {
          event: 'share-alone',
          inMs,
        })
      isAloneRecorded = true
    },
  }
}

const LOST =
  'Nothing to do if it passes: the token is served meanwhile, and this host asks by itself when its time ' +
  'comes; if it lasts, check share.servers and share.tls here with `kyc-tokend check`'
const DENIED = 'Check share.user and share.password; the user needs these rights:'
