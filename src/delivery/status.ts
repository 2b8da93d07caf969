// The status and the token's description as clients see them: pure functions of the keeper's state.
import { formatInstant, formatInstantOrNull, type Instant } from '../lib/clock.ts'
import { formatSetting } from '../lib/duration.ts'
import { STANDARD_USE, type StatusResult, type TokenDescription } from '../protocol.ts'
import {
  dueAtMs,
  isAsking,
  isStale,
  phaseOf,
  refusalOf,
  trialDueAtMs,
  usableToken,
  type TokenState,
} from '../token/state.ts'
import { fittingMaxAgeMs } from '../token/client-requests.ts'
import type { CurrentAlert } from '../token/current-alert.ts'
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
  const { received } = token
  return {
    tokenType: state.use.prefix === STANDARD_USE.prefix ? 'Bearer' : null,
    ...state.use,
    obtainedAt: formatInstant(received.bootMs, received),
    expiresAt: formatInstant(token.expiresAtMs, received),
    expirySource: token.expirySource,
    baseUrl: token.baseUrl,
    refusedBy: state.refusedBy,
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
  return {
    state: phaseOf(state, now),
    token: describeCurrent(state, now),
    failure: describeFailure(state, now),
    nextAttemptAt: formatNextAttempt(state, now),
    candidate: describeCandidate(state, now),
    ...describeEarlyEnds(state),
    alert: describeAlert(sources.alert(), now),
    files: sources.files(),
    clients: sources.clients(),
    service: {
      baseUrl: state.baseUrl,
      lastRequestAt: format(state.lastRequestAt),
      lastSuccessAt: format(state.lastSuccessAt),
      requests: state.requests,
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

/** A refusal counts as one attempt, a postponement (a wait for another host or the store) as none. */
function describeFailure(state: TokenState, now: Instant): StatusResult['failure'] {
  const { failure, postponement } = state
  const refusal = refusalOf(state)
  const shown =
    (refusal && { ...refusal, attempts: 1 }) ??
    (failure && { ...failure, askedBy: null }) ??
    (postponement && { ...postponement, status: null, attempts: 0 })
  if (shown === null) return null
  const { reason, detail, status, since, attempts, askedBy } = shown
  return {
    reason,
    detail,
    ...(status !== null && { status }),
    since: formatInstant(since.bootMs, now),
    attempts,
    ...(askedBy !== null && { askedBy }),
  }
}

/** Another pair in the files, which is tried. */
function describeCandidate(state: TokenState, now: Instant): NonNullable<StatusResult['candidate']> | null {
  const { candidate, inFlight } = state
  if (candidate === null) return null
  const { credentialsId, since, failure } = candidate
  const status = failure?.status ?? null
  const nextAtMs =
    inFlight?.credentialsId === credentialsId
      ? inFlight.since.bootMs
      : Math.max(trialDueAtMs(state), now.bootMs)
  return {
    since: formatInstant(since.bootMs, now),
    reason: failure?.reason ?? null,
    detail: failure?.detail ?? null,
    ...(status !== null && { status }),
    attempts: failure?.attempts ?? 0,
    nextAttemptAt: formatInstantOrNull(nextAtMs, now),
  }
}

function describeEarlyEnds({ endedEarlyMs }: TokenState): Pick<StatusResult, 'tokensEndEarly'> {
  if (endedEarlyMs.length === 0) return {}
  const agesSeconds = endedEarlyMs.map((ageMs) => Math.round(ageMs / 1_000))
  return { tokensEndEarly: { agesSeconds, maxAge: formatSetting(fittingMaxAgeMs(endedEarlyMs)) } }
}

/** While an attempt is under way, it is shown as the next one. */
function formatNextAttempt(state: TokenState, now: Instant): string | null {
  if (state.inFlight !== null && isAsking(state)) return formatInstant(state.inFlight.since.bootMs, now)
  return formatInstantOrNull(Math.max(dueAtMs(state), now.bootMs), now)
}
