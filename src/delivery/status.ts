// The status and the token's description as clients see them: pure functions of the keeper's state.
import { formatInstant, formatInstantOrNull, type Instant } from '../lib/clock.ts'
import { STANDARD_USE, type StatusResult, type TokenDescription } from '../protocol.ts'
import type { CurrentAlert } from '../token/current-alert.ts'
import {
  candidateOf,
  failureOf,
  isStale,
  nextAttemptAtMs,
  phaseOf,
  serviceOf,
  usableToken,
  type TokenState,
} from '../token/selectors.ts'
import type { Token } from '../token/token.ts'

/** The sources of the parts of the status that other components know. */
export interface StatusSources {
  /** Compares the configuration on disk with the running one now, and not only at a tick. */
  examineConfiguration(): Promise<unknown>
  files(): StatusResult['files']
  clients(): StatusResult['clients']
  daemon(): StatusResult['daemon']
  /** `contact`: the person to call. */
  alert(): (CurrentAlert & { readonly remedy: string; readonly contact: string | null }) | null
  share(): StatusResult['share']
}

export function describeToken(token: Token, state: TokenState, now: Instant): TokenDescription {
  const { received, baseUrl } = token
  const { use, refusedBy } = serviceOf(state)
  return {
    tokenType: use.prefix === STANDARD_USE.prefix ? 'Bearer' : null,
    ...use,
    obtainedAt: formatInstant(received.bootMs, received),
    expiresAt: formatInstant(token.expiresAtMs, received),
    expirySource: token.expirySource,
    baseUrl,
    refusedBy,
    refreshAt: formatInstant(token.refreshAtMs, received),
    generation: token.generation,
    fingerprint: token.fingerprint,
    state: phaseOf(state, now),
    stale: isStale(token, now),
  }
}

export function describeCurrent(state: TokenState, now: Instant): TokenDescription | null {
  const token = usableToken(state, now)
  return token === null ? null : describeToken(token, state, now)
}

export function statusOf(state: TokenState, now: Instant, sources: StatusSources): StatusResult {
  const format = (instant: Instant | null): string | null =>
    instant === null ? null : formatInstant(instant.bootMs, now)
  const { baseUrl, lastRequestAt, lastSuccessAt, requests } = serviceOf(state)
  return {
    state: phaseOf(state, now),
    token: describeCurrent(state, now),
    failure: describeFailure(state, now),
    nextAttemptAt: formatInstantOrNull(nextAttemptAtMs(state, now), now),
    candidate: describeCandidate(state, now),
    alert: describeAlert(sources.alert(), now),
    files: sources.files(),
    clients: sources.clients(),
    service: {
      baseUrl,
      lastRequestAt: format(lastRequestAt),
      lastSuccessAt: format(lastSuccessAt),
      requests,
    },
    daemon: sources.daemon(),
    share: sources.share(),
  }
}

function describeAlert(alert: ReturnType<StatusSources['alert']>, now: Instant): StatusResult['alert'] {
  if (alert === null) return null
  const { reason, remedy, contact, askedBy } = alert
  const since = formatInstant(alert.since.bootMs, now)
  return { reason, since, remedy, contact, ...(askedBy !== null && { askedBy }) }
}

function describeFailure(state: TokenState, now: Instant): StatusResult['failure'] {
  const failure = failureOf(state, now)
  if (failure === null) return null
  const { reason, detail, status, since, attempts, askedBy } = failure
  return {
    reason,
    detail,
    ...(status !== null && { status }),
    since: formatInstant(since.bootMs, now),
    attempts,
    ...(askedBy !== null && { askedBy }),
  }
}

/** Another pair in the files, which is asked with. */
function describeCandidate(state: TokenState, now: Instant): NonNullable<StatusResult['candidate']> | null {
  const candidate = candidateOf(state, now)
  if (candidate === null) return null
  const { since, reason, detail, status, attempts, nextAttemptAtMs: nextMs } = candidate
  return {
    since: formatInstant(since.bootMs, now),
    reason,
    detail,
    ...(status !== null && { status }),
    attempts,
    nextAttemptAt: formatInstantOrNull(nextMs, now),
  }
}
