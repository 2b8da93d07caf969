// The methods of a client, over any connection to a daemon.
import {
  FINGERPRINT_LENGTH,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
  type AlertTestResult,
  type RefreshResult,
  type StatusResult,
  type TokenResult,
} from '../protocol.ts'
import { createFetch } from './authorized-fetch.ts'
import { call, type Call } from './call.ts'
import type { Frame, ReconnectingConnection } from './connection.ts'
import { badRequest, closedError, refusedError } from './faults.ts'
import { createSubscriptions } from './subscription.ts'
import { createSuspectTokens, type ApiCall } from './suspect-tokens.ts'
import type { ClientToken, FetchOptions, GetOptions, TokenSource } from './token-source.ts'

const DEFAULT_WAIT_SECONDS = 10
/** One attempt at the service, and one that is under way before it. */
const REFRESH_MS = 120_000

export function createSource(
  options: FetchOptions & {
    name?: string | undefined
    /** The connection has to call `onAnswer` with every answer. */
    connect: (onAnswer: (frame: Frame) => void) => ReconnectingConnection
  },
): TokenSource & { alertTest: () => Promise<AlertTestResult> } {
  const { name } = options
  let last: { token: TokenResult; expiresAtMs: number } | undefined
  let isClosed = false
  const connection = options.connect(({ type, data }) => {
    if (type !== 'token.result' && type !== 'token.changed') return
    const token = data as unknown as TokenResult
    last = { token, expiresAtMs: monotonicMs() + Date.parse(token.expiresAt) - Date.now() }
    suspects.onToken(token)
  })
  const { monotonicMs } = connection
  const subscriptions = createSubscriptions(connection, name)
  const suspects = createSuspectTokens({
    monotonicMs,
    get,
    reject: (fingerprint) => ask({ type: 'token.reject', data: () => ({ fingerprint, client: name }) }),
  })

  async function ask<T>(question: Call<T>): Promise<T> {
    if (isClosed) throw closedError()
    return call(connection, question)
  }

  /**
   * The last token, if it is as good as asked for. Its life is counted on two clocks: one stops during suspend, and the
   * other may be set. Only `fetch` gets a suspect token, because it sends such a token with one call at a time.
   */
  function cached(
    { minValidSeconds = 0, notFingerprint }: GetOptions,
    isForFetch: boolean,
  ): ClientToken | undefined {
    if (last === undefined || last.token.fingerprint === notFingerprint) return undefined
    if (!isForFetch && suspects.has(last.token.fingerprint)) return undefined
    const leftMs = Math.min(Date.parse(last.token.expiresAt) - Date.now(), last.expiresAtMs - monotonicMs())
    return leftMs > 0 && leftMs >= minValidSeconds * 1_000 ? { ...last.token, cached: true } : undefined
  }

  async function get(request: GetOptions = {}, isForFetch = false): Promise<ClientToken> {
    const { minValidSeconds = 0, notFingerprint, waitSeconds = DEFAULT_WAIT_SECONDS, signal } = request
    checkRange('minValidSeconds', minValidSeconds, MAX_MIN_VALID_SECONDS)
    checkRange('waitSeconds', waitSeconds, MAX_WAIT_SECONDS)
    return ask<ClientToken>({
      type: 'token.get',
      data: (leftMs) => ({
        minValidSeconds,
        notFingerprint,
        waitSeconds: Math.round(leftMs) / 1_000,
        client: name,
      }),
      waitMs: waitSeconds * 1_000,
      waitsForStart: request.waitSeconds !== undefined,
      signal,
      fallback: () => cached(request, isForFetch),
    })
  }

  async function admit(signal: AbortSignal | undefined): Promise<ApiCall> {
    const token = await get(signal === undefined ? {} : { signal }, true)
    const apiCall = await suspects.admit(token, signal)
    if (isClosed) throw closedError()
    if (apiCall === undefined) throw refusedError(suspects.retryAfterMs(token.fingerprint))
    return apiCall
  }

  const close = (): void => {
    isClosed = true
    subscriptions.close()
    suspects.close()
    connection.close()
  }
  return {
    get: async (request) => get(request),
    fetch: createFetch(options, admit),
    subscribe(listener, how) {
      if (isClosed) throw closedError()
      return subscriptions.subscribe(listener, how)
    },
    async reject(token) {
      return suspects.report(typeof token === 'string' ? await fingerprintOf(token) : token.fingerprint)
    },
    status: async () => ask<StatusResult>({ type: 'status.get' }),
    refresh: async ({ signal } = {}) =>
      ask<RefreshResult>({ type: 'refresh.request', answerMs: REFRESH_MS, isOnce: true, signal }),
    alertTest: async () => ask<AlertTestResult>({ type: 'alert.test', isOnce: true }),
    close,
    [Symbol.dispose]: close,
  }
}

function checkRange(name: string, value: number, max: number): void {
  if (!(value >= 0 && value <= max)) throw badRequest(`${name} must be from 0 to ${max}.`)
}

async function fingerprintOf(token: string): Promise<string> {
  const { createHash } = await import('node:crypto')
  return createHash('sha256').update(token).digest('hex').slice(0, FINGERPRINT_LENGTH)
}
