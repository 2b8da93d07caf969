// The story of the token in the log: obtained, failing, recovered, refused, expired. An outage is a few records, not a flood.
import { tellInstant, tellInstantIfAny } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { KeeperEvent } from '../token/keeper.ts'
import type { PermanentFailure, TransientReason } from '../token/outcome.ts'
import { remedyFor } from '../token/remedy.ts'
import { dueAtMs, failureOf, heldToken, isStale, usableToken, usableUntilMs } from '../token/state.ts'
import type { Token } from '../token/token.ts'
import { follow, type Watched } from './follow.ts'

/** What has been told of the failures that stand. */
interface Episode {
  readonly reasons: Set<TransientReason>
  toldAtMs: number
  /** How long the same is not told again. */
  quietMs: number
}

/** The same failure is told again after 1 min, then after twice as long each time, and at least once an hour. */
const QUIET_MS = { first: 60_000, most: 3_600_000 }

type Attempted = Extract<KeeperEvent, { type: 'attempted' }>

export interface Narrator {
  /** Tells what the keeper does, until the signal is aborted. */
  run(signal: AbortSignal): Promise<void>
}

export function createNarrator({ keeper, log }: { keeper: Watched; log: Log }): Narrator {
  /** The token that was usable when last looked at. */
  let usable: Token | null = null
  let staleTold = ''
  let obtained = ''
  let failing: Episode | null = null
  let failures = { attempts: 0, sinceMs: 0 }

  function tellAttempt({ outcome, cause, tookMs }: Attempted): void {
    log('debug', 'An attempt is over', { event: 'attempt', outcome: outcome.kind, cause, tookMs })
    if (outcome.kind === 'ok') tellToken(cause)
    else if (outcome.kind === 'transient') tellFailure(cause)
    else tellRefusal(outcome, cause)
  }

  function tellToken(cause: string): void {
    tellRecovery()
    const token = heldToken(keeper.state())
    if (token === null) return
    if (token.fingerprint === obtained) {
      log('info', 'The service gave the same token again', {
        event: 'token-unchanged',
        cause,
        ...tellLife(token),
      })
    } else {
      log('info', 'Token obtained', { event: 'token-obtained', cause, ...tellLife(token) })
    }
    obtained = token.fingerprint
  }

  function tellLife(token: Token): Record<string, unknown> {
    const { fingerprint, generation, expirySource } = token
    const now = keeper.now()
    const expiresAt = tellInstant(token.expiresAtMs, now)
    return {
      fingerprint,
      generation,
      expiresAt,
      expirySource,
      nextRefreshAt: tellInstant(token.refreshAtMs, now),
    }
  }

  function tellRecovery(): void {
    if (failing === null) return
    failing = null
    log('notice', 'The service gives tokens again', {
      event: 'recovered',
      failedAttempts: failures.attempts,
      failedForSeconds: seconds(keeper.now().bootMs - failures.sinceMs),
    })
  }

  function tellFailure(cause: string): void {
    const failure = failureOf(keeper.state())
    if (failure === null) return
    const now = keeper.now()
    const { reason, detail, status, attempts } = failure
    failures = { attempts, sinceMs: failure.since.bootMs }
    const first = failing === null
    failing ??= { reasons: new Set(), toldAtMs: now.bootMs, quietMs: QUIET_MS.first / 2 }
    const isKnown = failing.reasons.has(reason)
    if (isKnown && now.bootMs < failing.toldAtMs + failing.quietMs) return
    failing.reasons.add(reason)
    failing.toldAtMs = now.bootMs
    failing.quietMs = Math.min(QUIET_MS.most, failing.quietMs * 2)
    log('warning', first ? 'Fetching a token failed' : 'Fetching a token still fails', {
      event: 'fetch-failed',
      reason,
      detail,
      status,
      cause,
      attempts,
      failingForSeconds: seconds(now.bootMs - failure.since.bootMs),
      nextAttemptAt: tellInstant(failure.retryAtMs, now),
      tokenUsableUntil: tokenUsableUntil(),
      remedy: isKnown ? null : remedyFor(reason),
    })
  }

  function tellRefusal({ reason, detail, status }: PermanentFailure, cause: string): void {
    failing = null
    log('error', 'The service refuses the account, and is not asked again until somebody acts', {
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
    const token = usableToken(keeper.state(), now)
    return token && tellInstant(usableUntilMs(token), now)
  }

  /** What time alone brings about, and a reload. */
  function look(): void {
    const now = keeper.now()
    const state = keeper.state()
    const before = usable
    usable = usableToken(state, now)
    if (usable === null && before !== null) tellGone(before)
    if (usable === null || usable.fingerprint === staleTold || !isStale(usable, now)) return
    staleTold = usable.fingerprint
    log('warning', 'The token is past the life assumed for it, and is handed out all the same', {
      event: 'token-stale',
      fingerprint: usable.fingerprint,
      usableUntil: tellInstant(usableUntilMs(usable), now),
    })
  }

  function tellGone(token: Token): void {
    const state = keeper.state()
    const now = keeper.now()
    const { fingerprint } = token
    if (heldToken(state) === null) {
      log('notice', 'The token was dropped, because another service is asked now', {
        event: 'token-dropped',
        fingerprint,
        baseUrl: state.baseUrl,
      })
      return
    }
    log('error', 'The token has expired, and there is no other', {
      event: 'token-expired',
      fingerprint,
      expiredAt: tellInstant(usableUntilMs(token), now),
      reason: state.kind === 'refused' ? state.refusal.reason : (failureOf(state)?.reason ?? null),
      nextAttemptAt: tellInstantIfAny(dueAtMs(state), now),
    })
  }

  return {
    async run(signal) {
      usable = usableToken(keeper.state(), keeper.now())
      if (usable !== null) {
        obtained = usable.fingerprint
        log('info', 'A token from before the restart is good and served', {
          event: 'token-kept',
          ...tellLife(usable),
        })
      }
      await follow(keeper, signal, (event) => {
        look()
        if (event.type === 'attempted') tellAttempt(event)
      })
    },
  }
}

function seconds(ms: number): number {
  return Math.round(ms / 1000)
}
