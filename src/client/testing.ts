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
import type { ClientOptions, ClientToken, TokenSource } from './token-source.ts'

export type { TokenSource } from './token-source.ts'

/** As TokenClient, against a daemon that does what the test says. */
export interface FakeTokenClient extends TokenSource {
  /** Takes another token (`fake-token-2`), and calls the listeners. Ends a fault that `fail` began. */
  readonly rotate: (accessToken?: string) => ClientToken
  /** From now on calls are rejected with this code. */
  readonly fail: (code: FaultCode) => void
}

/**
 * A fake client, also under the fake timers of Jest and vitest. It answers at once: `fake-token-1`, of the service
 * `https://api.example.com` and with an hour of life, until the test says otherwise; a report of its token brings
 * another one. Its `fetch` sends real requests, unless `globalThis.fetch` is replaced.
 */
export function createFakeTokenClient(options: ClientOptions = {}): FakeTokenClient {
  const listeners = new Set<() => void>()
  let view: View = { isLive: true }
  let generation = 0

  function set(next: Omit<View, 'isLive'>): void {
    view = { ...next, isLive: true }
    for (const listener of listeners) listener()
  }
  function rotate(accessToken = `fake-token-${generation + 1}`): ClientToken {
    generation += 1
    const token = tokenOf(accessToken, generation)
    set({ token, expiresAtMs: Infinity })
    return token
  }
  function answerTo(type: RequestType, { fingerprint }: { readonly fingerprint?: unknown }): object {
    const { token } = view
    if (token === undefined) throw view.fault
    if (type === 'status.get') return statusOf(token)
    if (type !== 'token.reject') return token
    const isCurrent = fingerprint === token.fingerprint
    if (isCurrent) rotate()
    return { verdict: isCurrent ? 'refreshing' : 'replaced' } satisfies RejectResult
  }

  const link: Link = {
    view: () => view,
    onChange(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    follow() {
      if (view.fault?.code === 'closed') throw view.fault
    },
    // Nothing comes by itself, so nobody waits.
    isWorthWait: () => false,
    ask: async <T>(type: RequestType, data: object) => answerTo(type, data) as T,
    close: () => set({ fault: closedError() }),
  }
  rotate()
  const fail = (code: FaultCode): void =>
    set({ fault: faultError({ code, message: `The fake says ${code}.` }) })
  return { ...createSource(options, link), rotate, fail }
}

function tokenOf(accessToken: string, generation: number): ClientToken {
  const isoIn = (minutes: number): string => new Date(Date.now() + minutes * 60_000).toISOString()
  return {
    accessToken,
    tokenType: 'Bearer',
    header: 'Authorization',
    prefix: 'Bearer ',
    obtainedAt: isoIn(0),
    expiresAt: isoIn(60),
    expirySource: 'jwt',
    baseUrl: 'https://api.example.com',
    refusedBy: [401],
    refreshAt: isoIn(40),
    generation,
    fingerprint: fingerprintOf(accessToken),
    state: 'ready',
    stale: false,
  }
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
