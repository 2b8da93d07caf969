// The rules about the requests of one host: what it knows of each account decides when it may ask. All instants are on
// one clock, in ms. That each request has a cause, and the row of reported tokens, the exploration checks.
import type { Cause, ServiceOutcome } from '../../src/token/outcome.ts'
import { checkWith, type Broke } from './rules.ts'

const CLIENT_PACE_MS = 30_000
const REJECTED_PACE_MS = 300_000
/** The cap of the backoff without a token, and the least that `maxDelay` can be with one. */
const CAP_MS = 60_000
const INITIAL_DELAY_MS = 1_000

/** What is known of one account: one pair of credentials at one address. */
interface Account {
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
}
const UNKNOWN: Account = {
  isRefused: false,
  notBeforeMs: -Infinity,
  rejectedUntilMs: -Infinity,
  failures: 0,
  leftMs: Infinity,
  answeredMs: -Infinity,
  actedMs: -Infinity,
}

/** `grainMs`: the clocks of the world go in steps of so much. */
export function createRequests(broke: Broke, { grainMs }: { grainMs: number }) {
  const check = checkWith(broke)
  const accounts = new Map<string, Account>()
  let maxDelayMs = CAP_MS
  let clientAskedMs = -Infinity
  /** The request that is under way, and when it went out. */
  let askedMs = -Infinity

  function of(name: string): Account {
    const account = accounts.get(name) ?? { ...UNKNOWN }
    accounts.set(name, account)
    return account
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
    /** The backoff has this cap from now on. */
    setMaxDelay(ms: number): void {
      maxDelayMs = ms
    },
    /** A request goes out. `isTrial`: with a pair that is not in use. */
    asked(name: string, { cause, atMs, isTrial }: { cause: Cause; atMs: number; isTrial: boolean }): void {
      askedMs = atMs
      const account = of(name)
      if (cause === 'client') {
        check(atMs >= clientAskedMs + CLIENT_PACE_MS - grainMs, 'client-pace', `${atMs - clientAskedMs} ms`)
        clientAskedMs = atMs
      }
      if (cause === 'operator') return
      check(!account.isRefused, 'refused', cause)
      check(atMs >= account.notBeforeMs - grainMs, 'asked-for-wait', cause)
      check(isTrial || atMs >= account.rejectedUntilMs - grainMs, 'rejected-pace', cause)
      checkBackoff(account, { cause, atMs })
    },
    /** The answer. `leftMs`: what is left of the token that is held, Infinity without one. */
    answered(
      name: string,
      outcome: ServiceOutcome,
      { atMs, leftMs, isTrial }: { atMs: number; leftMs: number; isTrial: boolean },
    ): void {
      const account = of(name)
      account.answeredMs = atMs
      account.isRefused = outcome.kind === 'permanent' && account.actedMs <= askedMs
      // Another pair that lies in the files is tried first.
      const isRejected = outcome.kind === 'transient' && outcome.reason === 'rejected'
      if (outcome.kind === 'permanent' || isRejected)
        for (const other of accounts.values()) other.actedMs = atMs
      if (outcome.kind === 'permanent') account.failures = 0
      else if (outcome.kind === 'ok')
        Object.assign(account, { failures: 0, notBeforeMs: -Infinity, rejectedUntilMs: -Infinity })
      else {
        account.leftMs = Math.max(INITIAL_DELAY_MS, leftMs)
        account.failures += 1
        const { retryAfterMs = 0 } = outcome
        if (retryAfterMs > 0) account.notBeforeMs = Math.max(account.notBeforeMs, atMs + retryAfterMs)
        // The pace is the running pair's. A wait that would end after the token ends in its last tenth.
        if (isRejected && !isTrial)
          account.rejectedUntilMs = atMs + Math.min(REJECTED_PACE_MS, account.leftMs / 2)
      }
    },
    /** What a process knew that its disk could not take, or that a reboot has made uncertain. */
    forgetAll(): void {
      accounts.clear()
      clientAskedMs = -Infinity
    },
  }
}
