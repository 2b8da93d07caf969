// Shows people the store: its state, counts for metrics, and records.
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import { aclLine, formatServers, StoreError, type StoreSettings } from './store.ts'

type State = Omit<NonNullable<StatusResult['share']>, 'askedBy'>
export type Telemetry = ReturnType<typeof createTelemetry>

/** Two records of a loss are so far apart at least: a server may be lost and back a thousand times. */
const LOST_EVERY_MS = 600_000

const STATES = {
  connected: ['info', 'Connected to the shared store', 'share-connected'],
  alone: ['warning', 'The shared store cannot be used', 'share-lost'],
  denied: ['error', 'The shared store denies access', 'share-denied'],
} as const
/** An outcome comes in one of these ways. */
const OUTCOMES = {
  asked: ['info', 'Asked the service for the fleet', 'share-asked'],
  adopted: ['debug', 'Took over what another host was answered', 'share-adopted'],
  alone: ['warning', 'Asked the service without the shared store', 'share-alone'],
} as const

export function createTelemetry(options: { settings: StoreSettings; log: Log; clock: Pick<Clock, 'now'> }) {
  const { settings, log, clock } = options
  const server = formatServers(settings.servers)
  const rights = `Check share.user and share.password; these rights are needed: ${aclLine(settings)}`
  const outcomes = { asked: 0, adopted: 0, alone: 0 }
  const isoNow = (): string => new Date(clock.now().wallMs).toISOString()
  let state: State = { state: 'alone', server, since: isoNow(), lastError: null }
  /** The last record said this state; null: there is none yet. */
  let recorded: State['state'] | null = null
  let lostRecordedAtMs = -Infinity
  /** It was recorded for the loss of this instant that the host asks alone. */
  let aloneSince = ''

  function change(name: State['state'], lastError: string | null): void {
    state = { state: name, server, since: state.state === name ? state.since : isoNow(), lastError }
    const { bootMs } = clock.now()
    if (recorded === name || (name === 'alone' && bootMs < lostRecordedAtMs + LOST_EVERY_MS)) return
    recorded = name
    if (name === 'alone') lostRecordedAtMs = bootMs
    const [level, sentence, event] = STATES[name]
    const remedy = name === 'denied' ? rights : undefined
    log(level, sentence, { event, server, error: lastError ?? undefined, remedy })
  }

  return {
    sample: () => ({ state: state.state, outcomes: { ...outcomes } }),
    state: (): State => state,
    /** An outcome came in this way. */
    outcomeCame(how: keyof typeof OUTCOMES, fields: object = {}): void {
      outcomes[how] += 1
      if (how === 'alone' && aloneSince === state.since) return
      if (how === 'alone') aloneSince = state.since
      const [level, sentence, event] = OUTCOMES[how]
      log(level, sentence, { event, ...fields })
    },
    /** The store is of use. */
    connected: (): void => change('connected', null),
    /** The store is of no use. Throws an error that is not the store's, because it is an internal one. */
    failed: (thrown: unknown): null => {
      if (!(thrown instanceof StoreError)) throw thrown
      // A server that refuses the password then closes the connection, which is no other failure.
      change(thrown.isDenied || state.state === 'denied' ? 'denied' : 'alone', thrown.message)
      return null
    },
  }
}
