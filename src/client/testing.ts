// A client without a daemon, for the tests of programs that use one: `import { createFakeTokenClient } from 'kyc-tokend/testing'`.
import { createHash } from 'node:crypto'
import {
  answerTypes,
  FINGERPRINT_LENGTH,
  type FaultCode,
  type RejectResult,
  type RequestType,
  type StatusResult,
  type TokenDescription,
  type TokenResult,
} from '../protocol.ts'
import type { ReconnectingConnection, Request } from './connection.ts'
import { createSource } from './create-source.ts'
import type { Frame } from './frames.ts'
import type { TokenSource } from './token-source.ts'

export type { TokenSource } from './token-source.ts'

export interface FakeTokenClientOptions {
  /** The first token; by default `fake-token-1`. */
  accessToken?: string
  /** The life of its tokens, in seconds; by default an hour. */
  lifeSeconds?: number
  /** The service that the tokens are for: `fetch` sends them to its origin. By default `https://api.example.com`. */
  baseUrl?: string
}

/** As TokenClient, against a daemon that does what the test says. */
export interface FakeTokenClient extends TokenSource {
  /** Takes another token, by default `fake-token-2` and so on, and notifies the listeners. Ends a fault and an absence. */
  readonly rotate: (accessToken?: string) => TokenResult
  /** From now on there is no token: calls are rejected with this code. */
  readonly fail: (code: FaultCode, options?: { message?: string; reason?: string }) => void
  /** From now on the daemon is away: the last token is given from memory, everything else is rejected. */
  readonly goAway: () => void
  /** From now on this is the answer to a report. By default it is `refreshing`, and another token comes at once. */
  readonly answerReports: (result: RejectResult) => void
  /** Fingerprints of the tokens that were reported as refused, oldest first. */
  readonly reported: readonly string[]
}

/**
 * A fake client. Its `fetch` is the real one: let the service be a server of the test, or replace `globalThis.fetch`.
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
  const { accessToken: first, lifeSeconds = 3_600, baseUrl = 'https://api.example.com' } = options
  const reported: string[] = []
  const requests = new Map<Request, NodeJS.Timeout | undefined>()
  let token = described(first ?? 'fake-token-1', 1)
  let absence: 'away' | { code: FaultCode; message: string; reason?: string } | undefined
  let reportResult: RejectResult | undefined
  let onAnswer: (frame: Frame) => void = () => undefined
  let lastId = 0

  function described(accessToken: string, generation: number): TokenResult {
    const isoIn = (seconds: number): string => new Date(Date.now() + seconds * 1_000).toISOString()
    return {
      accessToken,
      tokenType: 'Bearer',
      obtainedAt: isoIn(0),
      expiresAt: isoIn(lifeSeconds),
      expirySource: 'jwt',
      baseUrl,
      refreshAt: isoIn((lifeSeconds * 2) / 3),
      generation,
      fingerprint: createHash('sha256').update(accessToken).digest('hex').slice(0, FINGERPRINT_LENGTH),
      state: 'ready',
      stale: false,
    }
  }

  function rotate(accessToken = `fake-token-${token.generation + 1}`): TokenResult {
    token = described(accessToken, token.generation + 1)
    absence = undefined
    for (const request of requests.keys()) serve(request)
    return token
  }

  function send(request: Request, type: string, data: object): void {
    const frame: Frame = { type, data: { id: request.id ?? String((lastId += 1)), ...data } }
    onAnswer(frame)
    request.onAnswer(frame)
  }

  /** Answers, or waits for the next rotation as the daemon would. */
  function serve(request: Request): void {
    if (!requests.has(request)) return
    if (absence === 'away') {
      const how = { path: 'the fake', error: undefined, closeFrame: undefined, wasConnected: false }
      if (!request.onDisconnect({ ...how, wasEverConnected: false, isClosed: false }))
        requests.delete(request)
      return
    }
    const { type, data } = request.frame() as { type: RequestType; data: Frame['data'] }
    if (type === 'token.get' && wantsAnother(data))
      return waitForAnother(request, Number(data['waitSeconds']))
    if (type === 'token.reject') return report(request, String(data['fingerprint']))
    if (type === 'status.get') return send(request, answerTypes[type], status())
    if (absence !== undefined) return send(request, 'fault', absence)
    const result = type === 'refresh.request' ? { outcome: 'ok', ...description() } : token
    send(request, answerTypes[type], result)
  }

  function wantsAnother({ notFingerprint, minValidSeconds }: Frame['data']): boolean {
    if (absence !== undefined) return false
    const leftMs = Date.parse(token.expiresAt) - Date.now()
    return notFingerprint === token.fingerprint || leftMs < Number(minValidSeconds) * 1_000
  }

  function waitForAnother(request: Request, waitSeconds: number): void {
    if (requests.get(request) !== undefined) return
    const timer = setTimeout(() => send(request, 'token.result', token), waitSeconds * 1_000)
    requests.set(request, timer)
  }

  function report(request: Request, fingerprint: string): void {
    reported.push(fingerprint)
    const isCurrent = fingerprint === token.fingerprint
    send(request, 'reject.result', reportResult ?? { verdict: isCurrent ? 'refreshing' : 'replaced' })
    if (reportResult === undefined && isCurrent) rotate()
  }

  function description(): TokenDescription {
    const { accessToken: _, ...rest } = token
    return rest
  }

  function status(): StatusResult {
    const now = new Date().toISOString()
    const fault = typeof absence === 'object' ? absence : undefined
    const failure = {
      reason: fault?.reason ?? 'network',
      detail: fault?.message ?? '',
      since: now,
      attempts: 1,
    }
    return {
      state: fault === undefined ? 'ready' : fault.code.startsWith('account-') ? 'refused' : 'expired',
      token: fault === undefined ? description() : null,
      failure: fault === undefined ? null : failure,
      nextAttemptAt: null,
      alert: null,
      files: [],
      clients: { ipc: { connections: 1, subscribers: 0 }, http: null },
      share: null,
      service: { baseUrl, lastRequestAt: now, lastSuccessAt: now, requests: token.generation },
      daemon: {
        version: 'fake',
        pid: process.pid,
        startedAt: now,
        configFile: '',
        host: 'localhost',
        configuration: { state: 'current', problem: null },
        stateProblem: null,
      },
    }
  }

  function connect(onFrame: (frame: Frame) => void): ReconnectingConnection {
    onAnswer = onFrame
    return {
      open(request) {
        requests.set(request, undefined)
        queueMicrotask(() => serve(request))
        return () => {
          clearTimeout(requests.get(request))
          requests.delete(request)
        }
      },
      close() {
        const how = { path: undefined, error: undefined, closeFrame: undefined, wasConnected: true }
        for (const request of requests.keys())
          request.onDisconnect({ ...how, wasEverConnected: true, isClosed: true })
        requests.clear()
      },
    }
  }

  const unavailable = (how: typeof absence): void => {
    absence = how
    for (const request of requests.keys()) serve(request)
  }
  return {
    ...createSource({ name: undefined, origins: undefined, connect }),
    rotate,
    fail: (code, { message = `The fake says ${code}.`, reason } = {}) =>
      unavailable({ code, message, ...(reason !== undefined && { reason }) }),
    goAway: () => unavailable('away'),
    answerReports: (result) => {
      reportResult = result
    },
    reported,
  }
}
