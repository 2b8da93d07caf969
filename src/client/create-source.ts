// The methods of a client, over any connection to a daemon.
import {
  FINGERPRINT_LENGTH,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
  type AlertTestResult,
  type RefreshResult,
  type ReloadResult,
  type RejectResult,
  type StatusResult,
} from '../protocol.ts'
import { createFetch, placeOf, type Admission } from './authorized-fetch.ts'
import { checkedAnswer, endsMemory, tokenCopy, tokenOf } from './answers.ts'
import { answerMsFor, call, isWithoutToken, type Call } from './call.ts'
import type { Connect } from './connection.ts'
import { badRequest, closedError, isFault } from './errors.ts'
import { createPlaces, createSharing } from './queue.ts'
import { createRefusals } from './refusals.ts'
import { checkedSignal, unlessAborted } from './signals.ts'
import { createSubscriptions } from './subscription.ts'
import type { AuthorizeOptions, ClientOptions, ClientToken, GetOptions, TokenSource } from './token-source.ts'

const DEFAULT_WAIT_SECONDS = 10
/** After an answer without a token, until the daemon is asked again. */
const PAUSE_MS = 250
/** So many requests of a connection may wait for a token: with another one the daemon ends it. */
const MAX_WAITING = 16
/** One attempt at the service, and one that is under way before it. */
const REFRESH_MS = 120_000
/** The daemon answers within 60 s, and reads its files before. */
const RELOAD_MS = 80_000

/** The token that a caller wants, and what it waits for. */
interface Wish {
  readonly minValidSeconds: number
  readonly notFingerprint: string | undefined
  readonly waitSeconds: number
  /** Also for a daemon that was never there. */
  readonly waitsForStart: boolean
  /** For one call to the API, and not for the program. */
  readonly isForCall: boolean
}

type Question<T> = Omit<Call<T>, 'signals'> & { signal?: AbortSignal | null | undefined }

const FINGERPRINT = new RegExp(`^[0-9a-f]{${FINGERPRINT_LENGTH}}$`)

/** Throws TypeError if one of `origins` is no URL. */
export function createSource(
  { name, origins, signal, ...options }: ClientOptions,
  connect: Connect,
): TokenSource & { alertTest: () => Promise<AlertTestResult>; reload: () => Promise<ReloadResult> } {
  /** Ends every wait of this client, also those that begin later. */
  const closing = new AbortController()
  const close = (): void => closing.abort(closedError())
  const endsAll = checkedSignal(signal)
  if (endsAll?.aborted === true) close()
  endsAll?.addEventListener('abort', close, { signal: closing.signal })

  /** The daemon's last token; none once it says that there is none. */
  let last: { token: ClientToken; expiresAtMs: number } | undefined
  const connection = connect((frame) => {
    const answer = checkedAnswer(frame)
    const token = answer && tokenOf(answer)
    if (token !== undefined) remember(token)
    else if (endsMemory(frame)) last = undefined
    return answer
  }, closing.signal)
  const { monotonicMs } = connection
  const subscribe = createSubscriptions(connection, { name, signal: closing.signal })
  const share = createSharing<ClientToken>()
  const places = createPlaces(MAX_WAITING)
  const refusals = createRefusals({
    monotonicMs,
    get,
    reject: (fingerprint) =>
      ask<RejectResult>({ type: 'token.reject', data: () => ({ fingerprint, client: name }) }),
  })

  const ask = async <T>({ signal: end, ...question }: Question<T>): Promise<T> =>
    call(connection, { ...question, signals: [closing.signal, checkedSignal(end)] })

  function remember(token: ClientToken): void {
    // Who waits for a place may want this one, and places may be those of waits that nobody waits for any more.
    if (token.fingerprint !== last?.token.fingerprint) places.dismissAll()
    last = { token, expiresAtMs: monotonicMs() + Date.parse(token.expiresAt) - Date.now() }
  }

  /**
   * The last token, if it is as good as asked for. Its life is counted on two clocks: one stops during
   * suspend, the other may be set. A reported one is given for a call alone: another call may have had its
   * own reason.
   */
  function cached({ minValidSeconds, notFingerprint, isForCall }: Wish): ClientToken | undefined {
    if (last === undefined || last.token.fingerprint === notFingerprint) return undefined
    if (!isForCall && refusals.has(last.token.fingerprint)) return undefined
    const leftMs = Math.min(Date.parse(last.token.expiresAt) - Date.now(), last.expiresAtMs - monotonicMs())
    return leftMs > 0 && leftMs >= minValidSeconds * 1_000 ? { ...last.token, cached: true } : undefined
  }

  /** One request for a token, shared by all callers who wish for the same; without `waitMs` it does not wait. */
  function askForToken(wish: Wish, waitMs: number, end: AbortSignal | undefined): Promise<ClientToken> {
    const { minValidSeconds, notFingerprint, waitsForStart } = wish
    async function begin(unwanted: AbortSignal): Promise<ClientToken> {
      const untilMs = monotonicMs() + waitMs
      const leave = waitMs > 0 ? await places.take(waitMs, [unwanted, closing.signal]) : undefined
      const leftMs = leave === undefined ? 0 : Math.max(0, untilMs - monotonicMs())
      const answer = ask<ClientToken>({
        type: 'token.get',
        // Up to a tenth of a second more than is left, for which the time for the answer has room.
        data: (ms) => {
          const seconds = Math.ceil(ms / 100) / 10
          return { minValidSeconds, notFingerprint, waitSeconds: seconds, client: name }
        },
        waitMs: leftMs,
        answerMs: answerMsFor(leftMs),
        waitsForStart,
        signal: unwanted,
        fallback: () => cached(wish),
      })
      const isAnswer = await answer.then(
        ({ cached: isCached }) => isCached !== true,
        (error: unknown) => isFault(error),
      )
      // Nobody waits any more, but the daemon does until then.
      if (isAnswer) leave?.()
      else if (leave !== undefined) setTimeout(leave, leftMs).unref()
      return answer
    }
    return share(JSON.stringify([wish, waitMs > 0]), begin, end)
  }

  /**
   * To be asked first without a wait. Where memory could answer, because a daemon that waits for a token is not
   * away: it says that it has none. So too if this wait would be queued.
   */
  function isAskedFirst(wish: Wish): boolean {
    return wish.waitSeconds > 0 && (cached(wish) !== undefined || places.isFull())
  }

  /**
   * The token without a wait, if it is good enough. Asks again if another one came meanwhile: it dismissed who
   * was in the queue, and this wait was not there yet.
   */
  async function askFirst(wish: Wish, end: AbortSignal | undefined): Promise<ClientToken | undefined> {
    for (;;) {
      const known = last?.token.fingerprint
      const token = await askForToken(wish, 0, end).catch(() => undefined)
      if (token !== undefined && isGoodEnough(token, wish)) return token
      if (last?.token.fingerprint === known) return undefined
    }
  }

  async function get(request: GetOptions | null = {}, { isForCall = false } = {}): Promise<ClientToken> {
    const wish = { ...wishOf(request ?? {}), isForCall }
    const { waitSeconds, notFingerprint } = wish
    const end = checkedSignal(request?.signal)
    const untilMs = monotonicMs() + waitSeconds * 1_000
    // A daemon that stops, or a request that began earlier, answers before this caller's time is over.
    const isFinal = (): boolean => !connection.mayStop || untilMs - monotonicMs() < PAUSE_MS
    for (;;) {
      const first = isAskedFirst(wish) ? await askFirst(wish, end) : undefined
      if (first !== undefined) return first
      try {
        const token = await askForToken(wish, Math.max(0, untilMs - monotonicMs()), end)
        if (token.fingerprint !== notFingerprint || isFinal()) return token
      } catch (error) {
        if (!isWithoutToken(error) || isFinal()) throw error
      }
      await unlessAborted(pause(), closing.signal, end)
    }
  }

  /** An authorization for a call to this place; without a place, its refusals are remembered nowhere else. */
  async function admit({ url, method = 'GET', ...request }: AuthorizeOptions): Promise<Admission> {
    const place = url === undefined ? undefined : placeOf(url, method)
    const end = checkedSignal(request.signal)
    const admissionOf = (token: ClientToken, { isRepetition }: { isRepetition: boolean }): Admission => ({
      headers: { [token.header]: `${token.prefix}${token.accessToken}` },
      token: tokenCopy(token),
      refusedBy: [...token.refusedBy],
      async refused({ isFinal = false } = {}) {
        const next = await refusals.nextToken(token, { place, isRepetition, isFinal, signal: end })
        return next === undefined ? undefined : admissionOf(next, { isRepetition: true })
      },
    })
    return admissionOf(await get(request, { isForCall: true }), { isRepetition: false })
  }

  return {
    get: async (request) => tokenCopy(await get(request)),
    authorize: async (request) => admit(request ?? {}),
    fetch: createFetch({ ...options, origins: origins?.map((origin) => new URL(origin).origin) }, admit),
    subscribe,
    async reject(token, request) {
      const named: unknown = typeof token === 'string' ? token : token?.fingerprint
      if (typeof named !== 'string') throw badRequest('Report a token, or an object with its `fingerprint`.')
      const end = checkedSignal(request?.signal)
      const fingerprint = typeof token === 'string' ? await fingerprintOf(token) : named
      return unlessAborted(refusals.report(fingerprint), end)
    },
    status: async (request) => ask<StatusResult>({ type: 'status.get', signal: request?.signal }),
    refresh: async (request) =>
      ask<RefreshResult>({
        type: 'refresh.request',
        answerMs: REFRESH_MS,
        isOnce: true,
        signal: request?.signal,
      }),
    alertTest: async () => ask<AlertTestResult>({ type: 'alert.test', isOnce: true }),
    reload: async () => ask<ReloadResult>({ type: 'reload.request', answerMs: RELOAD_MS, isOnce: true }),
    close,
    [Symbol.dispose]: close,
  }
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, PAUSE_MS))
}

function isGoodEnough({ fingerprint, expiresAt }: ClientToken, wish: Wish): boolean {
  const leftMs = Date.parse(expiresAt) - Date.now()
  return fingerprint !== wish.notFingerprint && leftMs >= wish.minValidSeconds * 1_000
}

/** What a caller asks for, as it is now. Throws `bad-request` for what the daemon would refuse. */
function wishOf({ minValidSeconds = 0, notFingerprint, waitSeconds }: GetOptions): Omit<Wish, 'isForCall'> {
  checkSeconds('minValidSeconds', minValidSeconds, MAX_MIN_VALID_SECONDS)
  checkSeconds('waitSeconds', waitSeconds ?? 0, MAX_WAIT_SECONDS)
  if (notFingerprint !== undefined && !FINGERPRINT.test(notFingerprint))
    throw badRequest('notFingerprint must be the fingerprint of a token.')
  const waitsForStart = waitSeconds !== undefined
  return { minValidSeconds, notFingerprint, waitSeconds: waitSeconds ?? DEFAULT_WAIT_SECONDS, waitsForStart }
}

function checkSeconds(name: string, value: unknown, max: number): void {
  const isInRange = typeof value === 'number' && value >= 0 && value <= max
  if (!isInRange) throw badRequest(`${name} must be a number of seconds from 0 to ${max}.`)
}

async function fingerprintOf(token: string): Promise<string> {
  const { createHash } = await import('node:crypto')
  return createHash('sha256').update(token).digest('hex').slice(0, FINGERPRINT_LENGTH)
}
