// The state to begin with, out of what was saved: pure.
import type { Instant } from '../lib/clock.ts'
import { MAX_RETRY_WAIT_MS } from '../token/backoff.ts'
import {
  initialState,
  tokenlessAt,
  usableUntilMs,
  type Failure,
  type ServiceSettings,
  type Tokenless,
  type TokenState,
} from '../token/state.ts'
import { isSameService, type Token } from '../token/token.ts'
import type { Saved, SavedState } from './saved-state.ts'

/** Boot clocks of two processes may differ by this: without /proc/uptime Node reads whole seconds. */
const CLOCK_GRAIN_MS = 1_000

interface Found {
  readonly now: Instant
  /** The reading of CLOCK_MONOTONIC. */
  readonly awakeMs: number
  /** The token, if it was saved in this boot. */
  readonly kept: Token | null
  readonly saved: (Saved<SavedState> & { readonly isThisBoot: boolean }) | null
}

/** The state to begin with. */
export function restoredState(settings: ServiceSettings, found: Found): TokenState {
  const { now, awakeMs, kept, saved } = found
  const facts =
    saved &&
    onClock(saved.facts, { shiftMs: clockShiftMs(saved, now), now, writtenMs: saved.written.at.bootMs })
  const generation = Math.max(kept?.generation ?? 0, facts?.generation ?? 0)
  // One that was replaced is not served again, whatever the disk kept of it.
  const isNewest = kept?.generation === generation
  return {
    ...initialState(settings, now),
    ...(facts && factsInForce(facts, { settings, kept, now })),
    tokenless: tokenlessOf(saved, { facts, now, awakeMs }),
    token: isNewest && isSameService(kept, settings) && isGood(kept, now) ? kept : null,
    generation,
    answers: Math.max(kept?.answer ?? 0, facts?.answers ?? 0),
  }
}

/** The token may still be handed out, and its instants are possible: the boot clock has not begun anew. */
function isGood(token: Token, now: Instant): boolean {
  const latestMs = now.bootMs + CLOCK_GRAIN_MS
  const isPossible = token.received.bootMs <= latestMs && token.expiresAtMs <= latestMs + token.lifeMs
  return isPossible && now.bootMs < usableUntilMs(token)
}

/**
 * The time without a token until now. In the same boot that since the last reading counts, with or without a
 * daemon; in another one, and where nobody knows, the host may have been off, and the count goes on from here.
 */
function tokenlessOf(
  saved: Found['saved'],
  { facts, now, awakeMs }: { facts: SavedState | null } & Pick<Found, 'now' | 'awakeMs'>,
): Tokenless {
  if (saved === null || facts === null) return { since: now, forMs: 0, readAtMs: awakeMs }
  const { tokenless, tokenlessFrom: from } = facts
  const isLost = from.bootMs < now.bootMs
  const since = isLost ? from : now
  if (!saved.isThisBoot) return { since, forMs: isLost ? (tokenless?.forMs ?? 0) : 0, readAtMs: awakeMs }
  // 2.0.0 saved no count.
  const counted = tokenless ?? { forMs: 0, readAtMs: -Infinity }
  return { since, ...tokenlessAt(counted, { from, now, awakeMs }) }
}

/** The facts that count with these credentials. */
function factsInForce(
  facts: SavedState,
  { settings, kept, now }: Pick<Found, 'kept' | 'now'> & { settings: ServiceSettings },
): Partial<TokenState> {
  const { credentialsId } = settings
  const { notBefore, pace, lastRequestAt, loggedEnd, isOrderly } = facts
  // Killed between the two files: what the token's answer had ended is older than the token.
  const isOutdated = kept !== null && kept.answer > facts.answers
  const answered = isOutdated ? kept.credentialsId : ''
  const { [answered]: _ended, ...bounds } = notBefore
  const lasting = {
    notBefore: bounds,
    pace,
    loggedEnd,
    lastRequestAt,
    lastSuccessAt: isOfService(facts, { settings, kept }) ? facts.lastSuccessAt : null,
  }
  const ofPair = answered === credentialsId ? null : factsOf(facts, credentialsId)
  if (ofPair === null) return lasting
  const { failure, objection } = ofPair
  if (!isOrderly) {
    // The pace of `rejected` is not kept for a candidate, which is not repeated; for the running pair it is.
    const isPaced =
      objection?.reason === 'rejected' && failure !== null && facts.credentialsId !== credentialsId
    const paced = isPaced ? { ...bounds, [credentialsId]: failure.retryAtMs } : bounds
    return { ...lasting, notBefore: paced, objection, failure }
  }
  return {
    ...lasting,
    objection,
    failure: failureInForce(failure, notBefore[credentialsId] ?? 0, now),
    // As long as an alert stands, an orderly start asks once.
    next: objection && { cause: 'start', atMs: now.bootMs },
  }
}

/** What was saved of these credentials, which were the running pair or the candidate; null: neither. */
function factsOf(
  { credentialsId: running, failure, objection, candidate }: SavedState,
  credentialsId: string,
): Pick<TokenState, 'failure' | 'objection'> | null {
  if (running === credentialsId) return { failure, objection }
  if (candidate?.credentialsId !== credentialsId) return null
  const { reason, attempts, retryAtMs, ...answer } = candidate.failure
  if (reason === 'account-inactive' || reason === 'account-not-found')
    return { failure: null, objection: { reason, ...answer } }
  const { detail, status, since } = answer
  const failed = { reason, detail, status, since, attempts, retryAtMs }
  return { failure: failed, objection: reason === 'rejected' ? { reason, ...answer } : null }
}

/** Reports whether the facts are about this service; 2.0.0 did not save which, and then a token says it. */
function isOfService(
  { baseUrl, credentialsId }: SavedState,
  { settings, kept }: Pick<Found, 'kept'> & { settings: ServiceSettings },
): boolean {
  if (credentialsId === settings.credentialsId) return true
  if (baseUrl !== null) return isSameService({ baseUrl, credentialsId }, settings)
  return kept === null || isSameService(kept, settings)
}

/** The part of a failure that outlives an orderly stop: only a wait that the service itself asked for. */
function failureInForce(failure: Failure | null, notBeforeMs: number, now: Instant): Failure | null {
  if (failure === null || notBeforeMs <= now.bootMs) return null
  return { ...failure, attempts: 1, retryAtMs: notBeforeMs }
}

/** To be added to an instant of the former boot clock: 0 in the same boot, else what the wall clocks say. */
function clockShiftMs({ written: { at }, isThisBoot }: NonNullable<Found['saved']>, now: Instant): number {
  if (isThisBoot && at.bootMs <= now.bootMs) return 0
  return now.bootMs - now.wallMs + (at.wallMs - at.bootMs)
}

interface OnClock {
  readonly shiftMs: number
  readonly now: Instant
  /** When the facts were written, on the former boot clock. */
  readonly writtenMs: number
}
/** The same facts on the present boot clock; no past instant is in the future, and no wait has become longer. */
function onClock(saved: SavedState, { shiftMs, now, writtenMs }: OnClock): SavedState {
  const pastMs = (bootMs: number): number => Math.min(bootMs + shiftMs, now.bootMs)
  // Where the boot is not known to be the same, the wall clock may have been set meanwhile.
  const aheadMs = (bootMs: number): number =>
    Math.min(bootMs + shiftMs, now.bootMs + Math.min(bootMs - writtenMs, MAX_RETRY_WAIT_MS))
  const past = (at: Instant): Instant => ({ ...at, bootMs: pastMs(at.bootMs) })
  const failed = <F extends { since: Instant; retryAtMs: number }>(failure: F): F => ({
    ...failure,
    since: past(failure.since),
    retryAtMs: aheadMs(failure.retryAtMs),
  })
  const { failure, objection, candidate, pace, lastRequestAt, lastSuccessAt } = saved
  const { tokenlessFrom: tokenless } = saved
  const notBefore = Object.entries(saved.notBefore).map(([id, untilMs]) => [id, aheadMs(untilMs)] as const)
  return {
    ...saved,
    failure: failure && failed(failure),
    objection: objection && { ...objection, since: past(objection.since) },
    candidate: candidate && { ...candidate, failure: failed(candidate.failure) },
    notBefore: Object.fromEntries(notBefore),
    pace: { ...pace, requestedMs: pace.requestedMs === null ? null : pastMs(pace.requestedMs) },
    lastRequestAt: lastRequestAt && past(lastRequestAt),
    lastSuccessAt: lastSuccessAt && past(lastSuccessAt),
    tokenlessFrom: { ...tokenless, bootMs: tokenless.bootMs + shiftMs },
  }
}
