// A client without a daemon, for the tests of programs that use one.
import { createHash } from 'node:crypto'
import {
  answerTypes,
  FINGERPRINT_LENGTH,
  type Fault,
  type FaultCode,
  type Phase,
  type RefreshResult,
  type RejectResult,
  type RequestType,
  type StatusResult,
  type TokenDescription,
} from '../protocol.ts'
import { checkedAnswer, WITHOUT_TOKEN } from './answers.ts'
import type { Connect, Request } from './connection.ts'
import { createSource } from './create-source.ts'
import type { Frame } from './frames.ts'
import type { ClientOptions, ClientToken, TokenSource } from './token-source.ts'

export type { TokenSource } from './token-source.ts'

/** For how long a report is held if the test does not say it, as the daemon does. */
const HELD_SECONDS = 30
const STATES: Readonly<Record<string, Phase>> = {
  ready: 'ready',
  'no-token-yet': 'starting',
  'account-inactive': 'refused',
  'account-not-found': 'refused',
}

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
  readonly rotate: (accessToken?: string) => ClientToken
  /** From now on there is no token: calls are rejected with this code. */
  readonly fail: (
    code: FaultCode,
    options?: { message?: string | undefined; reason?: string | undefined },
  ) => void
  /** From now on the daemon is away: the last token is given from memory, everything else is rejected. */
  readonly goAway: () => void
  /**
   * From now on the answer to the report of the current token. By default it is `refreshing`, and another
   * token comes at once. After `refreshing` or `held` from here, who waits for another token waits for `rotate`.
   */
  readonly answerReports: (result: RejectResult) => void
  /** Fingerprints of the tokens that were reported as refused, oldest first. */
  readonly reported: readonly string[]
}

/**
 * A fake client, also under the fake timers of Jest and vitest. It answers at once: who waits for a token that
 * nothing will bring has what there is. A token whose life is over is an error, until `rotate`. Its `fetch` sends real requests, unless the option `fetch` or `globalThis.fetch` is replaced.
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
  const requests = new Set<Request>()
  let onAnswer = (frame: Frame): Frame | undefined => frame
  let token = described(first, 1)
  let absence: 'away' | Fault | undefined
  let reportResult: RejectResult | undefined
  /** By the last report of the current token: another one is to come. */
  let isAwaited = false

  function described(accessToken: string, generation: number): ClientToken {
    const isoIn = (seconds: number): string => new Date(Date.now() + seconds * 1_000).toISOString()
    const made: ClientToken = {
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
    if (checkedAnswer({ type: 'token.result', data: { ...made } }) !== undefined) return made
    throw new TypeError('kyc-tokend has no such token: visible ASCII, a life in seconds and an http URL.')
  }

  const lifeLeftMs = (): number => Date.parse(token.expiresAt) - Date.now()
  function currentFault(): Fault | undefined {
    if (typeof absence === 'object') return absence
    return lifeLeftMs() > 0 ? undefined : { code: 'expired', message: 'The token of the fake has expired.' }
  }

  function description(): TokenDescription {
    const { accessToken: _, ...rest } = token
    return rest
  }

  /** The answer to a report, as the daemon judges it. */
  function report(fingerprint: unknown): RejectResult {
    reported.push(String(fingerprint))
    const fault = currentFault()
    if (fault?.code.startsWith('account-') === true) return { verdict: 'refused' }
    if (fault !== undefined) return { verdict: 'refreshing' }
    if (fingerprint !== token.fingerprint) return { verdict: 'replaced' }
    const result = reportResult ?? { verdict: 'refreshing' }
    isAwaited = result.verdict === 'refreshing' || result.verdict === 'held'
    const isLater = result.verdict === 'held' || result.verdict === 'unchanged'
    return isLater ? { retryAfterSeconds: HELD_SECONDS, ...result } : result
  }

  function refresh(): RefreshResult {
    if (typeof absence === 'object')
      return { outcome: 'failed', reason: absence.reason ?? absence.code, detail: absence.message }
    rotate()
    return { outcome: 'ok', ...description() }
  }

  /** The answer to this request; a subscription has another at each change. */
  function answerTo(type: RequestType, { fingerprint }: Frame['data']): object {
    if (type === 'status.get') return status(currentFault())
    if (type === 'token.reject') return report(fingerprint)
    if (type === 'refresh.request') return refresh()
    return type === 'alert.test' ? { outcome: 'raised' } : token
  }

  /** That there is no token concerns requests for one alone. */
  function faultFor(type: RequestType): Fault | undefined {
    const fault = currentFault()
    const isForToken = type === 'token.get' || type === 'token.subscribe'
    return isForToken || !WITHOUT_TOKEN.has(fault?.code) ? fault : undefined
  }

  /** Another token than this one, which the last report is to bring. */
  function waitsForAnother({ notFingerprint, waitSeconds }: Frame['data']): boolean {
    return isAwaited && notFingerprint === token.fingerprint && Number(waitSeconds) > 0
  }

  function serve(request: Request, { isOver = false } = {}): void {
    if (!requests.has(request)) return
    if (absence === 'away')
      return void (request.onDisconnect({ path: 'the fake' }) || requests.delete(request))
    const { type, data } = request.frame() as { type: RequestType; data: Frame['data'] }
    const fault = faultFor(type)
    if (!isOver && fault === undefined && waitsForAnother(data)) {
      setTimeout(serve, Number(data['waitSeconds']) * 1_000, request, { isOver: true }).unref()
      return
    }
    if (type !== 'token.subscribe') requests.delete(request)
    const fields = fault ?? answerTo(type, data)
    const frame = onAnswer({ type: fault === undefined ? answerTypes[type] : 'fault', data: { ...fields } })
    if (frame !== undefined) request.onAnswer(frame)
    if (type === 'token.reject') afterReport()
  }

  function afterReport(): void {
    if (reportResult === undefined && isAwaited) rotate()
  }

  function status(fault: Fault | undefined): StatusResult {
    const since = token.obtainedAt
    const { code = 'ready', reason = 'network', message: detail = '' } = fault ?? {}
    const daemon = { version: 'fake', pid: process.pid, startedAt: since, configFile: '', host: 'localhost' }
    return {
      state: STATES[code] ?? 'expired',
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
        requests.add(request)
        // Fake timers hold all but promises.
        void Promise.resolve().then(() => serve(request))
        return () => requests.delete(request)
      },
      mayStop: false,
      monotonicMs: () => Date.now(),
    }
  }

  function rotate(accessToken = `fake-token-${token.generation + 1}`): ClientToken {
    token = described(accessToken, token.generation + 1)
    setAbsence(undefined)
    return token
  }
  function setAbsence(next: typeof absence): void {
    absence = next
    isAwaited = false
    for (const request of requests) serve(request)
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
