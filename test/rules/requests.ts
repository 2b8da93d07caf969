// The rules about requests, of one host or of a fleet as one client: what it knows of each account decides
// when it may ask. All instants are on one clock, in ms.
import type { Cause, ServiceOutcome } from '../../src/token/outcome.ts'
import { checkWith, type Broke } from './rules.ts'

const CLIENT_PACE_MS = 30_000
const MAX_CLIENT_PACE_MS = 120_000
const REJECTED_PACE_MS = 300_000
/** The cap of the backoff without a token, and the least that `maxDelay` can be with one. */
const CAP_MS = 60_000
const INITIAL_DELAY_MS = 1_000
/** No token is replaced by a plan before this part of its life is over: half of it, or two thirds less 10 %. */
const LEAST_SHARE = 1 / 2

/** What is known of one account: one pair of credentials at one address. */
export interface Account {
  isRefused: boolean
  /** By the service's own words (`Retry-After`). */
  notBeforeMs: number
  rejectedUntilMs: number
  failures: number
  /** Rest of the token's life at the last failure: no wait is longer. */
  leftMs: number
  answeredMs: number
  /** When somebody last did something that may have it asked once, whatever is known. */
  actedMs: number
  /** When it was asked last for each cause. */
  readonly askedMs: Partial<Record<Cause, number>>
}

/** The causes that begin with what somebody did: an operator, a client, who starts, reloads or writes files. */
const WISHES = ['operator', 'client', 'reload', 'start'] as const
export type Wish = (typeof WISHES)[number]

/** The token that was given last, for the pace of clients and for reasons. */
interface Given {
  readonly atMs: number
  readonly lifeMs: number
  readonly isOfClients: boolean
  isReported: boolean
}

export type Requests = ReturnType<typeof createRequests>

/** `grainMs`: the clocks of the world go in steps of so much. */
export function createRequests(broke: Broke, { grainMs = 0 } = {}) {
  const check = checkWith(broke)
  const accounts = new Map<string, Account>()
  let maxDelayMs = CAP_MS
  let clientAskedMs = -Infinity
  /** Tokens in a row that clients asked for and reported. */
  let reportedInARow = 0
  let given: Given | null = null
  /** The request that is under way, and when it went out. */
  let askedMs = -Infinity
  /** The process began with a good token, and nothing stood against it. */
  let hasKeptToken = false
  /** The wall clock was set: one refresh may be due for it. */
  let isClockSet = false
  /** When each was last wished. */
  const wished: Partial<Record<Cause, number>> = {}

  function of(name: string): Account {
    const known = accounts.get(name) ?? {
      isRefused: false,
      notBeforeMs: -Infinity,
      rejectedUntilMs: -Infinity,
      failures: 0,
      leftMs: Infinity,
      answeredMs: -Infinity,
      actedMs: -Infinity,
      askedMs: {},
    }
    accounts.set(name, known)
    return known
  }

  /** A plan needs a token that is old enough, a wish somebody, and a retry a failure. */
  function checkReason(account: Account, { cause, atMs }: { cause: Cause; atMs: number }): void {
    const isWish = WISHES.some((wish) => wish === cause)
    const since = account.askedMs[cause] ?? -Infinity
    check(!isWish || (wished[cause] ?? -Infinity) >= Math.max(since, -Number.MAX_VALUE), 'reason', cause)
    account.askedMs[cause] = atMs
    if (cause !== 'refresh' || given === null) return
    const ageMs = atMs - given.atMs
    const isForClock = isClockSet
    isClockSet = false
    if (isForClock) return
    check(ageMs >= given.lifeMs * LEAST_SHARE - grainMs, 'reason', `refresh at ${ageMs} ms`)
  }

  const clientPaceMs = (): number =>
    Math.min(MAX_CLIENT_PACE_MS, CLIENT_PACE_MS * 2 ** Math.max(0, reportedInARow - 1))

  function checkClients(atMs: number): void {
    const agoMs = atMs - clientAskedMs
    check(agoMs >= clientPaceMs() - grainMs, 'client-pace', `${agoMs} ms, not ${clientPaceMs()}`)
    clientAskedMs = atMs
  }

  function checkBackoff(account: Account, { cause, atMs }: { cause: Cause; atMs: number }): void {
    const { failures, leftMs, answeredMs } = account
    if (failures === 0) return
    const delayMs = Math.min(CAP_MS, maxDelayMs, leftMs, INITIAL_DELAY_MS * 2 ** (failures - 1)) / 2
    const agoMs = atMs - answeredMs
    if (agoMs >= delayMs - grainMs) return
    check(account.actedMs > -Infinity, 'backoff', `${agoMs} ms after failure ${failures}, ${cause}`)
    Object.assign(account, { actedMs: -Infinity, failures: 0 })
  }

  return {
    accounts,
    of,
    /** Somebody has acted: these accounts, or all, may be asked once more. Waits of the service hold. */
    acted(atMs: number, names: Iterable<string> = accounts.keys()): void {
      for (const name of names) Object.assign(of(name), { isRefused: false, actedMs: atMs })
    },
    /** Somebody wants a request for this cause: each wish is good for one. */
    wish(cause: Wish, atMs: number): void {
      wished[cause] = atMs
    },
    clockWasSet(): void {
      isClockSet = true
    },
    /** A process starts. `hasGoodToken`: it is kept, good, and of the pair in the files; no alert stands. */
    started(atMs: number, { hasGoodToken }: { hasGoodToken: boolean }): void {
      wished.start = atMs
      hasKeptToken = hasGoodToken
    },
    /** The backoff has this cap from now on. */
    setMaxDelay(ms: number): void {
      maxDelayMs = ms
    },
    /** A request goes out. `isTrial`: with a pair that is not in use. */
    asked(name: string, { cause, atMs, isTrial }: { cause: Cause; atMs: number; isTrial: boolean }): void {
      askedMs = atMs
      const account = of(name)
      if (cause === 'client') checkClients(atMs)
      checkReason(account, { cause, atMs })
      check(cause !== 'start' || !hasKeptToken, 'restart')
      hasKeptToken = false
      if (cause === 'operator') return
      check(!account.isRefused, 'refused', cause)
      check(atMs >= account.notBeforeMs - grainMs, 'asked-for-wait', cause)
      check(isTrial || atMs >= account.rejectedUntilMs - grainMs, 'rejected-pace', cause)
      checkBackoff(account, { cause, atMs })
    },
    /**
     * The answer. `leftMs`: what is left of the token that is held, Infinity without one; `lifeMs`: of the
     * token that it brings, at least so much.
     */
    answered(
      name: string,
      outcome: ServiceOutcome,
      facts: { atMs: number; leftMs: number; lifeMs?: number; isTrial: boolean; cause?: Cause },
    ): void {
      const { atMs, leftMs, lifeMs = 0, isTrial, cause } = facts
      const account = of(name)
      account.answeredMs = atMs
      account.isRefused = outcome.kind === 'permanent' && account.actedMs <= askedMs
      // Another pair that lies in the files is tried first.
      if (isAboutPair(outcome)) for (const other of accounts.values()) other.actedMs = atMs
      if (outcome.kind === 'permanent') account.failures = 0
      else if (outcome.kind === 'ok') {
        Object.assign(account, { failures: 0, notBeforeMs: -Infinity, rejectedUntilMs: -Infinity })
        if (given !== null && !given.isReported && isPastHalf(given, atMs)) reportedInARow = 0
        given = { atMs, lifeMs, isOfClients: cause === 'client', isReported: false }
      } else {
        account.leftMs = Math.max(INITIAL_DELAY_MS, leftMs)
        account.failures += 1
        const { reason, retryAfterMs = 0 } = outcome
        if (retryAfterMs > 0) account.notBeforeMs = Math.max(account.notBeforeMs, atMs + retryAfterMs)
        // The pace is the running pair's. A wait that would end after the token ends in its last tenth.
        if (reason === 'rejected' && !isTrial)
          account.rejectedUntilMs = atMs + Math.min(REJECTED_PACE_MS, account.leftMs / 2)
      }
    },
    /** The process ended before the answer: the request counts as failed when it went out. */
    cutShort(name: string, { askedMs: atMs, leftMs }: { askedMs: number; leftMs: number }): void {
      const account = of(name)
      const failures = account.failures + 1
      Object.assign(account, { failures, answeredMs: atMs, leftMs: Math.max(INITIAL_DELAY_MS, leftMs) })
    },
    /** A client reports the token that is served. */
    reported(atMs: number): void {
      if (given === null || given.isReported) return
      given.isReported = true
      // Of a token that was unreported for long it is not certain whether it ended the row.
      reportedInARow = isPastHalf(given, atMs) ? 0 : reportedInARow + (given.isOfClients ? 1 : 0)
    },
    /** What a process knew that its disk could not take, or that a reboot has made uncertain. */
    forgetClients(): void {
      ;[clientAskedMs, reportedInARow, given] = [-Infinity, 0, null]
    },
    /** The token is dropped, or replaced in a way that the rules do not follow. */
    forgetToken(): void {
      given = null
      reportedInARow = 0
    },
    forgetAll(): void {
      accounts.clear()
      ;[clientAskedMs, reportedInARow, given] = [-Infinity, 0, null]
    },
  }
}

/** The service said no to the pair itself: another pair would have had another outcome. */
const isAboutPair = (outcome: ServiceOutcome): boolean =>
  outcome.kind === 'permanent' || (outcome.kind === 'transient' && outcome.reason === 'rejected')

/** A token that stays unreported for half its plan, which is at least half its life, ends the row. */
function isPastHalf({ atMs, lifeMs }: Given, nowMs: number): boolean {
  return nowMs - atMs >= (lifeMs * LEAST_SHARE) / 2
}
