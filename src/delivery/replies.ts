// What is answered: the same for both sockets. Everything is read out of the keeper's state when it is asked for.
import { tellInstant, tellingBy, type Instant } from '../lib/clock.ts'
import type {
  Fault,
  RefreshResult,
  RejectRequest,
  RejectResult,
  StatusResult,
  TokenDescription,
  TokenRequest,
  TokenResult,
} from '../protocol.ts'
import type { Keeper } from '../token/keeper.ts'
import { remedyFor } from '../token/remedy.ts'
import {
  dueAtMs,
  failureOf,
  isStale,
  phaseOf,
  usableToken,
  usableUntilMs,
  type TokenState,
} from '../token/state.ts'
import { fingerprintOf, type Token } from '../token/token.ts'

/** What was asked for, or a fault that says why not. */
export type Answer<T> = { readonly value: T } | { readonly fault: Fault }

/** The token, made ready to be sent: built when it, its phase or the wall clock changes, not when it is asked for. */
export interface PreparedToken {
  /** TokenResult without its opening brace, in ASCII: put an id before it. */
  readonly tail: string
  /** TokenResult as JSON, in ASCII. */
  readonly json: string
  /** The token alone, in ASCII. */
  readonly text: string
}

export interface Replies {
  /** The token to hand out now, or null. Two readings of the clock and three comparisons. */
  prepared(): PreparedToken | null
  /** The token to hand out now, or why there is none. */
  current(): Answer<PreparedToken>
  /** At once where that can be, else a promise: waits for a token as it was asked for, up to `waitSeconds`. */
  token(request: TokenRequest, signal: AbortSignal): Answer<PreparedToken> | Promise<Answer<PreparedToken>>
  /** Where the token does not live as long as a subscriber needs, the loop is woken. */
  need(request: TokenRequest): void
  reject(request: RejectRequest): Answer<RejectResult>
  /** Asks the service now; answers when the attempt is over or the signal is aborted. */
  refresh(signal: AbortSignal): Promise<Answer<RefreshResult>>
  status(): Answer<StatusResult>
  /** Whether the scheduler lives: it has looked at the clock within 45 s, which it does during a request too. */
  isAlive(): boolean
  /** Calls the listener when the token or the phase is another than before; returns a function that ends it. */
  onChange(listener: () => void): () => void
}

/** What the other parts of the daemon know and the status tells. */
export interface StatusParts {
  files(): StatusResult['files']
  clients(): StatusResult['clients']
  daemon(): StatusResult['daemon']
}

/** How far the wall clock may move before the instants that are told are reckoned anew, in ms. */
const WALL_TOLERANCE_MS = 1_000
/** The loop looks every 15 s; three looks missed are no accident. */
const ALIVE_MS = 45_000

export function createReplies(options: {
  keeper: Keeper
  parts: StatusParts
  /** A clock that stands still during suspend, in ms: what did not run cannot have looked. */
  monotonicMs?: () => number
}): Replies {
  const { keeper, parts, monotonicMs = () => performance.now() } = options
  let told = prepare(keeper.state(), keeper.now())
  let lookedAtMs = monotonicMs()
  keeper.onEvent((event) => {
    if (event.type === 'looked') lookedAtMs = monotonicMs()
  })

  function prepared(): PreparedToken | null {
    const now = keeper.now()
    const state = keeper.state()
    const isCurrent =
      state === told.state &&
      now.bootMs < told.untilMs &&
      Math.abs(now.wallMs - now.bootMs - told.wallOffsetMs) <= WALL_TOLERANCE_MS
    if (!isCurrent) told = prepare(state, now)
    return told.token
  }

  function current(): Answer<PreparedToken> {
    const value = prepared()
    return value === null ? { fault: faultOf(keeper.state()) } : { value }
  }

  function token(
    request: TokenRequest,
    signal: AbortSignal,
  ): Answer<PreparedToken> | Promise<Answer<PreparedToken>> {
    const waitMs = (request.waitSeconds ?? 0) * 1_000
    const deadlineMs = keeper.now().bootMs + waitMs
    const isFinal = (): boolean => isAnswerFinal(keeper.state(), keeper.now(), { request, deadlineMs })
    if (isGoodEnough(keeper.state(), keeper.now(), request)) return current()
    need(request)
    if (waitMs === 0 || isFinal()) return current()
    return keeper.until(isFinal, { waitMs, signal }).then(current)
  }

  function need({ minValidSeconds = 0 }: TokenRequest): void {
    if (minValidSeconds > 0) keeper.need(minValidSeconds * 1_000)
  }

  function reject(request: RejectRequest): Answer<RejectResult> {
    const fingerprint = request.fingerprint ?? fingerprintOf(request.accessToken ?? '')
    const { verdict, retryAfterMs } = keeper.report(fingerprint)
    const now = usableToken(keeper.state(), keeper.now())
    return {
      value: {
        verdict,
        ...(now !== null && { fingerprint: now.fingerprint }),
        ...(retryAfterMs !== undefined && { retryAfterSeconds: Math.ceil(retryAfterMs / 1_000) }),
      },
    }
  }

  async function refresh(signal: AbortSignal): Promise<Answer<RefreshResult>> {
    const outcome = await keeper.refresh(signal)
    const described = describeCurrent(keeper.state(), keeper.now())
    if (outcome?.kind === 'ok') return { value: { outcome: 'ok', ...described } }
    const why =
      outcome === undefined
        ? { reason: 'stopping', detail: 'kyc-tokend is stopping: ask again when it has been started' }
        : { reason: outcome.reason, detail: outcome.detail }
    return { value: { outcome: 'failed', ...why, ...described } }
  }

  const isAlive = (): boolean => monotonicMs() - lookedAtMs < ALIVE_MS

  return {
    prepared,
    current,
    token,
    need,
    reject,
    refresh,
    status: () => ({ value: statusOf(keeper.state(), keeper.now(), parts) }),
    isAlive,
    onChange: (listener) =>
      keeper.onEvent((event) => {
        if (event.type === 'changed') listener()
      }),
  }
}

// ---- judgements -----------------------------------------------------------------------------------------------------

function isGoodEnough(state: TokenState, now: Instant, request: TokenRequest): boolean {
  const token = usableToken(state, now)
  if (token === null || token.fingerprint === request.notFingerprint) return false
  const minValidMs = (request.minValidSeconds ?? 0) * 1_000
  return minValidMs === 0 || token.expiresAtMs - now.bootMs >= minValidMs
}

/** Whether waiting longer, up to the deadline on the boot clock, could not better the answer. */
function isAnswerFinal(
  state: TokenState,
  now: Instant,
  { request, deadlineMs }: { request: TokenRequest; deadlineMs: number },
): boolean {
  if (isGoodEnough(state, now, request)) return true
  const isHopeless = state.asking === null && dueAtMs(state) > deadlineMs
  const token = usableToken(state, now)
  // While attempts fail in passing, an operator may still bring a token before the next one is due.
  if (token === null) return isHopeless && state.kind === 'refused'
  // Whoever waits for another token waits: nobody knows when an operator brings one.
  if (token.fingerprint === request.notFingerprint) return false
  return isHopeless || (request.minValidSeconds ?? 0) * 1_000 > token.lifeMs
}

/** Why there is no token to hand out. */
function faultOf(state: TokenState): Fault {
  if (state.kind === 'refused') {
    const { reason, detail } = state.refusal
    return {
      code: reason,
      message: `The service refuses the account: ${sentence(detail)} ${remedy(reason)}`,
      reason,
    }
  }
  const [code, words] =
    state.kind === 'held'
      ? (['expired', 'The token has expired and there is no other'] as const)
      : (['no-token-yet', 'There is no token yet'] as const)
  if (state.failure === null)
    return { code, message: `${words}: the service is being asked. Wait, or ask again.` }
  const { reason, detail } = state.failure
  return { code, message: `${words}: ${sentence(detail)} ${remedy(reason)}`, reason }
}

function remedy(reason: Parameters<typeof remedyFor>[0]): string {
  return sentence(remedyFor(reason))
}

function sentence(words: string): string {
  return /[.!?]$/.test(words) ? words : `${words}.`
}

// ---- what is told ---------------------------------------------------------------------------------------------------

interface Told {
  readonly state: TokenState
  readonly token: PreparedToken | null
  /** When a judgement changes by time alone, on the boot clock. */
  readonly untilMs: number
  readonly wallOffsetMs: number
}

function prepare(state: TokenState, now: Instant): Told {
  const wallOffsetMs = now.wallMs - now.bootMs
  const token = usableToken(state, now)
  if (token === null) return { state, token: null, untilMs: Infinity, wallOffsetMs }
  const result: TokenResult = { accessToken: token.accessToken, ...describe(token, state, now) }
  const tail = asciiOf(JSON.stringify(result)).slice(1)
  return {
    state,
    token: { tail, json: `{${tail}`, text: token.accessToken },
    untilMs: isStale(token, now) ? usableUntilMs(token) : token.expiresAtMs,
    wallOffsetMs,
  }
}

/** JSON text in which all but ASCII is escaped: a string that is sent without a look at its characters. */
export function asciiOf(json: string): string {
  return json.replaceAll(
    /[\u0080-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

function describe(token: Token, state: TokenState, now: Instant): TokenDescription {
  const known = tellingBy(token.received, now)
  return {
    tokenType: 'Bearer',
    obtainedAt: tellInstant(token.received.bootMs, known),
    expiresAt: tellInstant(token.expiresAtMs, known),
    expirySource: token.expirySource,
    baseUrl: token.baseUrl,
    refreshAt: tellInstant(token.refreshAtMs, known),
    generation: token.generation,
    fingerprint: token.fingerprint,
    state: phaseOf(state, now),
    stale: isStale(token, now),
  }
}

function describeCurrent(state: TokenState, now: Instant): TokenDescription | null {
  const token = usableToken(state, now)
  return token === null ? null : describe(token, state, now)
}

function statusOf(state: TokenState, now: Instant, parts: StatusParts): StatusResult {
  const tell = (instant: Instant | null): string | null =>
    instant === null ? null : tellInstant(instant.bootMs, now)
  return {
    state: phaseOf(state, now),
    token: describeCurrent(state, now),
    failure: tellFailure(state, now),
    nextAttemptAt: tellNextAttempt(state, now),
    alert:
      state.alert === null
        ? null
        : {
            reason: state.alert.reason,
            since: tellInstant(state.alert.since.bootMs, now),
            remedy: remedyFor(state.alert.reason),
          },
    files: parts.files(),
    clients: parts.clients(),
    service: {
      baseUrl: state.baseUrl,
      lastRequestAt: tell(state.lastRequestAt),
      lastSuccessAt: tell(state.lastSuccessAt),
      requests: state.requests,
    },
    daemon: parts.daemon(),
  }
}

function tellFailure(state: TokenState, now: Instant): StatusResult['failure'] {
  if (state.kind === 'refused') {
    const { reason, detail, status, since } = state.refusal
    return { reason, detail, status, since: tellInstant(since.bootMs, now), attempts: 1 }
  }
  const failure = failureOf(state)
  if (failure === null) return null
  const { reason, detail, status, since, attempts } = failure
  return {
    reason,
    detail,
    ...(status !== null && { status }),
    since: tellInstant(since.bootMs, now),
    attempts,
  }
}

/** The attempt that is under way counts as the next one: it is not over. */
function tellNextAttempt(state: TokenState, now: Instant): string | null {
  if (state.asking !== null) return tellInstant(state.asking.since.bootMs, now)
  const dueMs = dueAtMs(state)
  return dueMs === Infinity ? null : tellInstant(Math.max(dueMs, now.bootMs), now)
}
