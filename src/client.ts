// What the package exports: a client of kyc-tokend on this host, over its Unix socket.
import { authorizedFetch } from './lib/authorized-fetch.ts'
import { errorCode, errorMessage, UserError } from './lib/error.ts'
import { findSocket, socketPlaces, thisAsker } from './lib/find-socket.ts'
import type { Frame } from './lib/frames.ts'
import { createLink, type Link, type Loss } from './lib/link.ts'
import {
  answerTypes,
  faultCodes,
  FINGERPRINT_LENGTH,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
  type FaultCode,
  type RefreshResult,
  type RejectResult,
  type RequestType,
  type StatusResult,
  type TokenResult,
} from './protocol.ts'

export type {
  FaultCode,
  Phase,
  RefreshResult,
  RejectResult,
  RejectVerdict,
  StatusResult,
  TokenDescription,
  TokenResult,
} from './protocol.ts'

/** The daemon's own words, or: nobody at the socket, no answer in time, the client was closed. */
export type TokenClientErrorCode = FaultCode | 'daemon-unreachable' | 'timeout' | 'closed'

/** Every error of TokenClient. The message is one sentence with the remedy, and holds no secret. */
export class TokenClientError extends Error {
  override readonly name = 'TokenClientError'
  readonly code: TokenClientErrorCode
  /** Why the last attempt at the service failed, where that is why there is no token. */
  readonly reason: string | undefined
  constructor(message: string, options: ErrorOptions & { code: TokenClientErrorCode; reason?: string }) {
    super(message, options)
    this.code = options.code
    this.reason = options.reason
  }
}

export interface TokenClientOptions {
  /** The daemon's socket; by default `$KYC_TOKEND_SOCKET`, else the first that is there of the system's and the person's own. */
  socketPath?: string
  /** Names this program in the daemon's log. */
  name?: string
  /** Where `fetch` may send the token; by default the origin of the service's `baseUrl` alone. */
  origins?: readonly string[]
}
export interface GetOptions {
  /** The token should live so much longer, in seconds (0 to 86400). The answer tells whether it does. */
  minValidSeconds?: number
  /** Wait for another token than the one with this fingerprint. */
  notFingerprint?: string
  /** How long to wait for such a token, in seconds (0 to 60; 10 by default). */
  waitSeconds?: number
  /** Ends the waiting: the call is rejected with the signal's reason. */
  signal?: AbortSignal
}

/** Room for every answer there is: a token of 16 KiB, or the status with many files. */
const MAX_ANSWER_BYTES = 1024 * 1024
/** Less than the daemon's patience with a connection that asks nothing. */
const IDLE_MS = 30_000
/** What an answer may take beyond the time that the daemon was asked to wait. */
const ANSWER_MARGIN_MS = 5_000
/** One attempt at the service, and one that is under way before it. */
const REFRESH_WAIT_MS = 120_000
/** How long `fetch` waits for another token after a 401. */
const RENEWAL_WAIT_SECONDS = 10
/** Waits are counted on two sides of a socket: what comes with more time left did not wait for its end. */
const EARLY_MS = 500
/** Two tellings of the same expiry differ by less than this when the daemon restarted in between. */
const SAME_INSTANT_MS = 2_000

/**
 * A client of kyc-tokend. It connects when it is first used and again after a restart of the daemon; while it waits
 * for nothing it does not keep the process alive.
 *
 * @example
 * ```js
 * import { TokenClient } from 'kyc-tokend'
 *
 * const tokens = new TokenClient({ name: 'my-service' })
 * const { accessToken, expiresAt } = await tokens.get({ minValidSeconds: 60 })
 * ```
 */
export class TokenClient {
  readonly #socketPath: string | undefined
  readonly #name: string | undefined
  readonly #origins: readonly string[] | undefined
  readonly #link: Link
  readonly #subscribers = new Set<Subscriber>()
  #subscription: { tellNewest: (subscriber: Subscriber) => void; end: () => void } | undefined
  /** Where it was found last. */
  #path: string | undefined
  #isClosed = false

  /** Throws TypeError where one of `origins` is no URL. Opens nothing. */
  constructor(options: TokenClientOptions = {}) {
    this.#socketPath = options.socketPath
    this.#name = options.name
    this.#origins = options.origins?.map((origin) => new URL(origin).origin)
    this.#link = createLink({
      findPath: () => (this.#path = findSocket(thisAsker(), this.#socketPath)),
      maxFrameBytes: MAX_ANSWER_BYTES,
      idleMs: IDLE_MS,
      random: Math.random,
    })
  }

  /**
   * The token. Waits for a first one, or for one that lives long enough, up to `waitSeconds`, also across a restart
   * of the daemon; then gives the freshest there is.
   *
   * @example
   * ```js
   * const { accessToken } = await tokens.get({ minValidSeconds: 60, waitSeconds: 20 })
   * const response = await fetch(url, { headers: { authorization: `Bearer ${accessToken}` } })
   * ```
   *
   * @throws {TokenClientError} `no-token-yet`, `expired`, `account-inactive`, `account-not-found`, `misconfigured`:
   * there is none. `denied`, `busy`, `bad-request`: the daemon did not take the request. `daemon-unreachable`,
   * `timeout`, `closed`.
   */
  async get(options: GetOptions = {}): Promise<TokenResult> {
    const { minValidSeconds = 0, notFingerprint, waitSeconds = 10, signal } = options
    checkRange('minValidSeconds', minValidSeconds, MAX_MIN_VALID_SECONDS)
    checkRange('waitSeconds', waitSeconds, MAX_WAIT_SECONDS)
    return this.#call<TokenResult>(
      'token.get',
      (leftMs) => ({
        minValidSeconds,
        notFingerprint,
        waitSeconds: Math.round(leftMs) / 1_000,
        client: this.#name,
      }),
      { patienceMs: waitSeconds * 1_000, answerMs: waitSeconds * 1_000 + ANSWER_MARGIN_MS, signal },
    )
  }

  /**
   * Calls the listener with the token, now and at each change of it or of its state, also across restarts of the
   * daemon; never twice for the same. Returns a function that ends it; until then the process stays alive.
   *
   * While there is no token, or no daemon, the listener is not called; `onFault` is told why, once for each cause.
   * What a listener throws is an uncaught exception of the program, and the subscription goes on.
   *
   * @example
   * ```js
   * const end = tokens.subscribe(({ accessToken }) => {
   *   api.defaults.headers.authorization = `Bearer ${accessToken}`
   * })
   * process.once('SIGTERM', end)
   * ```
   */
  subscribe(
    listener: (token: TokenResult) => void,
    options: { onFault?: (fault: TokenClientError) => void } = {},
  ): () => void {
    if (this.#isClosed) throw closedError()
    const subscriber = createSubscriber(listener, options.onFault)
    this.#subscribers.add(subscriber)
    if (this.#subscription === undefined) this.#subscription = this.#openSubscription()
    else this.#subscription.tellNewest(subscriber)
    return () => {
      subscriber.end()
      this.#subscribers.delete(subscriber)
      if (this.#subscribers.size > 0) return
      this.#subscription?.end()
      this.#subscription = undefined
    }
  }

  /**
   * Reports that the service answered 401 to this token, which is named by its fingerprint and does not travel.
   * `{ fingerprint }` does for those who have only that.
   *
   * @example
   * ```js
   * const { verdict } = await tokens.reject(accessToken)
   * if (verdict === 'refreshing') accessToken = (await tokens.get({ notFingerprint: fingerprint })).accessToken
   * ```
   *
   * @throws {TokenClientError} as `get` does
   */
  async reject(token: string | { fingerprint: string }): Promise<RejectResult> {
    const fingerprint = typeof token === 'string' ? await fingerprintOf(token) : token.fingerprint
    return this.#call<RejectResult>('token.reject', () => ({ fingerprint }), {})
  }

  /**
   * What the daemon holds, what fails and since when, and what it writes and serves. Never holds the token.
   *
   * @example
   * ```js
   * const { state, alert } = await tokens.status()
   * if (alert !== null) console.error(alert.remedy)
   * ```
   *
   * @throws {TokenClientError} as `get` does
   */
  async status(): Promise<StatusResult> {
    return this.#call<StatusResult>('status.get', () => ({}), {})
  }

  /**
   * Has the service asked now, also after a refusal, and tells how it went. For root and the daemon's own user;
   * others are `denied`.
   *
   * @example
   * ```js
   * const { outcome, reason, detail } = await tokens.refresh()
   * ```
   *
   * @throws {TokenClientError} as `get` does
   */
  async refresh(options: { signal?: AbortSignal } = {}): Promise<RefreshResult> {
    // Asked once: a connection that is lost may have had its request already.
    return this.#call<RefreshResult>('refresh.request', () => ({}), {
      answerMs: REFRESH_WAIT_MS,
      maxAsks: 1,
      signal: options.signal,
    })
  }

  /**
   * As the platform's `fetch`, with the token in the Authorization header, for the origin of the service's `baseUrl`
   * (or those of the option `origins`) and no other. A 401 is reported; where another token comes within 10 s and
   * the body can be sent again (a stream cannot; of a Request object, up to 1 MiB), it is asked once more.
   *
   * @example
   * ```js
   * const response = await tokens.fetch('https://api.example.com/resource/path', {
   *   method: 'POST',
   *   headers: { 'content-type': 'application/json' },
   *   body: JSON.stringify({ externalId: '4711' }),
   * })
   * ```
   *
   * @throws {TokenClientError} as `get` does; `bad-request` for another origin
   */
  async fetch(input: string | URL | Request, init?: RequestInit): Promise<Response> {
    let token: TokenResult
    let verdict: RejectResult['verdict'] | undefined
    return authorizedFetch(input, init, {
      authorize: async (origin, signal) => {
        if (this.#origins !== undefined) permit(origin, this.#origins)
        token = await this.get(signal === undefined ? {} : { signal })
        if (this.#origins === undefined) permit(origin, [originOf(token)])
        return `Bearer ${token.accessToken}`
      },
      reportRefusal: async () => {
        verdict = (await orUndefined(this.reject(token)))?.verdict
      },
      renew: async (signal) => {
        if (verdict === undefined || verdict === 'refused' || verdict === 'unchanged') return undefined
        const { fingerprint } = token
        const wait = { notFingerprint: fingerprint, waitSeconds: RENEWAL_WAIT_SECONDS }
        const other = await orUndefined(this.get(signal === undefined ? wait : { ...wait, signal }))
        if (other === undefined || other.fingerprint === fingerprint) return undefined
        // By a reload it may be a token of another service.
        if (this.#origins === undefined && originOf(other) !== originOf(token)) return undefined
        return `Bearer ${other.accessToken}`
      },
    })
  }

  /** Ends everything: calls under way are rejected with `closed`, listeners are called no more. */
  close(): void {
    this.#isClosed = true
    for (const subscriber of this.#subscribers) subscriber.end()
    this.#link.close()
  }

  /** One subscription for all listeners: the daemon allows a connection only so many. */
  #openSubscription(): { tellNewest: (subscriber: Subscriber) => void; end: () => void } {
    let tellNewest: (subscriber: Subscriber) => void = () => undefined
    const tellAll = (newest: (subscriber: Subscriber) => void): void => {
      tellNewest = newest
      for (const subscriber of this.#subscribers) newest(subscriber)
    }
    const end = this.#link.open({
      // There is no way to unsubscribe: another subscription on this connection takes the place of the one before.
      id: 'subscription',
      ask: () => ({ type: 'token.subscribe', data: { client: this.#name } }),
      onAnswer: ({ type, data }) => {
        const fault = type === 'fault' ? faultError(data) : undefined
        if (fault !== undefined) return tellAll((subscriber) => subscriber.onFault(fault))
        const token = withoutId(data) as TokenResult
        if (typeof token.accessToken === 'string') tellAll((subscriber) => subscriber.onToken(token))
      },
      onLoss: (loss) => {
        const error = this.#lossError(loss)
        if (!loss.isClosed) tellAll((subscriber) => subscriber.onFault(error))
        return true
      },
    })
    return { tellNewest: (subscriber) => tellNewest(subscriber), end }
  }

  /** One question and its answer. `patienceMs`: how long to ask again where the connection is lost. */
  #call<T>(
    type: RequestType,
    data: (leftMs: number) => Frame['data'],
    options: {
      patienceMs?: number
      answerMs?: number
      maxAsks?: number
      signal?: AbortSignal | undefined
    },
  ): Promise<T> {
    const { patienceMs = 0, answerMs = ANSWER_MARGIN_MS, maxAsks = 2, signal } = options
    return new Promise<T>((resolve, reject) => {
      if (this.#isClosed) return reject(closedError())
      if (signal?.aborted === true) return reject(signal.reason as Error)
      const patientUntilMs = uptimeMs() + patienceMs
      const leftMs = (): number => Math.max(0, patientUntilMs - uptimeMs())
      let asks = 0
      /** What a daemon that is being stopped says to those who wait. */
      let parting: TokenClientError | undefined
      const settle = (how: () => void): void => {
        end()
        clearTimeout(timer)
        signal?.removeEventListener('abort', onAbort)
        how()
      }
      const onAbort = (): void => {
        settle(() => {
          reject(signal?.reason as Error)
        })
      }
      const end = this.#link.open({
        ask: () => {
          asks += 1
          return { type, data: data(asks === 1 ? patienceMs : leftMs()) }
        },
        onAnswer: (frame) => {
          const fault = frame.type === 'fault' ? faultError(frame.data) : undefined
          if (fault !== undefined && isTooEarly(fault, leftMs())) parting = fault
          else if (fault !== undefined)
            settle(() => {
              reject(fault)
            })
          else if (frame.type === answerTypes[type])
            settle(() => {
              resolve(withoutId(frame.data) as T)
            })
        },
        onLoss: (loss) => {
          if (isWorthAnother(loss, { leftMs: leftMs(), asksLeft: maxAsks - asks })) return true
          settle(() => {
            reject(loss.isClosed ? closedError() : this.#lossError(loss))
          })
          return false
        },
      })
      const timer = setTimeout(() => {
        settle(() => {
          reject(parting ?? this.#timeoutError(answerMs))
        })
      }, answerMs)
      signal?.addEventListener('abort', onAbort)
    })
  }

  #lossError(loss: Loss): TokenClientError {
    const { path, error, farewell } = loss
    if (farewell?.type === 'fault') return faultError(farewell.data)
    if (error instanceof UserError)
      return new TokenClientError(error.message, { code: 'denied', cause: error })
    if (path === undefined) {
      const message = `No kyc-tokend is running here (no socket at ${socketPlaces(thisAsker())}): ${START_IT}, or name its socket with --socket or $KYC_TOKEND_SOCKET.`
      return new TokenClientError(message, { code: 'daemon-unreachable' })
    }
    if (isForbidden(error)) {
      const message = `The socket ${path} may not be opened by this user: have the user added to its group (usermod -aG kyc-token USER) and log in again.`
      return new TokenClientError(message, { code: 'denied', cause: error })
    }
    const why = error === undefined ? 'it closed the connection' : (errorCode(error) ?? errorMessage(error))
    const message = `No kyc-tokend answers at ${path} (${why}): ${START_IT}.`
    return new TokenClientError(message, { code: 'daemon-unreachable', cause: error })
  }

  #timeoutError(answerMs: number): TokenClientError {
    return new TokenClientError(
      `kyc-tokend at ${this.#path ?? 'its socket'} gave no answer within ${answerMs / 1_000} s: see its log (journalctl -u kyc-tokend).`,
      { code: 'timeout' },
    )
  }
}

interface Subscriber {
  onToken(token: TokenResult): void
  onFault(fault: TokenClientError): void
  end(): void
}

/** Tells the listener what is new to it. */
function createSubscriber(
  listener: (token: TokenResult) => void,
  onFault: ((fault: TokenClientError) => void) | undefined,
): Subscriber {
  let lastToken: TokenResult | undefined
  let lastFault: TokenClientError | undefined
  let isEnded = false
  const tell = (call: () => void): void => {
    // Out of the connection's way: what is thrown there is the program's own affair.
    queueMicrotask(() => {
      if (!isEnded) call()
    })
  }
  return {
    onToken(token) {
      lastFault = undefined
      if (lastToken !== undefined && isSame(lastToken, token)) return
      lastToken = token
      tell(() => listener(token))
    },
    onFault(fault) {
      if (lastFault?.code === fault.code && lastFault.reason === fault.reason) return
      lastFault = fault
      tell(() => onFault?.(fault))
    },
    end() {
      isEnded = true
    },
  }
}

const START_IT = 'start it with `systemctl start kyc-tokend` or `kyc-tokend run`'

/** A first connect that fails is told at once: there is no restart to wait for. */
function isWorthAnother(loss: Loss, left: { leftMs: number; asksLeft: number }): boolean {
  if (loss.isClosed || isForbidden(loss.error)) return false
  // The queue of the socket is full: somebody is there.
  if (!loss.wasEverConnected && errorCode(loss.error) !== 'EAGAIN') return false
  return left.leftMs > 0 || (loss.wasConnected && left.asksLeft > 0)
}

/** A daemon that stays says so only when the time to wait is over. */
function isTooEarly({ code }: TokenClientError, leftMs: number): boolean {
  return (code === 'no-token-yet' || code === 'expired') && leftMs > EARLY_MS
}

function isForbidden(error: unknown): boolean {
  return error instanceof UserError || ['EACCES', 'EPERM'].includes(errorCode(error) ?? '')
}

function closedError(): TokenClientError {
  return new TokenClientError('This TokenClient was closed: make another one.', { code: 'closed' })
}

function faultError(data: Frame['data']): TokenClientError {
  const { code, message, reason } = data
  return new TokenClientError(typeof message === 'string' ? message : 'kyc-tokend gave no reason.', {
    code: faultCodes.find((known) => known === code) ?? 'bad-request',
    ...(typeof reason === 'string' ? { reason } : {}),
  })
}

function withoutId(data: Frame['data']): object {
  return Object.fromEntries(Object.entries(data).filter(([name]) => name !== 'id'))
}

function checkRange(name: string, value: number, max: number): void {
  if (value >= 0 && value <= max) return
  throw new TokenClientError(`${name} must be from 0 to ${max}.`, { code: 'bad-request' })
}

function isSame(one: TokenResult, other: TokenResult): boolean {
  return (
    one.fingerprint === other.fingerprint &&
    one.state === other.state &&
    one.stale === other.stale &&
    Math.abs(Date.parse(one.expiresAt) - Date.parse(other.expiresAt)) < SAME_INSTANT_MS
  )
}

function originOf({ baseUrl }: TokenResult): string {
  return new URL(baseUrl).origin
}

function permit(origin: string, origins: readonly string[]): void {
  if (origins.includes(origin)) return
  throw new TokenClientError(
    `The token is for ${origins.join(', ')} and is not sent to ${origin}: name it in the option origins if it may be.`,
    { code: 'bad-request' },
  )
}

/** After a 401 there is an answer to give back, whatever else fails; only the caller's own abort ends it. */
async function orUndefined<T>(promise: Promise<T>): Promise<T | undefined> {
  try {
    return await promise
  } catch (error) {
    if (error instanceof TokenClientError) return undefined
    throw error
  }
}

async function fingerprintOf(token: string): Promise<string> {
  const { createHash } = await import('node:crypto')
  return createHash('sha256').update(token).digest('hex').slice(0, FINGERPRINT_LENGTH)
}

/** A monotonic clock. That of `performance` takes a millisecond to load. */
function uptimeMs(): number {
  return process.uptime() * 1_000
}
