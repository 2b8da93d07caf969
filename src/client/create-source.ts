// The methods of a client, over any link to a daemon.
import {
  FINGERPRINT_LENGTH,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
  type RejectResult,
  type StatusResult,
} from '../protocol.ts'
import { createFetch } from './authorized-fetch.ts'
import { badRequest, closedError, timeoutError, TokenClientError } from './errors.ts'
import { ANSWER_MS, type Link, type View } from './link.ts'
import { createRefusals, placeOf, type Admission } from './refusals.ts'
import type { AuthorizeOptions, ClientOptions, ClientToken, GetOptions, TokenSource } from './token-source.ts'

const DEFAULT_WAIT_SECONDS = 10
/** Between two requests for a token of one caller, in ms. */
const PAUSE_MS = 250
/** An instant that was counted on another clock may differ by this much, in ms, and be the same. */
const SAME_INSTANT_MS = 1_000
const FINGERPRINT = new RegExp(`^[0-9a-f]{${FINGERPRINT_LENGTH}}$`)

/** The token that a caller wants, and for how long it waits. */
interface Wish {
  readonly minValidMs: number
  readonly notFingerprint: string | undefined
  readonly waitMs: number
  /** The wait is also for a daemon that was never there. */
  readonly waitsForStart: boolean
  readonly signal: AbortSignal | undefined
}

/** Throws TypeError if one of `origins` is no URL. */
export function createSource({ name, origins }: ClientOptions, link: Link): TokenSource {
  const { monotonicMs } = link
  /** Requests for a token that are under way. */
  const asked = new Map<string, Promise<ClientToken>>()
  let isClosed = false
  const refusals = createRefusals({
    monotonicMs,
    get,
    reject: (fingerprint) => link.ask<RejectResult>('token.reject', { fingerprint, client: name }),
  })

  /** The token in memory, if it is as good as the wish. Its life is counted on two clocks: one may be set. */
  function remembered(view: View, { minValidMs, notFingerprint }: Wish): ClientToken | undefined {
    const { token, expiresAtMs = 0, isLive } = view
    if (token === undefined || token.fingerprint === notFingerprint) return undefined
    const leftMs = Math.min(Date.parse(token.expiresAt) - Date.now(), expiresAtMs - monotonicMs())
    if (leftMs <= 0 || leftMs < minValidMs) return undefined
    if (isLive) return copyOf(token)
    return refusals.has(token.fingerprint) ? undefined : { ...copyOf(token), cached: true }
  }

  /** Asks the daemon, which waits. Callers who wish for the same share a request. */
  function ask({ minValidMs, notFingerprint, waitMs }: Wish, leftMs: number): Promise<ClientToken> {
    const key = JSON.stringify([minValidMs, notFingerprint, waitMs])
    const underWay = asked.get(key)
    if (underWay !== undefined) return underWay
    // The daemon counts in tenths of a second; its answer has time enough.
    const waitSeconds = Math.ceil(leftMs / 100) / 10
    const data = { minValidSeconds: minValidMs / 1_000, notFingerprint, waitSeconds, client: name }
    const answer = link.ask<ClientToken>('token.get', data, leftMs + ANSWER_MS)
    asked.set(key, answer)
    const end = (): boolean => asked.delete(key)
    answer.then(end, end)
    return answer
  }

  async function get(options: GetOptions | null = {}): Promise<ClientToken> {
    const wish = wishOf(options ?? {})
    wish.signal?.throwIfAborted()
    if (isClosed) throw closedError()
    link.want()
    const first = remembered(link.view(), wish)
    if (first !== undefined) return first
    const release = link.hold()
    try {
      return await awaitToken(wish)
    } finally {
      release()
    }
  }

  async function awaitToken(wish: Wish): Promise<ClientToken> {
    const beganMs = monotonicMs()
    for (;;) {
      const view = link.view()
      const token = remembered(view, wish)
      if (token !== undefined) return token
      const passedMs = monotonicMs() - beganMs
      if (view.isLive) {
        const answer = await askWhileThere(wish, passedMs)
        if (answer !== undefined) return answer
      } else await awaitDaemon(view, wish, passedMs)
    }
  }

  /** The answer of a daemon that is there; undefined after a pause: ask again. */
  async function askWhileThere(wish: Wish, passedMs: number): Promise<ClientToken | undefined> {
    const { notFingerprint, waitMs, signal } = wish
    const leftMs = link.waits ? Math.max(0, waitMs - passedMs) : 0
    const isLast = leftMs < PAUSE_MS
    const answer = await unlessAborted(ask(wish, leftMs), signal).catch((error: unknown) => {
      if (isLast || signal?.aborted === true || !isPassing(error)) throw error
    })
    if (answer !== undefined && (isLast || answer.fingerprint !== notFingerprint)) return copyOf(answer)
    await change(PAUSE_MS, signal)
    return undefined
  }

  /** Waits for a change while the daemon is away, or has not answered yet. Throws once the time is over. */
  async function awaitDaemon({ fault }: View, wish: Wish, passedMs: number): Promise<void> {
    const isAwaited = wish.waitsForStart || link.wasConnected()
    if (fault !== undefined && !(isAwaited && isPassing(fault))) throw fault
    // A daemon that is there has time for its first answer.
    const waitMs = fault === undefined ? Math.max(wish.waitMs, ANSWER_MS) : wish.waitMs
    if (passedMs >= waitMs) throw fault ?? timeoutError(waitMs)
    await change(waitMs - passedMs, wish.signal)
  }

  /** Resolves at the next change of the view, or after this time. Rejects with the signal's reason. */
  function change(ms: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (): void => {
        clearTimeout(timer)
        leave()
        signal?.removeEventListener('abort', end)
        if (signal?.aborted === true) reject(signal.reason as Error)
        else resolve()
      }
      const timer = setTimeout(end, ms)
      const leave = link.onChange(end)
      signal?.addEventListener('abort', end)
    })
  }

  /** Calls the listener with the newest token, and never twice for the same. */
  function subscribe(listener: (token: ClientToken) => void): () => void {
    let last: ClientToken | undefined
    let hasEnded = false
    function notify(): void {
      const { token } = link.view()
      if (token === undefined || (last !== undefined && isSame(last, token))) return
      last = token
      // Its exceptions are the program's, and do no harm here.
      queueMicrotask(() => {
        if (!hasEnded) listener(copyOf(token))
      })
    }
    const release = link.hold()
    const leave = link.onChange(notify)
    link.want()
    notify()
    return () => {
      if (hasEnded) return
      hasEnded = true
      leave()
      release()
    }
  }

  /** An authorization for a call to this place; without a place, its refusals are remembered nowhere. */
  async function admit({ url, method = 'GET', ...request }: AuthorizeOptions): Promise<Admission> {
    const place = url === undefined ? undefined : placeOf(url, method)
    const signal = request.signal ?? undefined
    const admissionOf = (token: ClientToken, { isRepetition }: { isRepetition: boolean }): Admission => ({
      headers: { [token.header]: `${token.prefix}${token.accessToken}` },
      token,
      async refused({ isFinal = false } = {}) {
        const next = await refusals.nextToken(token, { place, isRepetition, isFinal, signal })
        return next === undefined ? undefined : admissionOf(next, { isRepetition: true })
      },
    })
    return admissionOf(await get(request), { isRepetition: false })
  }

  return {
    get: async (options) => get(options),
    authorize: async (options) => admit(options ?? {}),
    fetch: createFetch(
      origins?.map((origin) => new URL(origin).origin),
      admit,
    ),
    subscribe(listener) {
      if (typeof listener !== 'function') throw badRequest('The listener must be a function.')
      if (isClosed) throw closedError()
      return subscribe(listener)
    },
    async reject(token, options) {
      const named: unknown = typeof token === 'string' ? token : token?.fingerprint
      if (typeof named !== 'string') throw badRequest('Report a token, or an object with its `fingerprint`.')
      const fingerprint = typeof token === 'string' ? await fingerprintOf(token) : named
      return unlessAborted(refusals.report(fingerprint), options?.signal)
    },
    status: async (options) => unlessAborted(link.ask<StatusResult>('status.get', {}), options?.signal),
    close() {
      isClosed = true
      link.close()
    },
  }
}

/** Reports whether the fault may be over within a wait: the daemon restarts, or gets a token. */
function isPassing(fault: unknown): boolean {
  const codes = ['no-token-yet', 'expired', 'daemon-unreachable', 'busy', 'timeout']
  return fault instanceof TokenClientError && codes.includes(fault.code)
}

function isSame(before: ClientToken, now: ClientToken): boolean {
  return (
    before.fingerprint === now.fingerprint &&
    before.state === now.state &&
    before.stale === now.stale &&
    Math.abs(Date.parse(before.expiresAt) - Date.parse(now.expiresAt)) < SAME_INSTANT_MS
  )
}

/** For one caller, who may change it. */
function copyOf(token: ClientToken): ClientToken {
  return { ...token, refusedBy: [...token.refusedBy] }
}

/** As the work, or rejects with the signal's reason once it is aborted; the work then goes on. */
function unlessAborted<T>(work: Promise<T>, signal?: AbortSignal | null): Promise<T> {
  if (!signal) return work
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason as Error)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}

/** Throws `bad-request` for what the daemon would not accept. */
function wishOf({ minValidSeconds = 0, notFingerprint, waitSeconds, signal }: GetOptions): Wish {
  checkSeconds('minValidSeconds', minValidSeconds, MAX_MIN_VALID_SECONDS)
  checkSeconds('waitSeconds', waitSeconds ?? 0, MAX_WAIT_SECONDS)
  if (notFingerprint !== undefined && !FINGERPRINT.test(notFingerprint))
    throw badRequest('notFingerprint must be the fingerprint of a token.')
  return {
    minValidMs: minValidSeconds * 1_000,
    notFingerprint,
    waitMs: (waitSeconds ?? DEFAULT_WAIT_SECONDS) * 1_000,
    waitsForStart: waitSeconds !== undefined,
    signal: signal ?? undefined,
  }
}

function checkSeconds(name: string, value: unknown, max: number): void {
  const isInRange = typeof value === 'number' && value >= 0 && value <= max
  if (!isInRange) throw badRequest(`${name} must be a number of seconds from 0 to ${max}.`)
}

async function fingerprintOf(token: string): Promise<string> {
  const { createHash } = await import('node:crypto')
  return createHash('sha256').update(token).digest('hex').slice(0, FINGERPRINT_LENGTH)
}
