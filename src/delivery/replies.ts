// Replies to clients, the same for both sockets: read from the keeper's state when they are requested.
import { type Instant, monotonicMs as systemMonotonicMs } from '../lib/clock.ts'
import { asSentence } from '../lib/display-text.ts'
import { invariant } from '../lib/invariant.ts'
import {
  FRAME_END,
  SHORT_LIFE_WAIT_MS,
  type Fault,
  type RefreshResult,
  type RejectRequest,
  type RejectResult,
  type StatusResult,
  type TokenRequest,
  type TokenResult,
} from '../protocol.ts'
import type { Keeper } from '../token/keeper.ts'
import { createLiveness } from '../token/variable.ts'
import type { RemedyOf } from '../host/remedy.ts'
import {
  dueAtMs,
  hasHadToken,
  isStale,
  refusalOf,
  usableToken,
  usableUntilMs,
  type TokenState,
} from '../token/state.ts'
import { fingerprintOf } from '../token/token.ts'
import { describeCurrent, describeToken, statusOf, type StatusSources } from './status.ts'

/** The value that was requested, or a fault that says why there is none. */
export type Result<T> = { readonly value: T } | { readonly fault: Fault }

/** The value at once if it is known, else a promise. */
export type MaybePromise<T> = T | Promise<T>

/** The token, ready to be sent: built when it, its phase or the wall clock changes, not for each request. */
export interface CachedToken {
  /** TokenResult as JSON. */
  readonly json: string
  /** What follows the id in a frame of `ipc.sock`. */
  readonly frameRest: string
  /** The token alone. */
  readonly text: string
  /** The header in which the API wants it, and its value. */
  readonly authorization: readonly [string, string]
  readonly fingerprint: string
  /** On the boot clock. */
  readonly expiresAtMs: number
}

export type Replies = ReturnType<typeof createReplies>

export function createReplies(options: {
  keeper: Keeper
  /** An operator's request; that of the keeper, unless it is given. */
  refresh?: Keeper['refresh']
  sources: StatusSources
  /** For the commands of remedies. */
  remedyOf: RemedyOf
  /** A clock that stops during suspend, in ms: a suspended loop cannot tick. */
  monotonicMs?: () => number
}) {
  const { keeper, sources, remedyOf, monotonicMs = systemMonotonicMs } = options
  const { refresh: ask = keeper.refresh } = options
  let cached = cachedReply(keeper.state(), keeper.now(), remedyOf)

  function current(now = keeper.now()): Result<CachedToken> {
    const state = keeper.state()
    if (state !== cached.state || now.bootMs >= cached.untilMs) cached = cachedReply(state, now, remedyOf)
    return cached.reply
  }

  function token(
    request: TokenRequest,
    by: { readonly signal: AbortSignal },
    now = keeper.now(),
  ): MaybePromise<Result<CachedToken>> {
    const reply = current(now)
    if ('value' in reply && isGoodEnough(reply.value, now, request)) return reply
    need(request)
    const leftMs = (): number => endOfWaitMs(request, now) - keeper.now().bootMs
    return leftMs() > 0 ? waitWhile(leftMs, by.signal).then(() => current()) : current()
  }

  /** Until when the answer may become better, on the boot clock; -Infinity: waiting is of no use. */
  function endOfWaitMs(request: TokenRequest, begun: Instant): number {
    const [state, now] = [keeper.state(), keeper.now()]
    const held = usableToken(state, now)
    const deadlineMs = begun.bootMs + (request.waitSeconds ?? 0) * 1_000
    if (held !== null && isGoodEnough(held, now, request)) return -Infinity
    const isHopeless = state.inFlight === null && dueAtMs(state) > deadlineMs
    // After other failures than a refusal an operator may trigger an attempt before the next one is due.
    if (held === null) return isHopeless && refusalOf(state) !== null ? -Infinity : deadlineMs
    if (held.fingerprint === request.notFingerprint) return deadlineMs
    if (isHopeless || (request.minValidSeconds ?? 0) * 1_000 > held.lifeMs) return -Infinity
    // A good token with less life than asked for is not held back for long: another is under way.
    return Math.min(deadlineMs, begun.bootMs + SHORT_LIFE_WAIT_MS)
  }

  /** Waits as long as there is time left: also longer, if the token that was held expires meanwhile. */
  async function waitWhile(leftMs: () => number, signal: AbortSignal): Promise<void> {
    for (let waitMs = leftMs(); waitMs > 0 && !signal.aborted; waitMs = leftMs())
      await keeper.waitUntil(() => leftMs() <= 0, { waitMs, signal })
  }

  function need({ minValidSeconds = 0 }: TokenRequest): void {
    if (minValidSeconds > 0) keeper.need(minValidSeconds * 1_000)
  }

  function reject(request: RejectRequest): Result<RejectResult> {
    const fingerprint = request.fingerprint ?? fingerprintOf(request.accessToken ?? '')
    const { verdict, retryAfterMs } = keeper.reject(fingerprint)
    const usable = usableToken(keeper.state(), keeper.now())
    return {
      value: {
        verdict,
        ...(usable !== null && { fingerprint: usable.fingerprint }),
        ...(retryAfterMs !== undefined && { retryAfterSeconds: Math.ceil(retryAfterMs / 1_000) }),
      },
    }
  }

  async function refresh(signal: AbortSignal): Promise<Result<RefreshResult>> {
    const refreshed = await ask(signal)
    const described = describeCurrent(keeper.state(), keeper.now())
    const tried = refreshed?.candidate ?? null
    const candidate = tried === null || tried.kind === 'ok' ? null : troubleOf(tried)
    const { outcome = STOPPING } = refreshed ?? {}
    if (outcome.kind === 'ok') return { value: { outcome: 'ok', ...described, candidate } }
    return { value: { outcome: 'failed', ...troubleOf(outcome), ...described, candidate } }
  }

  return {
    now: (): Instant => keeper.now(),
    /** The current token, or why there is none. */
    current,
    /** The token as it was asked for, now: waits for it up to `waitSeconds`. */
    token,
    /** Wakes the loop if the token does not live as long as a subscriber needs. */
    need,
    reject,
    /** Asks the service now; answers when the attempt is over or the signal is aborted. */
    refresh,
    async status(): Promise<Result<StatusResult>> {
      await sources.examineConfiguration()
      return { value: statusOf(keeper.state(), keeper.now(), sources) }
    },
    /**
     * Reports whether the scheduler has ticked within 45 s, which it does during a request to the service
     * too.
     */
    isAlive: createLiveness(keeper, monotonicMs),
    /**
     * Calls the listener when the token or the phase is another than before; returns a function that ends it.
     */
    onChange: (listener: () => void): (() => void) =>
      keeper.onEvent((event) => {
        if (event.type === 'changed') listener()
      }),
  }
}

function isGoodEnough(
  { fingerprint, expiresAtMs }: Pick<CachedToken, 'fingerprint' | 'expiresAtMs'>,
  now: Instant,
  { notFingerprint, minValidSeconds = 0 }: TokenRequest,
): boolean {
  if (fingerprint === notFingerprint) return false
  return minValidSeconds === 0 || expiresAtMs - now.bootMs >= minValidSeconds * 1_000
}

const STOPPING = {
  kind: 'stopping',
  reason: 'stopping',
  detail: 'kyc-tokend is stopping: ask again when it has been started',
} as const

function troubleOf({
  reason = 'not-asked',
  detail = 'This host does not ask the service now',
}: Partial<Record<'reason' | 'detail', string>>): { reason: string; detail: string } {
  return { reason, detail }
}

function faultOf(state: TokenState, remedyOf: RemedyOf): Fault {
  const refusal = refusalOf(state)
  const [code, words] =
    refusal !== null
      ? ([refusal.reason, 'The service refuses the account'] as const)
      : hasHadToken(state)
        ? (['expired', 'The token has expired and there is no other'] as const)
        : (['no-token-yet', 'There is no token yet'] as const)
  const failure = refusal ?? state.failure ?? state.postponement
  if (failure === null) return { code, message: `${words}: the service is being asked. Wait, or ask again.` }
  const { reason, detail } = failure
  const remedy = asSentence(remedyOf(reason))
  return { code, message: `${words}: ${asSentence(detail)} ${remedy}`, reason }
}

/** What follows the id in a frame, of a result as JSON. */
export function frameRestOf(json: string): string {
  return `,${json.slice(1)}}${FRAME_END}`
}

/**
 * The reply for this state; valid until the state changes, or until `untilMs` on the boot clock, when time
 * alone changes it.
 */
function cachedReply(
  state: TokenState,
  now: Instant,
  remedyOf: RemedyOf,
): { readonly state: TokenState; readonly reply: Result<CachedToken>; readonly untilMs: number } {
  const token = usableToken(state, now)
  if (token === null) return { state, reply: { fault: faultOf(state, remedyOf) }, untilMs: Infinity }
  invariant(now.bootMs < usableUntilMs(token), 'no-token-past-its-end', { generation: token.generation })
  const result: TokenResult = { accessToken: token.accessToken, ...describeToken(token, state, now) }
  const json = JSON.stringify(result)
  const { accessToken: text, fingerprint, expiresAtMs } = token
  const { header, prefix } = state.use
  const authorization = [header, prefix + text] as const
  const value = { json, frameRest: frameRestOf(json), text, authorization, fingerprint, expiresAtMs }
  return { state, reply: { value }, untilMs: isStale(token, now) ? usableUntilMs(token) : token.expiresAtMs }
}
