// A client without a daemon, for the tests of programs that use one.
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
import type { Connect, Frame, Request } from './connection.ts'
import { createSource } from './create-source.ts'
import type { ClientOptions, TokenSource } from './token-source.ts'

export type { TokenSource } from './token-source.ts'

/** The longest time for which a good token waits for one with a longer life, as the daemon has it. */
const SHORT_LIFE_WAIT_MS = 1_000

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
  /** Takes another token (`fake-token-2`), and calls the listeners. Ends what `fail` and `goAway` began. */
  readonly rotate: (accessToken?: string) => TokenResult
  /** From now on there is no token: calls are rejected with this code. */
  readonly fail: (
    code: FaultCode,
    options?: { message?: string | undefined; reason?: string | undefined },
  ) => void
  /** From now on the daemon is away: the last token is given from memory, everything else is rejected. */
  readonly goAway: () => void
  /** From now on the answer to a report. By default it is `refreshing`, and another token comes at once. */
  readonly answerReports: (result: RejectResult) => void
  /** Fingerprints of the tokens that were reported as refused, oldest first. */
  readonly reported: readonly string[]
}

/**
 * A fake client, also under the fake timers of Jest and vitest. A token whose life is over is an error, until
 * `rotate`. Its `fetch` sends real requests, unless the option `fetch` or `globalThis.fetch` is replaced.
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
  /** Each with the timer that ends its wait. */
  const requests = new Map<Request, NodeJS.Timeout | undefined>()
  let onAnswer = (_frame: Frame): void => undefined
  let token = described(first, 1)
  let absence: 'away' | Fault | undefined
  let reportResult: RejectResult | undefined

  function described(accessToken: string, generation: number): TokenResult {
    const isoIn = (seconds: number): string => new Date(Date.now() + seconds * 1_000).toISOString()
    return {
      accessToken,
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
      fingerprint: createHash('sha256').update(accessToken).digest('hex').slice(0, FINGERPRINT_LENGTH),
      state: 'ready',
      stale: false,
    }
  }

  const lifeLeftMs = (): number => Date.parse(token.expiresAt) - Date.now()
  function currentFault(): Fault | undefined {
    if (typeof absence === 'object') return absence
    return lifeLeftMs() > 0 ? undefined : { code: 'expired', message: 'The token of the fake has expired.' }
  }

  /** How long the daemon waits for another token, at most. */
  function waitMsOf({ notFingerprint, minValidSeconds, waitSeconds }: Frame['data']): number {
    const waitMs = Number(waitSeconds) * 1_000
    const neededMs = Number(minValidSeconds) * 1_000
    if (currentFault() !== undefined) return 0
    if (notFingerprint === token.fingerprint) return waitMs
    const isShort = lifeLeftMs() < neededMs && neededMs <= lifeSeconds * 1_000
    return isShort ? Math.min(waitMs, SHORT_LIFE_WAIT_MS) : 0
  }

  /** Answers, a subscription again and again, or waits for the next rotation as the daemon would. */
  function serve(request: Request): void {
    if (!requests.has(request)) return
    if (absence === 'away') {
      if (!request.onDisconnect({ path: 'the fake' })) end(request)
      return
    }
    const { type, data } = request.frame() as { type: RequestType; data: Frame['data'] }
    const waitMs = type === 'token.get' ? waitMsOf(data) : 0
    const answer = (fields: object, answerType: string = answerTypes[type]): void => {
      if (type !== 'token.subscribe') end(request)
      const frame: Frame = { type: answerType, data: { ...fields } }
      onAnswer(frame)
      request.onAnswer(frame)
    }
    const answerNow = (): void => {
      const fault = currentFault()
      if (type === 'status.get') answer(status(fault))
      else if (fault !== undefined) answer(fault, 'fault')
      else answer(type === 'refresh.request' ? { outcome: 'ok', ...description() } : token)
    }
    if (type === 'token.reject') {
      const isCurrent = data['fingerprint'] === token.fingerprint
      reported.push(String(data['fingerprint']))
      answer(reportResult ?? { verdict: isCurrent ? 'refreshing' : 'replaced' })
      if (reportResult === undefined && isCurrent) rotate()
    } else if (waitMs === 0) answerNow()
    else if (requests.get(request) === undefined) requests.set(request, setTimeout(answerNow, waitMs))
  }

  function end(request: Request): void {
    clearTimeout(requests.get(request))
    requests.delete(request)
  }

  function description(): TokenDescription {
    const { accessToken: _, ...rest } = token
    return rest
  }

  function status(fault: Fault | undefined): StatusResult {
    const since = token.obtainedAt
    const { code = 'ready', reason = 'network', message: detail = '' } = fault ?? {}
    const daemon = { version: 'fake', pid: process.pid, startedAt: since, configFile: '', host: 'localhost' }
    return {
      state: code === 'ready' ? code : code.startsWith('account-') ? 'refused' : 'expired',
      token: fault === undefined ? description() : null,
      failure: fault === undefined ? null : { reason, detail, since, attempts: 1 },
      nextAttemptAt: null,
      alert: null,
      files: [],
      clients: { ipc: { connections: 1, subscribers: 0 }, http: null },
      share: null,
      service: { baseUrl, lastRequestAt: since, lastSuccessAt: since, requests: token.generation },
      daemon: { ...daemon, configuration: { state: 'current', problem: null }, stateProblem: null },
    }
  }

  const connect: Connect = (listener) => {
    onAnswer = listener
    return {
      open(request) {
        requests.set(request, undefined)
        // Fake timers hold all but promises.
        void Promise.resolve().then(() => serve(request))
        return () => end(request)
      },
      mayStop: false,
      monotonicMs: () => Date.now(),
    }
  }

  function rotate(accessToken = `fake-token-${token.generation + 1}`): TokenResult {
    token = described(accessToken, token.generation + 1)
    setAbsence(undefined)
    return token
  }
  function setAbsence(next: typeof absence): void {
    absence = next
    for (const request of requests.keys()) serve(request)
  }
  return {
    ...createSource(options, connect),
    rotate,
    fail: (code, { message = `The fake says ${code}.`, reason } = {}) =>
      setAbsence({ code, message, ...(reason !== undefined && { reason }) }),
    goAway: () => setAbsence('away'),
    answerReports: (result) => {
      reportResult = result
    },
    reported,
  }
}
