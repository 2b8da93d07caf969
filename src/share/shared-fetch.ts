// One attempt of a host in a fleet: takes what another host was answered, waits for one that asks, or asks for all.
import type { Clock } from '../lib/clock.ts'
import { createWakeableSleep } from '../lib/wakeable-sleep.ts'
import type { Attempt, FetchOutcome, FetchToken, Postponed } from '../token/outcome.ts'
import { createAsk, PAUSE_MS, type AskOptions } from './ask.ts'
import { askerOf, MAX_WAIT_MS } from './records.ts'
import type { SharedRecord } from './seal.ts'
import { StoreError, type StoredBox, type Taken } from './store.ts'

export interface SharedFetchOptions extends Omit<AskOptions, 'leaseMs'> {
  /** False: this host never asks the service. */
  readonly asks: boolean
  readonly clock: Clock
  readonly random: () => number
  /** The store did as it was asked. */
  readonly onContact: () => void
  /** The store cannot be used: this host is on its own. */
  readonly alone: (signal: AbortSignal, attempt: Attempt) => Promise<FetchOutcome>
}

/** Beyond the request itself: for the answer's way to the store. */
const LEASE_MARGIN_MS = 2_000
/** Hosts that waited for a lease that has ended look so long after it at most, each at its own time. */
const AFTER_LEASE_MS = 500
/** The leases of others hold a host up for no longer than this many of its own. */
const PATIENCE_IN_LEASES = 2
/** A host that does not ask looks so often. */
const LOOK_AGAIN_MS = 15_000
/** The pace of clients' reports is held for no longer, by no matter what host it was written. */
const PACE_MS = 30_000
/** So many answers without use, and the store is as good as none. */
const MAX_USELESS = 5
/** However often a waiting host is woken, it takes no more steps than this allows. */
const SHORTEST_WAIT_MS = 50

/** The next step after an answer of the store: an outcome, or the store is asked again. */
type Step = FetchOutcome | 'again' | 'waited'

export function createSharedFetch(options: SharedFetchOptions): FetchToken {
  const { store, records, adoption, counts, clock, bootMs, random } = options
  const leaseMs = options.requestTimeoutMs + LEASE_MARGIN_MS
  const ask = createAsk({ ...options, leaseMs })
  /** Woken by a record, and by a lease that is given up. */
  const { sleep, wake } = createWakeableSleep(clock)

  async function fetchToken(signal: AbortSignal, attempt: Attempt): Promise<FetchOutcome> {
    adoption.begin(wake)
    try {
      const early = attempt.cause === 'operator' ? null : adoption.take()
      if (early !== null) return early
      const outcome = await fetchShared(signal, attempt).then(
        (shared) => {
          options.onContact()
          return shared
        },
        (error: unknown) => {
          if (!(error instanceof StoreError)) throw error
          options.onLost(error)
          return options.alone(signal, attempt)
        },
      )
      // A record that came meanwhile is better than anything but a token.
      return outcome.kind === 'ok' ? outcome : (adoption.take() ?? outcome)
    } finally {
      adoption.end()
    }
  }

  async function fetchShared(signal: AbortSignal, attempt: Attempt): Promise<FetchOutcome> {
    // A token that this host obtained alone may be newer than the store's.
    if (options.reconciler.isUnshared() || !options.asks) await options.reconciler.reconcile()
    if (!options.asks) return adoption.take() ?? postponed(LOOK_AGAIN_MS, { reason: 'not-asked' })
    const patience = { leftMs: PATIENCE_IN_LEASES * leaseMs, knownBefore: records.floor() }
    for (let useless = 0; useless < MAX_USELESS && !signal.aborted;) {
      const step = await stepAfter(await take(attempt), { signal, attempt, patience })
      if (typeof step !== 'string') return step
      if (step === 'again') useless += 1
    }
    if (signal.aborted) return postponed(0)
    throw new StoreError('lost', 'The shared store gives nothing that can be used')
  }

  async function take({ cause }: Attempt): Promise<Taken & { takenAtMs: number }> {
    const takenAtMs = bootMs()
    const seen = adoption.seen()
    const request = { cause, leaseMs, seen, floor: records.floor(), ignored: records.ignored() }
    return { ...(await store.take(request)), takenAtMs }
  }

  interface Situation {
    readonly signal: AbortSignal
    readonly attempt: Attempt
    readonly patience: { leftMs: number; readonly knownBefore: number }
  }

  async function stepAfter(taken: Taken & { takenAtMs: number }, situation: Situation): Promise<Step> {
    switch (taken.verdict) {
      case 'newer':
        adoption.receive(taken.record, 'take')
        return adoption.take() ?? 'again'
      case 'taken':
        return waitFor(taken.waitMs, situation)
      case 'held':
        return heldBy(openOf(taken.record), Math.min(taken.waitMs, MAX_WAIT_MS)) ?? 'again'
      case 'paused': {
        const record = openOf(taken.record)
        // Every other host comes before the one that has just failed.
        const spreadMs = record?.by === options.host ? AFTER_LEASE_MS : AFTER_LEASE_MS * random()
        const waitMs = Math.min(taken.waitMs, PAUSE_MS) + spreadMs
        return heldBy(record, waitMs) ?? postponed(waitMs)
      }
      case 'paced':
        return postponed(Math.min(taken.waitMs, PACE_MS))
      case 'yours':
      default:
        return ask(taken, situation)
    }
  }

  function openOf(stored: StoredBox | null): SharedRecord | null {
    const record = stored && options.seal.open(stored.box, stored)
    if (stored !== null && record === null) {
      counts.unreadable(stored.fence)
      records.ignore(stored.fence)
    }
    return record
  }

  /** A refusal holds until an operator lifts it; another failure is over after the wait. */
  function heldBy(record: SharedRecord | null, retryAfterMs: number): FetchOutcome | null {
    if (record === null) return null
    if (record.kind === 'ok') return postponed(retryAfterMs)
    const { detail } = record
    const by = askerOf(record, options.host)
    if (record.kind === 'transient') return postponed(retryAfterMs, { ...by, reason: record.reason, detail })
    return { kind: 'permanent', reason: record.reason, detail, status: record.status, ...by }
  }

  /** Another host asks: its answer is ours, unless it dies first. */
  async function waitFor(leftMs: number, { signal, attempt, patience }: Situation): Promise<Step> {
    // An operator waits for the answer to a request, not for one that was there before.
    const isAnswered = (): boolean =>
      attempt.cause === 'operator' ? records.floor() > patience.knownBefore : adoption.isPending()
    const untilMs = bootMs() + Math.min(leftMs, leaseMs) + AFTER_LEASE_MS * random()
    const startMs = bootMs()
    if (!isAnswered()) {
      if (patience.leftMs <= 0) throw new StoreError('lost', 'Other hosts hold the lease for too long')
      await sleep(Math.min(untilMs - startMs, patience.leftMs), signal)
      patience.leftMs -= Math.max(SHORTEST_WAIT_MS, bootMs() - startMs)
    }
    return (isAnswered() ? adoption.take() : null) ?? 'waited'
  }

  return fetchToken
}

function postponed(retryAfterMs: number, more: Partial<Postponed> = {}): Postponed {
  return { kind: 'postponed', retryAfterMs, ...more }
}
