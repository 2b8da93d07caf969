// The rules about what is handed out, and about the alert that there is no token. Instants are in ms.
import { checkWith, type Broke } from './rules.ts'

const TICK_MS = 15_000

/** A token as it is handed out. `endsMs` infinite: it does not say its end. */
export interface Handed {
  readonly text: string
  readonly generation: number
  readonly endsMs: number
}

/** The tokens that one host hands out for one account. */
export function createHanded(broke: Broke, { grainMs }: { grainMs: number }) {
  const check = checkWith(broke)
  let newest: Handed | null = null
  return {
    hand(token: Handed, nowMs: number): void {
      check(token.endsMs > nowMs - grainMs, 'expired')
      const { generation, text } = newest ?? token
      check(token.generation >= generation, 'older')
      check(token.text === text || token.generation !== generation, 'number')
      newest = token
    },
    /** A process that ended has forgotten it. */
    forget(): void {
      newest = null
    },
  }
}

/** `state` and the alert as an operator sees them. */
export interface Shown {
  readonly hasToken: boolean
  readonly hasFailed: boolean
  readonly isRefused: boolean
  readonly isRejected: boolean
  /** The reason of the alert that stands; null: none does. */
  readonly alert: string | null
}

/** A time without a token that was spent awake: it is between these, in ms. */
export interface Tokenless {
  readonly least: number
  readonly most: number
}

/** Counts that time from what is seen now and then. */
export function createTokenless(awakeMs: number) {
  let [least, most] = [0, 0]
  let seenMs = awakeMs
  let had = false
  return {
    /** `endedAgoMs`: at most so long ago the last token ended; 0: nobody knows. */
    seen(
      hasToken: boolean,
      { awakeMs: atMs, endedAgoMs }: { awakeMs: number; endedAgoMs: number },
    ): Tokenless {
      const elapsedMs = atMs - seenMs
      seenMs = atMs
      if (hasToken) [least, most] = [0, 0]
      else if (had) [least, most] = [Math.min(elapsedMs, endedAgoMs), elapsedMs]
      else [least, most] = [least + elapsedMs, most + elapsedMs]
      had = hasToken
      return { least, most }
    },
    /** There was a token since it was last seen, or what was counted may be lost. */
    unsure(): void {
      least = 0
      had = false
    },
    /** The clock begins again; what was counted may have been saved. */
    reboot(atMs: number): void {
      ;[least, seenMs, had] = [0, atMs, false]
    },
  }
}

/** The alert that an operator sees, against the time without a token that was spent awake. */
export function checkAlert(
  { hasToken, hasFailed, isRefused, isRejected, alert }: Shown,
  { least, most, noTokenAfterMs }: Tokenless & { readonly noTokenAfterMs: number },
  broke: Broke,
): void {
  const check = checkWith(broke)
  if (isRefused) check(alert?.startsWith('account-') === true, 'alert-missing', 'refused')
  if (isRejected) check(alert !== null, 'alert-missing', 'rejected')
  if (alert === 'no-token') {
    check(!hasToken, 'alert-stays', 'there is a token')
    check(!isRefused && !isRejected, 'alert-rank')
    check(most >= noTokenAfterMs - TICK_MS, 'alert-early', `after ${most} ms`)
  }
  const isLong = !hasToken && hasFailed && least > noTokenAfterMs + 2 * TICK_MS
  if (isLong) check(alert !== null, 'alert-missing', `no token for ${least} ms`)
}
