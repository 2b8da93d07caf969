// The methods of a client, over any link to a daemon.
import { monotonicMs } from '../lib/clock.ts'
import { raceAbort } from '../lib/tasks.ts'
import {
  fingerprintOf,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
  type RejectResult,
  type StatusResult,
} from '../protocol.ts'
import { ANSWER_MS, timeoutError, type Link, type View } from './link.ts'
import { createAuthorize, createFetch } from './refused-calls.ts'
import {
  badRequest,
  type ClientOptions,
  type ClientToken,
  type GetOptions,
  type TokenClientError,
  type TokenSource,
} from './token-source.ts'

const DEFAULT_WAIT_SECONDS = 10
/** Of a timer that keeps a process alive: the longest interval that there is. */
const FOR_EVER_MS = 2 ** 31 - 1

/** Throws TypeError if one of `origins` is no URL. */
export function createSource({ name, origins }: ClientOptions, link: Link): TokenSource {
  /** Requests for a longer life that are under way, by that life and the wait. */
  const asked = new Map<string, Promise<ClientToken>>()
  const { authorize, report, wasReported } = createAuthorize(get, (fingerprint) =>
    link.ask<RejectResult>('token.reject', { fingerprint, client: name }),
  )

  /** The token in memory, if it is as good as that. Its life is counted on two clocks: one may be set. */
  function remembered(
    view: View,
    { minValidSeconds = 0, notFingerprint }: GetOptions,
  ): ClientToken | undefined {
    const { token, expiresAtMs = 0, isLive } = view
    if (token === undefined || token.fingerprint === notFingerprint) return undefined
    const leftMs = Math.min(Date.parse(token.expiresAt) - Date.now(), expiresAtMs - monotonicMs())
    if (leftMs <= 0 || leftMs < minValidSeconds * 1_000) return undefined
    if (isLive) return token
    return wasReported(token) ? undefined : { ...token, cached: true }
  }

  /** Asks the daemon for a token that lives so long. Callers with the same need share a request. */
  function askLonger({ minValidSeconds = 0, waitSeconds }: GetOptions, leftMs: number): Promise<ClientToken> {
    const need = [minValidSeconds, waitSeconds].join()
    const underWay = asked.get(need)
    if (underWay !== undefined) return underWay
    const waitMs = Math.max(0, leftMs)
    const data = { minValidSeconds, waitSeconds: waitMs / 1_000, client: name }
    const answer = link
      .ask<ClientToken>('token.get', data, waitMs + ANSWER_MS)
      .finally(() => asked.delete(need))
    asked.set(need, answer)
    return answer
  }

  async function get(options: GetOptions = {}): Promise<ClientToken> {
    const { minValidSeconds = 0, notFingerprint, waitSeconds, signal } = options
    checkSeconds('minValidSeconds', minValidSeconds, MAX_MIN_VALID_SECONDS)
    checkSeconds('waitSeconds', waitSeconds ?? 0, MAX_WAIT_SECONDS)
    signal?.throwIfAborted()
    link.follow()
    const beganMs = monotonicMs()
    for (;;) {
      const view = link.view()
      const good = remembered(view, options)
      if (good !== undefined) return good
      const { token, fault, isLive } = view
      const waitMs = waitMsFor(view, waitSeconds)
      const passedMs = monotonicMs() - beganMs
      if (isLive && token !== undefined && token.fingerprint !== notFingerprint)
        return unlessAborted(askLonger(options, waitMs - passedMs), signal)
      if (passedMs >= waitMs) {
        if (isLive && token !== undefined) return token
        throw fault ?? timeoutError(waitMs)
      }
      await change(waitMs - passedMs, signal)
    }
  }

  /** How long a caller waits, from the beginning, while the view is as it is. In ms. */
  function waitMsFor({ fault, isLive }: View, waitSeconds: number | undefined): number {
    const waitMs = (waitSeconds ?? DEFAULT_WAIT_SECONDS) * 1_000
    // A daemon that has said nothing yet has time for its first answer.
    if (fault === undefined && !isLive) return Math.max(waitMs, ANSWER_MS)
    return isPassing(fault) && link.isWorthWait(waitSeconds !== undefined) ? waitMs : 0
  }

  /** Resolves at the next change of the view, or after this time. Rejects with the signal's reason. */
  async function change(ms: number, signal: GetOptions['signal']): Promise<void> {
    let end = (): void => undefined
    const changed = new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms)
      const leave = link.onChange(resolve)
      end = () => {
        clearTimeout(timer)
        leave()
      }
    })
    await unlessAborted(changed, signal).finally(end)
  }

  /** Calls the listener with the newest token, and never twice for the same. */
  function subscribe(listener: (token: ClientToken) => void): () => void {
    link.follow()
    let last: string | undefined
    let isEnded = false
    function notify(): void {
      const { token, fault } = link.view()
      if (fault?.code === 'closed') end()
      if (token === undefined) return
      const { fingerprint, expiresAt, state, stale } = token
      const seen = [fingerprint, expiresAt, state, stale].join()
      if (seen === last) return
      last = seen
      // Its exceptions are the program's, and do no harm here.
      queueMicrotask(() => isEnded || listener(token))
    }
    const leave = link.onChange(notify)
    const alive = setInterval(() => undefined, FOR_EVER_MS)
    function end(): void {
      isEnded = true
      leave()
      clearInterval(alive)
    }
    notify()
    return end
  }

  return {
    get,
    authorize,
    fetch: createFetch(
      origins?.map((origin) => new URL(origin).origin),
      authorize,
    ),
    subscribe,
    async reject(token, { signal } = {}) {
      const fingerprint = typeof token === 'string' ? fingerprintOf(token) : token.fingerprint
      return unlessAborted(report(fingerprint), signal)
    },
    status: async ({ signal } = {}) => unlessAborted(link.ask<StatusResult>('status.get', {}), signal),
    close: () => link.close(),
  }
}

/** Reports whether the fault may be over within a wait: the daemon restarts, or gets a token. */
function isPassing(fault: TokenClientError | undefined): boolean {
  return fault === undefined || ['no-token-yet', 'expired', 'daemon-unreachable', 'busy'].includes(fault.code)
}

/** As the work, or rejects with the signal's reason once it is aborted; the work then goes on. */
async function unlessAborted<T>(work: Promise<T>, signal?: AbortSignal | null): Promise<T> {
  if (signal) await raceAbort(work, signal)
  signal?.throwIfAborted()
  return work
}

/** Throws `bad-request`. */
function checkSeconds(name: string, value: unknown, max: number): void {
  const isInRange = typeof value === 'number' && value >= 0 && value <= max
  if (!isInRange) throw badRequest(`${name} must be a number of seconds from 0 to ${max}.`)
}
