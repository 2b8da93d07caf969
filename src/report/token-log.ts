// The log of the token: obtained, failing, recovered, expired. An outage is one record for each reason, and one
// with their count at its end.
import { formatInstant, formatInstantOrNull } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { RemedyOf } from '../host/remedy.ts'
import type { KeeperView } from '../token/keeper.ts'
import { dueAtMs, shownClock, usableToken, usableUntilMs } from '../token/selectors.ts'
import { recordOf, type Trouble } from '../token/state.ts'
import type { Attempted } from '../token/variable.ts'

/** Logs the keeper's events from now on. */
export function startTokenLog({
  keeper,
  log,
  remedyOf,
}: {
  keeper: KeeperView
  log: Log
  remedyOf: RemedyOf
}): void {
  /** The token that was usable at the last event. */
  let usable = usableToken(keeper.state(), keeper.now())
  /** Fingerprint of the token that was logged last. */
  let logged = usable?.fingerprint ?? ''
  /** Since when the outage lasts, its attempts, and the reasons that were logged; null: there is none. */
  let outage: (Pick<Trouble, 'since'> & { attempts: number; reasons: Set<string> }) | null = null

  function logAttempt({ outcome, cause, tookMs }: Attempted): void {
    log('debug', 'An attempt is over', { event: 'attempt', outcome: outcome.kind, cause, tookMs })
    if (outcome.kind === 'ok') logToken(cause, outcome.askedBy)
    else if (outcome.kind === 'transient') logFailure(cause)
    // A refusal is logged as an alert.
    else if (outcome.kind === 'permanent') outage = null
  }

  function logToken(cause: string, askedBy?: string): void {
    if (outage !== null) {
      const { attempts: failedAttempts, since } = outage
      const failedForSeconds = Math.round((keeper.now().bootMs - since.bootMs) / 1000)
      const fields = { event: 'recovered', failedAttempts, failedForSeconds }
      log('notice', 'The service gives tokens again', fields)
    }
    outage = null
    const { token, generation } = keeper.state()
    // A service may give the same token again and again.
    if (token === null || token.fingerprint === logged) return
    logged = token.fingerprint
    const shown = shownClock(keeper.state())
    log('info', 'Token obtained', {
      event: 'token-obtained',
      cause,
      askedBy,
      fingerprint: logged,
      generation,
      expiresAt: formatInstant(token.expiresAtMs, shown),
      nextRefreshAt: formatInstant(token.refreshAtMs, shown),
    })
  }

  function logFailure(cause: string): void {
    const now = keeper.now()
    const state = keeper.state()
    const { failure, attempts } = recordOf(state, state.running)
    if (failure === null) return
    const { reason, detail, status, since } = failure
    const reasons = outage?.reasons ?? new Set()
    outage = { since, attempts, reasons }
    if (reasons.has(reason)) return
    reasons.add(reason)
    log('warning', 'Fetching a token failed', {
      event: 'fetch-failed',
      reason,
      detail,
      status,
      cause,
      attempts,
      nextAttemptAt: formatInstantOrNull(dueAtMs(state, now), now),
      tokenUsableUntil: formatInstantOrNull(usableUntilMs(state, now), now),
      remedy: remedyOf(reason),
    })
  }

  /** Logs that the token has expired, which time alone brings. */
  function logExpiry(): void {
    const now = keeper.now()
    const state = keeper.state()
    const before = usable
    usable = usableToken(state, now)
    // Without a token a reload has dropped it, with its service. One may have shortened its life.
    if (usable !== null || before === null || state.token === null) return
    log('error', 'The token has expired, and there is no other', {
      event: 'token-expired',
      fingerprint: state.token.fingerprint,
      expiredAt: formatInstantOrNull(usableUntilMs(state, now), now),
    })
  }

  keeper.onEvent((event) => {
    logExpiry()
    if (event.type === 'attempted') logAttempt(event)
  })
}
