// The state out of saved facts, and the facts of a state that are saved. Pure.
import type { Instant } from '../lib/clock.ts'
import {
  initialState,
  tokenlessFrom,
  usableUntilMs,
  type Asked,
  type Failure,
  type SavedFleet,
  type TokenState,
} from '../token/state.ts'
import { isSameService, type Token } from '../token/token.ts'
import type { SavedState, SavedToken, Written } from './state-format.ts'

/** The longest wait there is: `Retry-After` of an hour and a fifth of it. A clock that jumped cannot make a longer one. */
const MAX_WAIT_MS = 72 * 60_000
/** Boot clocks of two processes disagree by less: where /proc/uptime is hidden (`ProcSubset=pid`) Node reads whole seconds. */
const CLOCK_GRAIN_MS = 1_000

export function savedTokenOf({ token }: TokenState, { fence }: SavedFleet): SavedToken | null {
  if (token === null) return null
  const { credentialsId: subject, ...rest } = token
  return { subject, fence, token: rest }
}

export function savedStateOf(
  state: TokenState,
  { isOrderly, fence, hosts }: SavedFleet & { isOrderly: boolean },
): SavedState {
  const { credentialsId: subject, learnedMaxAge: learned, generation, failure, refusal, alert } = state
  const { lastClientRequestAtMs, lastRequestAt, lastSuccessAt } = state
  const { [subject]: notBeforeMs = null, ...otherBounds } = state.bounds
  const attempts = { subject, generation, isOrderly, failure, refusal, alert, notBeforeMs, otherBounds }
  const instants = { tokenlessFrom: tokenlessFrom(state), lastClientRequestAtMs, learned }
  return { ...attempts, ...instants, lastRequestAt, lastSuccessAt, fence, hosts }
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
): { state: TokenState; fleet: SavedFleet } {
  const known = saved && onClock(saved.remembered, { shiftMs: clockShiftMs(saved, now), now })
  const generation = Math.max(kept?.token.generation ?? 0, known?.generation ?? 0)
  // One that was replaced is not served again, whatever the disk kept of it.
  const token = kept?.token.generation === generation ? goodTokenOf(kept, now) : null
  const state: TokenState = {
    ...initialState(settings, now),
    token: token !== null && isSameService(token, settings) ? token : null,
    generation,
    ...(known && { ...factsOf(known, settings.credentialsId, now), tokenlessSince: lossOf(known, now) }),
  }
  // Fences of other credentials order other records.
  const fences = [kept, known].map((from) => (from?.subject === settings.credentialsId ? from.fence : 0))
  return { state, fleet: { fence: Math.max(...fences), hosts: known?.hosts ?? 0 } }
}

/** null where the token may no longer be handed out, or where its instants are impossible ones. */
function goodTokenOf({ subject, token }: SavedToken, now: Instant): Token | null {
  const latestMs = now.bootMs + CLOCK_GRAIN_MS
  const isPossible = token.received.bootMs <= latestMs && token.expiresAtMs <= latestMs + token.lifeMs
  return isPossible && now.bootMs < usableUntilMs(token) ? { ...token, credentialsId: subject } : null
}

/** A token that is not there after all was lost now. */
function lossOf({ tokenlessFrom: lost }: SavedState, now: Instant): Instant {
  return lost !== null && lost.bootMs < now.bootMs ? lost : now
}

/** The facts that count with these credentials. */
function factsOf(known: SavedState, credentialsId: string, now: Instant): Partial<TokenState> {
  const { subject, notBeforeMs, otherBounds, isOrderly, refusal } = known
  const { lastClientRequestAtMs, lastRequestAt, lastSuccessAt } = known
  const bounds = { ...otherBounds, ...(notBeforeMs !== null && { [subject]: notBeforeMs }) }
  const always = { bounds, lastClientRequestAtMs, lastRequestAt, lastSuccessAt }
  if (subject !== credentialsId) return always
  return {
    ...always,
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

/** The distance of the boot clock of then from that of now: none in the same boot, else by the wall clock. */
function clockShiftMs(
  { written, isThisBoot }: { written: Written; isThisBoot: boolean },
  now: Instant,
): number {
  const { at } = written
  if (isThisBoot && at.bootMs <= now.bootMs) return 0
  return now.bootMs - now.wallMs + (at.wallMs - at.bootMs)
}

/** Instants on the boot clock, by name: those that began, and those that are waited for. */
const INSTANTS: Readonly<Record<string, 'past' | 'ahead'>> = {
  bootMs: 'past',
  atMs: 'past',
  lastClientRequestAtMs: 'past',
  retryAtMs: 'ahead',
  notBeforeMs: 'ahead',
  otherBounds: 'ahead',
}

/** The same with its instants on the boot clock of now, none of them begun in the future or waiting too long. */
function onClock(saved: SavedState, { shiftMs, now }: { shiftMs: number; now: Instant }): SavedState {
  const latestMs = { past: now.bootMs, ahead: now.bootMs + MAX_WAIT_MS }
  function shifted(value: unknown, name: string): unknown {
    const kind = INSTANTS[name]
    if (typeof value === 'number') return kind ? Math.min(value + shiftMs, latestMs[kind]) : value
    if (typeof value !== 'object' || value === null) return value
    const entries = Object.entries(value).map(([own, item]) => [own, shifted(item, kind ? name : own)])
    return Object.fromEntries(entries)
  }
  const { tokenlessFrom: from } = saved
  return {
    ...(shifted(saved, '') as SavedState),
    // It may be long past, or to come.
    tokenlessFrom: from && { ...from, bootMs: from.bootMs + shiftMs },
  }
}
