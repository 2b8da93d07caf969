// A client without a daemon, for the tests of programs that use one.
import {
  fingerprintOf,
  type FaultCode,
  type RejectResult,
  type RequestType,
  type StatusResult,
} from '../protocol.ts'
import { createSource } from './create-source.ts'
import { closedError, faultError, type Link, type View } from './link.ts'
import type { ClientOptions, ClientToken, TokenClientError, TokenSource } from './token-source.ts'

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

/**
 * A fake client, also under the fake timers of Jest and vitest. It answers at once, and a report of its token
 * brings another one. A token whose life is over is an error, until `rotate`. Its `fetch` sends real requests,
 * unless `globalThis.fetch` is replaced.
 */
export function createFakeTokenClient(options: FakeTokenClientOptions = {}): FakeTokenClient {
  const { accessToken = 'fake-token-1', lifeSeconds = 3_600, baseUrl = 'https://api.example.com' } = options
  const listeners = new Set<() => void>()
  let token = tokenOf(accessToken, 1)
  let failure: TokenClientError | undefined
  let isClosed = false

  function tokenOf(text: string, generation: number): ClientToken {
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
      fingerprint: fingerprintOf(text),
      state: 'ready',
      stale: false,
    }
  }

  const faultOf = (code: FaultCode): TokenClientError =>
    faultError({ code, message: `The fake says ${code}.` })
  function fault(): TokenClientError | undefined {
    if (isClosed) return closedError()
    return failure ?? (Date.parse(token.expiresAt) <= Date.now() ? faultOf('expired') : undefined)
  }
  function view(): View {
    const current = fault()
    return current === undefined
      ? { token, expiresAtMs: Infinity, isLive: true }
      : { fault: current, isLive: true }
  }
  function set(next: ClientToken, fails?: TokenClientError): void {
    token = next
    failure = fails
    for (const listener of listeners) listener()
  }
  function rotate(text = `fake-token-${token.generation + 1}`): ClientToken {
    set(tokenOf(text, token.generation + 1))
    return token
  }
  function report({ fingerprint }: { readonly fingerprint?: unknown }): RejectResult {
    if (fingerprint !== token.fingerprint) return { verdict: 'replaced' }
    rotate()
    return { verdict: 'refreshing' }
  }
  function answerTo(type: RequestType, data: object): object {
    const current = fault()
    if (current !== undefined) throw current
    if (type === 'status.get') return statusOf(token)
    return type === 'token.reject' ? report(data) : token
  }

  const link: Link = {
    view,
    onChange(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    follow() {
      if (isClosed) throw closedError()
    },
    // Nothing comes by itself, so nobody waits.
    isWorthWait: () => false,
    ask: async <T>(type: RequestType, data: object) => answerTo(type, data) as T,
    close() {
      isClosed = true
    },
  }
  return { ...createSource(options, link), rotate, fail: (code) => set(token, faultOf(code)) }
}

function statusOf(current: ClientToken): StatusResult {
  const { accessToken: _, ...token } = current
  const { baseUrl, generation, obtainedAt } = token
  return {
    state: 'ready',
    token,
    failure: null,
    nextAttemptAt: null,
    candidate: null,
    alert: null,
    files: [],
    clients: { ipc: { connections: 1, subscribers: 0 }, http: null },
    share: null,
    service: { baseUrl, lastRequestAt: obtainedAt, lastSuccessAt: obtainedAt, requests: generation },
    daemon: {
      version: 'fake',
      pid: process.pid,
      startedAt: obtainedAt,
      configFile: '',
      host: 'localhost',
      configuration: { state: 'current', problem: null },
      credentials: null,
      stateProblem: null,
      pathProblems: [],
    },
  }
}
