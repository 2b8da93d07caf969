// A client without a daemon, for the tests of programs that use one.
import { createHash } from 'node:crypto'
import {
  FINGERPRINT_LENGTH,
  type FaultCode,
  type Phase,
  type RejectResult,
  type RequestType,
  type StatusResult,
} from '../protocol.ts'
import { createSource } from './create-source.ts'
import { faultError, isWithoutToken, type TokenClientError } from './errors.ts'
import type { Link } from './link.ts'
import type { ClientOptions, ClientToken, TokenSource } from './token-source.ts'

export type { TokenSource } from './token-source.ts'

export interface FakeTokenClientOptions extends ClientOptions {
  /** The first token; by default `fake-token-1`. */
  accessToken?: string | undefined
  /** The life of its tokens, in seconds; by default an hour. */
  lifeSeconds?: number | undefined
  /** The service of the tokens: `fetch` sends them to its origin. By default `https://api.example.com`. */
  baseUrl?: string | undefined
}

/** As TokenClient, against a daemon that does what the test says. */
export interface FakeTokenClient extends TokenSource {
  /** Takes another token (`fake-token-2`), and calls the listeners. Ends a fault that `fail` began. */
  readonly rotate: (accessToken?: string) => ClientToken
  /** From now on calls are rejected with this code. */
  readonly fail: (code: FaultCode) => void
}

const STATES: Readonly<Record<string, Phase>> = {
  'no-token-yet': 'starting',
  'account-inactive': 'refused',
  'account-not-found': 'refused',
}

/**
 * A fake client, also under the fake timers of Jest and vitest. It answers at once, and a report of its token
 * brings another one. A token whose life is over is an error, until `rotate`. Its `fetch` sends real requests,
 * unless `globalThis.fetch` is replaced.
 *
 * @example
 * ```js
 * import { createFakeTokenClient } from 'kyc-tokend/testing'
 *
 * const tokens = createFakeTokenClient({ accessToken: 'first' })
 * const app = createApp({ tokens })
 * tokens.rotate('second')
 * tokens.fail('account-inactive')
 * ```
 */
export function createFakeTokenClient(options: FakeTokenClientOptions = {}): FakeTokenClient {
  const { accessToken = 'fake-token-1', lifeSeconds = 3_600, baseUrl = 'https://api.example.com' } = options
  const listeners = new Set<() => void>()
  let token = tokenWith(accessToken, 1)
  let failure: TokenClientError | undefined
  let isClosed = false

  function tokenWith(text: string, generation: number): ClientToken {
    const isoIn = (seconds: number): string => new Date(Date.now() + seconds * 1_000).toISOString()
    return {
      accessToken: text,
      tokenType: 'Bearer',
      header: 'Authorization',
      prefix: 'Bearer ',
      obtainedAt: isoIn(0),
      expiresAt: isoIn(lifeSeconds),
      expirySource: 'jwt',
      baseUrl,
      refusedBy: [401],
      refreshAt: isoIn((lifeSeconds * 2) / 3),
      generation,
      fingerprint: createHash('sha256').update(text).digest('hex').slice(0, FINGERPRINT_LENGTH),
      state: 'ready',
      stale: false,
    }
  }

  const faultOf = (code: FaultCode): TokenClientError =>
    faultError({ code, message: `The fake says ${code}.` })
  function currentFault(): TokenClientError | undefined {
    return failure ?? (Date.parse(token.expiresAt) <= Date.now() ? faultOf('expired') : undefined)
  }
  function set(next: { token?: ClientToken; failure: TokenClientError | undefined }): void {
    token = next.token ?? token
    failure = next.failure
    for (const listener of listeners) listener()
  }
  function rotate(text = `fake-token-${token.generation + 1}`): ClientToken {
    set({ token: tokenWith(text, token.generation + 1), failure: undefined })
    return token
  }

  function status(): StatusResult {
    const fault = currentFault()
    const { accessToken: _, ...description } = token
    const since = token.obtainedAt
    return {
      state: fault === undefined ? 'ready' : (STATES[fault.code] ?? 'expired'),
      token: fault === undefined ? description : null,
      failure: null,
      nextAttemptAt: null,
      candidate: null,
      alert: null,
      files: [],
      clients: { ipc: { connections: 1, subscribers: 0 }, http: null },
      share: null,
      service: { baseUrl, lastRequestAt: since, lastSuccessAt: since, requests: token.generation },
      daemon: {
        version: 'fake',
        pid: process.pid,
        startedAt: since,
        configFile: '',
        host: 'localhost',
        configuration: { state: 'current', problem: null },
        credentials: null,
        stateProblem: null,
        pathProblems: [],
      },
    }
  }
  function report({ fingerprint }: { readonly fingerprint?: unknown }): RejectResult {
    if (fingerprint !== token.fingerprint) return { verdict: 'replaced' }
    rotate()
    return { verdict: 'refreshing' }
  }
  function answerTo(type: RequestType, data: object): object {
    const fault = currentFault()
    // A missing token is an answer to requests for one alone.
    if (fault !== undefined && (type === 'token.get' || !isWithoutToken(fault))) throw fault
    if (type === 'status.get') return status()
    if (type === 'token.reject') return report(data)
    return token
  }

  const link: Link = {
    view() {
      const fault = isClosed ? undefined : currentFault()
      return fault === undefined
        ? { token, expiresAtMs: Date.parse(token.expiresAt), isLive: true }
        : { fault, isLive: isWithoutToken(fault) }
    },
    wasConnected: () => true,
    waits: false,
    monotonicMs: () => Date.now(),
    want: () => undefined,
    hold: () => () => undefined,
    onChange(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    ask: async <T>(type: RequestType, data: object) => answerTo(type, data) as T,
    close() {
      isClosed = true
      listeners.clear()
    },
  }
  return {
    ...createSource(options, link),
    rotate,
    fail: (code) => set({ failure: faultOf(code) }),
  }
}
