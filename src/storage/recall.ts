// The state out of saved facts, and the facts of a state that are saved. Pure.
import type { Instant } from '../lib/clock.ts'
import {
  initialState,
  tokenlessFrom,
  usableUntilMs,
  type Asked,
  type Failure,
  type TokenState,
} from '../token/state.ts'
import { isSameService, type Token } from '../token/token.ts'
import { STATE_DEFAULTS, type SavedState, type SavedToken, type Written } from './state-format.ts'

/** The facts about the fleet that outlive a restart. */
export interface Fleet {
  readonly fence: number
  readonly hosts: number
}

/** The longest wait there is: `Retry-After` of an hour and a fifth of it. A clock that jumped cannot make a longer one. */
const MAX_WAIT_MS = 72 * 60_000
/** Boot clocks of two processes disagree by less: where /proc/uptime is hidden (`ProcSubset=pid`) Node reads whole seconds. */
const CLOCK_GRAIN_MS = 1_000

export function savedTokenOf({ token }: TokenState, { fence }: Fleet): SavedToken | null {
  if (token === null) return null
  const { credentialsId: subject, ...rest } = token
  return { subject, fence, token: rest }
}

export function savedStateOf(
  state: TokenState,
  { isOrderly, fence, hosts }: Fleet & { isOrderly: boolean },
): SavedState {
  const { generation, failure, refusal, alert, notBeforeMs, otherBounds } = state
  const { lastClientRequestAtMs, learnedMaxAge, lastRequestAt, lastSuccessAt } = state
  // In the order of the schema, so that the same facts are the same text.
  return {
    subject: state.credentialsId,
    generation,
    isOrderly,
    failure,
    refusal,
    alert,
    notBeforeMs,
    otherBounds,
    tokenlessFrom: tokenlessFrom(state),
    lastClientRequestAtMs,
    learned: learnedMaxAge,
    lastRequestAt,
    lastSuccessAt,
    fence,
    hosts,
  }
}

/** The state to begin with. `token` is of this boot; `saved` perhaps of another one. */
export function recalledState(
  settings: Asked,
  {
    now,
    token: kept,
    saved,
  }: {
    now: Instant
    token: SavedToken | null
    saved: { readonly remembered: SavedState; readonly written: Written; readonly isThisBoot: boolean } | null
  },
): { state: TokenState; fleet: Fleet } {
  const known = saved === null ? EMPTY : onClock(saved.remembered, { shiftMs: clockShiftMs(saved, now), now })
  const lost = known.tokenlessFrom
  const token = kept === null ? null : goodTokenOf(kept, now)
  const state: TokenState = {
    ...initialState(settings, now),
    token: token !== null && isSameService(token, settings) ? token : null,
    generation: Math.max(token?.generation ?? 0, known.generation),
    tokenlessSince: lost !== null && lost.bootMs < now.bootMs ? lost : now,
    ...factsOf(known, settings.credentialsId, now),
  }
  // Fences of other credentials order other records.
  const fences = [kept, known].map((from) => (from?.subject === settings.credentialsId ? from.fence : 0))
  return { state, fleet: { fence: Math.max(...fences), hosts: known.hosts } }
}

const EMPTY: SavedState = {
  subject: '',
  generation: 0,
  isOrderly: false,
  failure: null,
  refusal: null,
  alert: null,
  ...STATE_DEFAULTS,
}

function goodTokenOf({ subject, token }: SavedToken, now: Instant): Token | null {
  return isStillGood(token, now) ? { ...token, credentialsId: subject } : null
}

/** The facts that count with these credentials. */
function factsOf(known: SavedState, credentialsId: string, now: Instant): Partial<TokenState> {
  const { lastClientRequestAtMs, lastRequestAt, lastSuccessAt, otherBounds, isOrderly, refusal } = known
  const always = { lastClientRequestAtMs, lastRequestAt, lastSuccessAt }
  if (known.subject !== credentialsId) {
    const bounds = {
      ...otherBounds,
      ...(known.notBeforeMs !== null && { [known.subject]: known.notBeforeMs }),
    }
    const { [credentialsId]: notBeforeMs = null, ...others } = bounds
    return { ...always, notBeforeMs, otherBounds: others }
  }
  return {
    ...always,
    otherBounds,
    notBeforeMs: known.notBeforeMs,
    alert: known.alert,
    refusal,
    failure: isOrderly ? failureInForce(known, now) : known.failure,
    learnedMaxAge: known.learned,
    forcedCause: refusal !== null && isOrderly ? 'start' : null,
  }
}

/** The part of a failure that outlives an orderly stop: only a wait that the service itself asked for. */
function failureInForce({ failure, notBeforeMs }: SavedState, now: Instant): Failure | null {
  if (failure === null || notBeforeMs === null || notBeforeMs <= now.bootMs) return null
  return { ...failure, attempts: 1, retryAtMs: notBeforeMs }
}

/** Reports whether the token may still be handed out, and its instants are possible ones: a doubtful one is not served. */
function isStillGood(token: SavedToken['token'], now: Instant): boolean {
  return (
    token.received.bootMs <= now.bootMs + CLOCK_GRAIN_MS &&
    token.expiresAtMs <= now.bootMs + CLOCK_GRAIN_MS + token.lifeMs &&
    now.bootMs < usableUntilMs(token)
  )
}

/** The distance of the boot clock of then from that of now: none in the same boot, else by the wall clock. */
function clockShiftMs(
  { written, isThisBoot }: { written: Written; isThisBoot: boolean },
  now: Instant,
): number {
  const { at } = written
  if (isThisBoot && at.bootMs <= now.bootMs) return 0
  return now.bootMs - now.wallMs + (at.wallMs - at.bootMs)
}

/** The same with its instants on the boot clock of now, none of them begun in the future or waiting too long. */
function onClock(saved: SavedState, { shiftMs, now }: { shiftMs: number; now: Instant }): SavedState {
  const past = (then: Instant): Instant => ({ ...then, bootMs: Math.min(then.bootMs + shiftMs, now.bootMs) })
  const pastMs = (thenMs: number): number => Math.min(thenMs + shiftMs, now.bootMs)
  const ahead = (atMs: number): number => Math.min(atMs + shiftMs, now.bootMs + MAX_WAIT_MS)
  const { failure, refusal, alert, learned } = saved
  const { tokenlessFrom: lost, notBeforeMs, lastClientRequestAtMs, lastRequestAt, lastSuccessAt } = saved
  return {
    ...saved,
    failure: failure && { ...failure, since: past(failure.since), retryAtMs: ahead(failure.retryAtMs) },
    refusal: refusal && { ...refusal, since: past(refusal.since) },
    alert: alert && { ...alert, since: past(alert.since) },
    notBeforeMs: notBeforeMs === null ? null : ahead(notBeforeMs),
    otherBounds: Object.fromEntries(Object.entries(saved.otherBounds).map(([id, atMs]) => [id, ahead(atMs)])),
    tokenlessFrom: lost && { ...lost, bootMs: lost.bootMs + shiftMs },
    lastClientRequestAtMs: lastClientRequestAtMs === null ? null : pastMs(lastClientRequestAtMs),
    learned: learned && { ...learned, atMs: pastMs(learned.atMs) },
    lastRequestAt: lastRequestAt && past(lastRequestAt),
    lastSuccessAt: lastSuccessAt && past(lastSuccessAt),
  }
}
