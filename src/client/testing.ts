// A client without a daemon, for the tests of programs that use one: `import { createFakeTokenClient } from 'kyc-tokend/testing'`.
import { createHash } from 'node:crypto'
import {
  answerTypes,
  FINGERPRINT_LENGTH,
  type Fault,
  type FaultCode,
  type RejectResult,
  type RequestType,
  type StatusResult,
  type TokenDescription,
  type TokenResult,
} from '../protocol.ts'
import type { Frame, ReconnectingConnection, Request } from './connection.ts'
import { createSource } from './create-source.ts'
import type { FetchOptions, TokenSource } from './token-source.ts'

export type { TokenSource } from './token-source.ts'

export interface FakeTokenClientOptions extends FetchOptions {
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
 * A fake client, also under the fake timers of Jest and vitest. A token whose life is over is an error, until `rotate`.
 * Its `fetch` is the real one: let the service be a server of the test, or replace `globalThis.fetch`.
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
  const {
    accessToken: first = 'fake-token-1',
    lifeSeconds = 3_600,
    baseUrl = 'https://api.example.com',
  } = options
  const reported: string[] = []
  const requests = new Map<Request, NodeJS.Timeout | undefined>()
  let token = described(first, 1)
  let absence: 'away' | Fault | undefined
  let reportResult: RejectResult | undefined

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

  const lifeLeftMs = (): number => Date.parse(token.expiresAt) - Date.now()
  function fault(): Fault | undefined {
    if (typeof absence === 'object') return absence
    return lifeLeftMs() > 0 ? undefined : { code: 'expired', message: 'The token of the fake has expired.' }
  }

  /** Answers, or waits for the next rotation as the daemon would. */
  function serve(request: Request, onAnswer: (frame: Frame) => void): void {
    if (!requests.has(request)) return
    const answer = (type: string, fields: object): void => {
      const frame: Frame = { type, data: { ...fields } }
      onAnswer(frame)
      request.onAnswer(frame)
    }
    if (absence === 'away') {
      if (!request.onDisconnect({ path: 'the fake' })) requests.delete(request)
      return
    }
    const { type, data } = request.frame() as { type: RequestType; data: Frame['data'] }
    const { notFingerprint, minValidSeconds, waitSeconds } = data
    const isAnotherWanted =
      notFingerprint === token.fingerprint || lifeLeftMs() < Number(minValidSeconds) * 1_000
    const answerNow = (): void => {
      const problem = fault()
      if (problem === undefined) answer(answerTypes[type], token)
      else answer('fault', problem)
    }
    if (type === 'token.reject') report(String(data['fingerprint']), answer)
    else if (type === 'status.get') answer(answerTypes[type], status())
    else if (type === 'refresh.request' && fault() === undefined)
      answer(answerTypes[type], { outcome: 'ok', ...description() })
    else if (type === 'token.get' && fault() === undefined && isAnotherWanted && waitSeconds !== 0) {
      if (requests.get(request) === undefined)
        requests.set(request, setTimeout(answerNow, Number(waitSeconds) * 1_000))
    } else answerNow()
  }

  function description(): TokenDescription {
    const { accessToken: _, ...rest } = token
    return rest
  }

  function report(fingerprint: string, answer: (type: string, fields: object) => void): void {
    reported.push(fingerprint)
    const isCurrent = fingerprint === token.fingerprint
    answer('reject.result', reportResult ?? { verdict: isCurrent ? 'refreshing' : 'replaced' })
    if (reportResult === undefined && isCurrent) rotate()
  }

  function status(): StatusResult {
    const since = token.obtainedAt
    const { code, reason = 'network', message: detail = '' } = fault() ?? {}
    return {
      state: code === undefined ? 'ready' : code.startsWith('account-') ? 'refused' : 'expired',
      token: code === undefined ? description() : null,
      failure: code === undefined ? null : { reason, detail, since, attempts: 1 },
      nextAttemptAt: null,
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
        stateProblem: null,
      },
    }
  }

  let serveAll = (): void => undefined
  function connect(onAnswer: (frame: Frame) => void): ReconnectingConnection {
    serveAll = () => {
      for (const request of requests.keys()) serve(request, onAnswer)
    }
    return {
      open(request) {
        requests.set(request, undefined)
        // Fake timers hold all but promises.
        void Promise.resolve().then(() => serve(request, onAnswer))
        return () => {
          clearTimeout(requests.get(request))
          requests.delete(request)
        }
      },
      close() {
        for (const request of requests.keys()) request.onDisconnect({ isClosed: true })
        requests.clear()
      },
      onSilence: () => undefined,
      isStuck: false,
      mayStop: false,
      monotonicMs: () => Date.now(),
    }
  }

  function rotate(accessToken = `fake-token-${token.generation + 1}`): TokenResult {
    token = described(accessToken, token.generation + 1)
    become(undefined)
    return token
  }
  function become(how: typeof absence): void {
    absence = how
    serveAll()
  }
  return {
    ...createSource({ ...options, connect }),
    rotate,
    fail: (code, { message = `The fake says ${code}.`, reason } = {}) =>
      become({ code, message, ...(reason !== undefined && { reason }) }),
    goAway: () => become('away'),
    answerReports: (result) => {
      reportResult = result
    },
    reported,
  }
}
