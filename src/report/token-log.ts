// Logs what happens to the token: obtained, failing, recovered, expired. An outage makes a few records.
import { formatInstant, formatInstantOrNull, type Instant } from '../lib/clock.ts'
import { HOUR_MS } from '../lib/duration.ts'
import type { Log } from '../lib/log.ts'
import type { RemedyOf } from '../host/remedy.ts'
import type { PermanentFailure } from '../token/outcome.ts'
import {
  failureOf,
  isStale,
  nextAttemptAtMs,
  refusalOf,
  usableToken,
  usableUntilMs,
  type FailureView,
} from '../token/selectors.ts'
import type { Token } from '../token/token.ts'
import type { Attempted, KeeperView } from '../token/keeper.ts'

/** The failures of the current outage. */
interface Outage {
  readonly logged: Set<FailureView['reason']>
  last: FailureView
  /** Until then a reason that was logged is not logged again. */
  quietUntilMs: number
  /** The length of the next such time. */
  quietMs: number
}

/** The same failure is logged again after 1 min, then after twice as long each time, at most an hour. */
const QUIET_MS = { first: 60_000, most: HOUR_MS }

export function createTokenLog({
  keeper,
  log,
  remedyOf,
}: {
  keeper: KeeperView
  log: Log
  remedyOf: RemedyOf
}) {
  /** The token that was usable at the last event. */
  let usable: Token | null = null
  let staleLogged = ''
  let obtained = ''
  let outage: Outage | null = null
  /** The refusal that was logged. */
  let refused: string | null = null

  function logAttempt({ outcome, cause, tookMs }: Attempted): void {
    log('debug', 'An attempt is over', { event: 'attempt', outcome: outcome.kind, cause, tookMs })
    if (outcome.kind === 'ok') logToken(cause, outcome.askedBy)
    else if (outcome.kind === 'transient') logFailure(cause)
    else if (outcome.kind === 'permanent') logRefusal(outcome, cause)
    refused = refusalOf(keeper.state())?.reason ?? null
  }

  function logToken(cause: string, askedBy?: string): void {
    logRecovery()
    const { token } = keeper.state()
    if (token === null) return
    const fields = { cause, ...(askedBy !== undefined && { askedBy }), ...lifeFields(token) }
    if (token.fingerprint === obtained)
      log('info', 'The service gave the same token again', { event: 'token-unchanged', ...fields })
    else log('info', 'Token obtained', { event: 'token-obtained', ...fields })
    obtained = token.fingerprint
  }

  const secondsSince = ({ bootMs }: Instant): number => Math.round((keeper.now().bootMs - bootMs) / 1000)

  function logRecovery(): void {
    if (outage === null) return
    const { attempts, since } = outage.last
    outage = null
    log('notice', 'The service gives tokens again', {
      event: 'recovered',
      failedAttempts: attempts,
      failedForSeconds: secondsSince(since),
    })
  }

  function logFailure(cause: string): void {
    const now = keeper.now()
    const failure = failureOf(keeper.state(), now)
    if (failure === null) return
    const isFirst = outage === null
    outage ??= { logged: new Set(), last: failure, quietUntilMs: 0, quietMs: QUIET_MS.first }
    outage.last = failure
    const { reason, detail, status, attempts, since, retryAtMs } = failure
    const isKnown = outage.logged.has(reason)
    if (isKnown && now.bootMs < outage.quietUntilMs) return
    outage.logged.add(reason)
    outage.quietUntilMs = now.bootMs + outage.quietMs
    outage.quietMs = Math.min(QUIET_MS.most, outage.quietMs * 2)
    log('warning', isFirst ? 'Fetching a token failed' : 'Fetching a token still fails', {
      event: 'fetch-failed',
      reason,
      detail,
      status,
      cause,
      attempts,
      failingForSeconds: secondsSince(since),
      nextAttemptAt: formatInstant(retryAtMs, now),
      tokenUsableUntil: tokenUsableUntil(),
      remedy: isKnown ? null : remedyOf(reason),
    })
  }

  /** Logs a repeated refusal; the first one is logged as an alert. */
  function logRefusal({ reason, detail, status }: PermanentFailure, cause: string): void {
    outage = null
    if (refused !== reason) return
    log('warning', 'The service still refuses the account', {
      event: 'refused',
      reason,
      detail,
      status,
      cause,
      tokenUsableUntil: tokenUsableUntil(),
    })
  }

  function tokenUsableUntil(): string | null {
    const now = keeper.now()
    return formatInstantOrNull(usableUntilMs(keeper.state(), now), now)
  }

  /** Changes that time alone brings. */
  function logElapsed(): void {
    const now = keeper.now()
    const state = keeper.state()
    const before = usable
    usable = usableToken(state, now)
    if (usable === null) {
      // Without a token a reload has dropped it, with its service. One may have shortened its life.
      if (before !== null && state.token !== null) logExpiry(state.token)
    } else if (usable.fingerprint !== staleLogged && isStale(usable, now)) {
      staleLogged = usable.fingerprint
      log('warning', 'The token is past the life assumed for it, and is handed out all the same', {
        event: 'token-stale',
        fingerprint: usable.fingerprint,
        usableUntil: tokenUsableUntil(),
      })
    }
  }

  function logExpiry(token: Token): void {
    const state = keeper.state()
    const now = keeper.now()
    log('error', 'The token has expired, and there is no other', {
      event: 'token-expired',
      fingerprint: token.fingerprint,
      expiredAt: formatInstantOrNull(usableUntilMs(state, now), now),
      reason: failureOf(state, now)?.reason ?? null,
      nextAttemptAt: formatInstantOrNull(nextAttemptAtMs(state, now), now),
    })
  }

  return {
    /** Logs the keeper's events until the signal is aborted. */
    async run(signal: AbortSignal): Promise<void> {
      usable = usableToken(keeper.state(), keeper.now())
      refused = refusalOf(keeper.state())?.reason ?? null
      if (usable !== null) {
        obtained = usable.fingerprint
        log('info', 'A token from before the restart is good and served', {
          event: 'token-kept',
          ...lifeFields(usable),
        })
      }
      await keeper.listenUntil(signal, (event) => {
        logElapsed()
        if (event.type === 'attempted') logAttempt(event)
      })
    },
  }
}

function lifeFields(token: Token): Record<string, unknown> {
  const { fingerprint, generation, expirySource, received } = token
  return {
    fingerprint,
    generation,
    expiresAt: formatInstant(token.expiresAtMs, received),
    expirySource,
    nextRefreshAt: formatInstant(token.refreshAtMs, received),
  }
}
