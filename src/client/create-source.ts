// The methods of a client, over any connection to a daemon.
import {
  FINGERPRINT_LENGTH,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
  type AlertTestResult,
  type RefreshResult,
  type RejectResult,
  type StatusResult,
  type TokenResult,
} from '../protocol.ts'
import { authorizedFetch } from './authorized-fetch.ts'
import { call, withoutId, type Call } from './call.ts'
import type { ReconnectingConnection } from './connection.ts'
import { closedError, originError, rangeError, refusedError } from './faults.ts'
import type { Frame } from './frames.ts'
import { createKnownTokens } from './known-tokens.ts'
import { createRefusedTokens } from './refused-tokens.ts'
import { createSubscriptions } from './subscription.ts'
import type { ClientToken, GetOptions, TokenSource } from './token-source.ts'
import { monotonicMs } from '../lib/monotonic.ts'

const DEFAULT_WAIT_SECONDS = 10
/** One attempt at the service, and one that is under way before it. */
const REFRESH_WAIT_MS = 120_000

export function createSource(options: {
  name: string | undefined
  /** Origins to which `fetch` may send the token; undefined: that of its `baseUrl`. */
  origins: readonly string[] | undefined
  /** `onAnswer` is to be called with every answer. */
  connect: (onAnswer: (frame: Frame) => void) => ReconnectingConnection
}): TokenSource & { alertTest: () => Promise<AlertTestResult> } {
  const { name, origins } = options
  const known = createKnownTokens()
  const connection = options.connect(({ type, data }) => {
    if (type === 'token.result' || type === 'token.changed') known.keep(withoutId(data) as TokenResult)
  })
  const subscriptions = createSubscriptions(connection, name)
  const refused = createRefusedTokens({
    known,
    get,
    reject: (fingerprint) => ask({ type: 'token.reject', data: () => ({ fingerprint, client: name }) }),
  })
  let isClosed = false

  async function ask<T>(question: Call<T>): Promise<T> {
    if (isClosed) throw closedError()
    return call(connection, question)
  }

  async function get(request: GetOptions = {}): Promise<ClientToken> {
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
      fallback: () => known.cached(request),
    })
  }

  async function fetch(input: string | URL | Request, init?: RequestInit): Promise<Response> {
    let token: ClientToken
    const mayGoTo = (origin: string, other: ClientToken): boolean =>
      (origins ?? [originOf(other)]).includes(origin)
    return authorizedFetch(input, init, {
      authorize: async (origin, signal) => {
        if (origins?.includes(origin) === false) throw originError(origin, origins)
        const first = await get(signal === undefined ? {} : { signal })
        if (!mayGoTo(origin, first)) throw originError(origin, [originOf(first)])
        const good = await refused.replace(first, { signal })
        if (good === undefined)
          throw refusedError((known.refusalOf(first.fingerprint)?.retryAtMs ?? 0) - monotonicMs())
        // By a reload it may be a token of another service.
        if (!mayGoTo(origin, good)) throw originError(origin, [originOf(good)])
        token = good
        return `Bearer ${token.accessToken}`
      },
      onRefused: () => refused.onRefused(token.fingerprint),
      renew: async (origin, signal) => {
        const other = await refused.replace(token, { onlyHope: true, signal })
        if (other === undefined || other.fingerprint === token.fingerprint) return undefined
        return mayGoTo(origin, other) ? `Bearer ${other.accessToken}` : undefined
      },
    })
  }

  return {
    get,
    fetch,
    subscribe(listener, how) {
      if (isClosed) throw closedError()
      return subscriptions.subscribe(listener, how)
    },
    async reject(token): Promise<RejectResult> {
      return refused.report(typeof token === 'string' ? await fingerprintOf(token) : token.fingerprint)
    },
    async status() {
      return ask<StatusResult>({ type: 'status.get', data: () => ({}) })
    },
    async refresh({ signal } = {}) {
      return ask<RefreshResult>({
        type: 'refresh.request',
        data: () => ({}),
        answerMs: REFRESH_WAIT_MS,
        maxSends: 1,
        signal,
      })
    },
    async alertTest() {
      return ask<AlertTestResult>({ type: 'alert.test', data: () => ({}), maxSends: 1 })
    },
    close() {
      isClosed = true
      subscriptions.close()
      connection.close()
    },
  }
}

function checkRange(name: string, value: number, max: number): void {
  if (!(value >= 0 && value <= max)) throw rangeError(name, max)
}

function originOf({ baseUrl }: TokenResult): string {
  return new URL(baseUrl).origin
}

async function fingerprintOf(token: string): Promise<string> {
  const { createHash } = await import('node:crypto')
  return createHash('sha256').update(token).digest('hex').slice(0, FINGERPRINT_LENGTH)
}
