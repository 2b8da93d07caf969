// The wait for another token after a 401: each refused token is reported once, and one wait serves all calls.
import type { RejectResult } from '../protocol.ts'
import { TokenClientError } from './errors.ts'
import type { KnownTokens, Refusal } from './known-tokens.ts'
import type { ClientToken, TokenSource } from './token-source.ts'
import { monotonicMs } from '../lib/monotonic.ts'

/** The longest wait of a call for another token. */
const RENEWAL_WAIT_MS = 10_000
/** Between two reports of a token that the daemon is replacing, or that could not be reported. */
const REVIEW_MS = 2_000
/** The time from the daemon's request to the service until it has the answer. */
const ANSWER_MS = 1_000
/** Between two questions for another token where the daemon does not wait. */
const PAUSE_MS = 500

export interface RefusedTokens {
  /** Reports a token to which the service answered 401. */
  report(fingerprint: string): Promise<RejectResult>
  /** As `report`, but once for all calls to which the service answered 401. */
  onRefused(fingerprint: string): Promise<void>
  /**
   * The token itself, or, where it was refused, another one. Undefined where none comes within 10 s; with `onlyHope`,
   * at once where none can. Rejects with the signal's reason.
   */
  replace(
    token: ClientToken,
    options: { onlyHope?: boolean; signal: AbortSignal | undefined },
  ): Promise<ClientToken | undefined>
}

export function createRefusedTokens(options: {
  known: KnownTokens
  get: TokenSource['get']
  /** Sends the report. */
  reject: (fingerprint: string) => Promise<RejectResult>
}): RefusedTokens {
  const { known, get } = options
  const reports = new Map<string, Promise<unknown>>()
  const waits = new Map<string, Promise<ClientToken | undefined>>()

  async function report(fingerprint: string): Promise<RejectResult> {
    // Before the answer: no other call is to send the token meanwhile.
    known.refuse(fingerprint, { verdict: undefined, retryAtMs: Infinity })
    let result: RejectResult | undefined
    try {
      return (result = await options.reject(fingerprint))
    } finally {
      known.refuse(fingerprint, refusalOf(result))
    }
  }

  /** Reports the token, where that is due. After that it may be one that can be sent. */
  async function review(fingerprint: string): Promise<void> {
    const refusal = known.refusalOf(fingerprint)
    const isDue = refusal !== undefined && monotonicMs() >= reviewAtMs(refusal)
    if (isDue && refusal.verdict === 'unchanged') known.forgive(fingerprint)
    else if (isDue || reports.has(fingerprint))
      await shared(reports, fingerprint, () => report(fingerprint).catch(orUndefined))
  }

  /** Another token, or undefined where the daemon has none for now. */
  async function another(fingerprint: string, untilMs: number): Promise<ClientToken | undefined> {
    const leftMs = (): number => Math.max(0, untilMs - monotonicMs())
    const wait = { notFingerprint: fingerprint, waitSeconds: leftMs() / 1_000 }
    const token = await get(wait).catch(orUndefined)
    if (token !== undefined && token.fingerprint !== fingerprint) return token
    await new Promise((resolve) => setTimeout(resolve, Math.min(PAUSE_MS, leftMs())))
    return undefined
  }

  return {
    report,
    async onRefused(fingerprint) {
      if (known.refusalOf(fingerprint) === undefined)
        known.refuse(fingerprint, { verdict: undefined, retryAtMs: 0 })
      await review(fingerprint)
    },
    async replace(refused, { onlyHope = false, signal }) {
      const deadlineMs = monotonicMs() + RENEWAL_WAIT_MS
      let token = refused
      for (;;) {
        const { fingerprint } = token
        await within(review(fingerprint), deadlineMs, signal)
        const refusal = known.refusalOf(fingerprint)
        if (refusal === undefined) return token
        if (onlyHope && hopeAtMs(refusal) > deadlineMs) return undefined
        const untilMs = Math.min(deadlineMs, reviewAtMs(refusal))
        const waiting = shared(waits, fingerprint, () => another(fingerprint, untilMs))
        const other = await within(waiting, untilMs, signal)
        if (other !== undefined) token = other
        else if (monotonicMs() >= deadlineMs) return undefined
      }
    },
  }
}

function refusalOf(result: RejectResult | undefined): Refusal {
  const { verdict, retryAfterSeconds } = result ?? {}
  const isSoon = verdict === undefined || verdict === 'refreshing' || verdict === 'replaced'
  const afterMs = retryAfterSeconds === undefined ? RENEWAL_WAIT_MS : retryAfterSeconds * 1_000
  return { verdict, retryAtMs: monotonicMs() + (isSoon ? REVIEW_MS : afterMs) }
}

/** When the daemon is asked about the token again. */
function reviewAtMs({ verdict, retryAtMs }: Refusal): number {
  return verdict === 'held' ? retryAtMs + ANSWER_MS : retryAtMs
}

/** When another token may come, at the earliest. */
function hopeAtMs({ verdict, retryAtMs }: Refusal): number {
  if (verdict === 'unchanged' || verdict === 'refused') return Infinity
  return verdict === 'held' ? retryAtMs : 0
}

/** One promise for all that need it while it is under way. */
function shared<T>(promises: Map<string, Promise<T>>, key: string, create: () => Promise<T>): Promise<T> {
  const underWay = promises.get(key)
  if (underWay !== undefined) return underWay
  const promise = create().finally(() => promises.delete(key))
  promises.set(key, promise)
  return promise
}

/** After a 401 there is an answer to give back, whatever else fails. */
function orUndefined(error: unknown): undefined {
  if (!(error instanceof TokenClientError)) throw error
}

/** The promise's value, or undefined where it is not there at this time. Rejects with the signal's reason. */
function within<T>(
  promise: Promise<T>,
  untilMs: number,
  signal: AbortSignal | undefined,
): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal?.reason as Error)
    if (signal?.aborted === true) return onAbort()
    const timer = setTimeout(() => resolve(undefined), Math.max(0, untilMs - monotonicMs()))
    signal?.addEventListener('abort', onAbort)
    const end = (): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', onAbort)
    }
    promise.finally(end).then(resolve, reject)
  })
}
