// A client without a daemon, for the tests of programs that use one.
import type { FaultCode, RejectResult } from '../protocol.ts'
import type { Connect, Request } from './connection.ts'
import { createSource } from './create-source.ts'
import { createFakeDaemon } from './fake-daemon.ts'
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
 * nothing will bring has what there is. A token whose life is over is an error, until `rotate`. Its `fetch`
 * sends real requests, unless the option `fetch` or `globalThis.fetch` is replaced.
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
  const requests = new Set<Request>()
  const daemon = createFakeDaemon(options, () => {
    for (const request of requests) serve(request)
  })
  let onAnswer: Parameters<Connect>[0] = (frame) => frame

  function serve(request: Request, { isOver = false } = {}): void {
    if (!requests.has(request)) return
    if (daemon.isAway()) {
      if (!request.onDisconnect({ path: 'the fake' })) requests.delete(request)
      return
    }
    const frame = request.frame()
    if (!isOver && daemon.isToWait(frame)) {
      setTimeout(serve, Number(frame.data['waitSeconds']) * 1_000, request, { isOver: true }).unref()
      return
    }
    if (frame.type !== 'token.subscribe') requests.delete(request)
    const answer = onAnswer(daemon.answerTo(frame))
    if (answer !== undefined) request.onAnswer(answer)
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

  return {
    ...createSource(options, connect),
    rotate: daemon.rotate,
    fail: (code, { message = `The fake says ${code}.`, reason } = {}) =>
      daemon.setAbsence({ code, message, ...(reason !== undefined && { reason }) }),
    goAway: () => daemon.setAbsence('away'),
    answerReports: daemon.answerReports,
    reported: daemon.reported,
  }
}
