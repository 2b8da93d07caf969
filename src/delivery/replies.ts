// Replies to clients, the same for both sockets: read from the keeper's state when they are requested. The
// ordinary one is text that is ready to be sent.
import type { RemedyOf } from '../host/remedy.ts'
import { formatInstant, formatInstantOrNull, type Instant } from '../lib/clock.ts'
import { asSentence } from '../lib/display-text.ts'
import {
  FRAME_END,
  SHORT_LIFE_WAIT_MS,
  fingerprintOf,
  STANDARD_USE,
  type Fault,
  type RefreshResult,
  type RejectRequest,
  type RejectResult,
  type StatusResult,
  type TokenDescription,
  type TokenRequest,
  type TokenUse,
} from '../protocol.ts'
import type { Keeper } from '../token/keeper.ts'
import {
  canMeet,
  candidateOf,
  dueAtMs,
  isStale,
  phaseOf,
  refusalOf,
  shownClock,
  usableToken,
  usableUntilMs,
} from '../token/selectors.ts'
import { recordOf, type TokenState } from '../token/state.ts'
import type { Token } from '../token/token.ts'
import { waitsOf, type Connection } from './guard.ts'

/** The value at once if it is known, else a promise. */
export type MaybePromise<T> = T | Promise<T>

/** A result, ready to be sent. */
export interface Answer {
  readonly json: string
  /** The part of a frame of `ipc.sock` after the id. */
  readonly frameRest: string
}
/** The current token: made when it, its phase or the wall clock changes. */
export interface TokenAnswer extends Answer {
  readonly token: Token
  /** How the API wants it. */
  readonly use: TokenUse
}
/** The answer to a request, or a fault that says why there is none. */
export type Reply = Answer | TokenAnswer | { readonly fault: Fault }
type TokenReply = TokenAnswer | { readonly fault: Fault }
/** The parts of the status that other components know. */
export type StatusSources = Pick<StatusResult, 'files' | 'clients' | 'daemon' | 'share' | 'alert'>
export type Replies = ReturnType<typeof createReplies>

export function createReplies(options: {
  keeper: Keeper
  /** An operator's request. */
  refresh: Keeper['refresh']
  sources: () => Promise<StatusSources>
  /** The words for what a person does about a failure. */
  remedyOf: RemedyOf
}) {
  const { keeper, sources, remedyOf } = options
  let cached = cachedReply(keeper.state(), keeper.now(), remedyOf)

  function current(now = keeper.now()): TokenReply {
    const state = keeper.state()
    if (state !== cached.state || now.bootMs >= cached.untilMs) cached = cachedReply(state, now, remedyOf)
    return cached.reply
  }

  function token(request: TokenRequest, client: Connection): MaybePromise<TokenReply> {
    const begun = keeper.now()
    const reply = current(begun)
    const begunMs = begun.bootMs
    if (!('fault' in reply) && isGoodEnough(reply.token, begunMs, request)) return reply
    need(request)
    const leftMs = (): number => endOfWaitMs(request, begunMs) - keeper.now().bootMs
    if (leftMs() <= 0) return current()
    return waitWhile(leftMs, waitsOf(client)).then(() => current())
  }

  /** Until when the answer may become better, on the boot clock; -Infinity: waiting is of no use. */
  function endOfWaitMs(request: TokenRequest, begunMs: number): number {
    const [state, moment] = [keeper.state(), keeper.now()]
    const usable = usableToken(state, moment)
    const deadlineMs = begunMs + (request.waitSeconds ?? 0) * 1_000
    if (usable !== null && isGoodEnough(usable, moment.bootMs, request)) return -Infinity
    if (refusalOf(state) !== null) return -Infinity
    if (usable === null || usable.fingerprint === request.notFingerprint) return deadlineMs
    if (!canMeet(usable, (request.minValidSeconds ?? 0) * 1_000)) return -Infinity
    // A good token with less life than asked for is not held back for long: another is under way.
    return Math.min(deadlineMs, begunMs + SHORT_LIFE_WAIT_MS)
  }

  /** Waits as long as there is time left: also longer, if the token expires meanwhile. */
  async function waitWhile(leftMs: () => number, signal: AbortSignal): Promise<void> {
    for (let waitMs = leftMs(); waitMs > 0 && !signal.aborted; waitMs = leftMs())
      await keeper.waitUntil(() => leftMs() <= 0, { waitMs, signal })
  }

  function need({ minValidSeconds = 0 }: TokenRequest): void {
    if (minValidSeconds > 0) keeper.need(minValidSeconds * 1_000)
  }

  return {
    /** The current token, or why there is none. */
    current,
    /** The token as it was asked for, now: waits for it up to `waitSeconds`. */
    token,
    /** Wakes the loop if the token does not live as long as a subscriber needs. */
    need,
    reject(request: RejectRequest): RejectResult {
      const fingerprint = request.fingerprint ?? fingerprintOf(request.accessToken ?? '')
      const { verdict, retryAfterMs } = keeper.reject(fingerprint)
      const usable = usableToken(keeper.state(), keeper.now())
      return {
        verdict,
        ...(usable !== null && { fingerprint: usable.fingerprint }),
        ...(retryAfterMs !== undefined && { retryAfterSeconds: Math.ceil(retryAfterMs / 1_000) }),
      }
    },
    /** Asks the service now; answers when the attempt is over or the signal is aborted. */
    async refresh(signal: AbortSignal): Promise<RefreshResult> {
      const { outcome, candidate: asked } = (await options.refresh(signal)) ?? STOPPING
      const candidate = asked === null || asked.kind === 'ok' ? null : troubleOf(asked)
      const described = { ...describeCurrent(keeper.state(), keeper.now()), candidate }
      if (outcome.kind === 'ok') return { outcome: 'ok', ...described }
      return { outcome: 'failed', ...troubleOf(outcome), ...described }
    },
    async status(): Promise<StatusResult> {
      const parts = await sources()
      return statusOf(keeper.state(), keeper.now(), parts)
    },
    /** Reports whether the keeper's loop has ticked lately. */
    isAlive: keeper.isAlive,
    /** Calls the listener when the token or the phase changes. Returns the function that ends it. */
    onChange: (listener: () => void): (() => void) =>
      keeper.onEvent(({ type }) => type === 'changed' && listener()),
  }
}

export function answerOf(result: object): Answer {
  const json = JSON.stringify(result)
  return { json, frameRest: `,${json.slice(1)}}${FRAME_END}` }
}

export function isToken(reply: Reply): reply is TokenAnswer {
  return 'token' in reply
}

function isGoodEnough(
  { fingerprint, expiresAtMs }: Token,
  nowMs: number,
  { minValidSeconds = 0, notFingerprint }: TokenRequest,
): boolean {
  if (fingerprint === notFingerprint) return false
  // A stale token is handed out for lack of a better one, whatever it lacks.
  return minValidSeconds === 0 || expiresAtMs - nowMs >= minValidSeconds * 1_000
}

const RESTART = 'kyc-tokend is stopping: ask again when it has been started'
const STOPPING = {
  outcome: { kind: 'stopping', reason: 'stopping', detail: RESTART },
  candidate: null,
} as const

/** An attempt is postponed for a moment without a reason. */
function troubleOf({ reason, detail }: { reason?: string; detail?: string }) {
  return { reason: reason ?? 'not-asked', detail: detail ?? 'This host does not ask the service now' }
}

function faultOf(state: TokenState, now: Instant, remedyOf: RemedyOf): Fault {
  const refusal = refusalOf(state)
  const [code, words] =
    refusal !== null
      ? ([refusal, 'The service refuses the account'] as const)
      : phaseOf(state, now) === 'expired'
        ? (['expired', 'The token has expired and there is no other'] as const)
        : (['no-token-yet', 'There is no token yet'] as const)
  const { failure } = recordOf(state, state.running)
  if (failure === null) return { code, message: `${words}: the service is being asked. Wait, or ask again.` }
  const { reason, detail } = failure
  return { code, message: `${words}: ${asSentence(detail)} ${asSentence(remedyOf(reason))}`, reason }
}

/**
 * The reply for this state; valid until the state changes, or until `untilMs` on the boot clock, when time
 * alone changes it.
 */
function cachedReply(state: TokenState, now: Instant, remedyOf: RemedyOf) {
  const token = usableToken(state, now)
  if (token === null) return { state, reply: { fault: faultOf(state, now, remedyOf) }, untilMs: Infinity }
  const answer = answerOf({ accessToken: token.accessToken, ...describeToken(token, state, now) })
  const reply = { ...answer, token, use: state.service.use }
  return { state, reply, untilMs: isStale(token, now) ? usableUntilMs(state, now) : token.expiresAtMs }
}

function describeToken(token: Token, state: TokenState, now: Instant): TokenDescription {
  const { expirySource, fingerprint } = token
  const shown = shownClock(state)
  const { use, baseUrl, refusedBy } = state.service
  return {
    tokenType: use.prefix === STANDARD_USE.prefix ? 'Bearer' : null,
    ...use,
    obtainedAt: formatInstant(token.receivedAtMs, shown),
    expiresAt: formatInstant(token.expiresAtMs, shown),
    expirySource,
    baseUrl,
    refusedBy,
    refreshAt: formatInstant(token.refreshAtMs, shown),
    generation: state.generation,
    fingerprint,
    state: phaseOf(state, now),
    stale: isStale(token, now),
  }
}

function describeCurrent(state: TokenState, now: Instant): TokenDescription | null {
  const token = usableToken(state, now)
  return token && describeToken(token, state, now)
}

function statusOf(state: TokenState, now: Instant, parts: StatusSources): StatusResult {
  const format = ({ bootMs }: Instant): string => formatInstant(bootMs, now)
  const { service, lastRequestAt, lastSuccessAt, requests, newest, newestSince } = state
  const running = recordOf(state, state.running)
  const candidate = candidateOf(state)
  return {
    state: phaseOf(state, now),
    token: describeCurrent(state, now),
    failure: running.failure && {
      ...failureOf(running.failure),
      attempts: running.attempts,
      since: format(running.failure.since),
    },
    nextAttemptAt: formatInstantOrNull(dueAtMs(state, now), now),
    candidate: candidate && {
      ...failureOf(candidate.failure ?? NOTHING),
      attempts: candidate.attempts,
      since: format(newestSince),
      nextAttemptAt: formatInstantOrNull(dueAtMs(state, now, newest), now),
    },
    service: {
      baseUrl: service.baseUrl,
      lastRequestAt: lastRequestAt && format(lastRequestAt),
      lastSuccessAt: lastSuccessAt && format(lastSuccessAt),
      requests,
    },
    ...parts,
  }
}

const NOTHING = { reason: null, detail: null, status: null }

/** The last failure of a pair. */
function failureOf<Text extends string | null>(failure: {
  readonly reason: Text
  readonly detail: Text
  readonly status: number | null
}) {
  const { reason, detail, status } = failure
  return { reason, detail, ...(status !== null && { status }) }
}
