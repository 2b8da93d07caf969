// Transitions of the state by other settings: at a reload, with other credentials, and at a restart.
import type { Instant } from '../lib/clock.ts'
import { assumedLifeMs } from './rejections.ts'
import {
  NOTHING_PENDING,
  onWallClock,
  usableUntilMs,
  type Asked,
  type Refusal,
  type Step,
  type TokenState,
} from './state.ts'
import { isSameService, refreshAfterMs, type Token } from './token.ts'

/** The configuration was read again. */
export function afterReload(
  state: TokenState,
  settings: Asked & { readonly refuses?: Refuses },
  step: Step,
): TokenState {
  const { refusedBy = state.refusedBy } = settings
  const reloaded = afterRefusals(
    withMaxAge({ ...state, learnedMaxAge: null, refusedBy }, step),
    settings.refuses,
  )
  if (settings.credentialsId === state.credentialsId) return reloaded
  return { ...withCredentials(reloaded, settings, step), forcedCause: 'reload' }
}

/** Reports whether the description of the service still names this refusal. */
export type Refuses = (refusal: Pick<Refusal, 'status' | 'reason' | 'detail'>) => boolean

/** A refusal that the description of the service no longer names is forgotten, and its alert with it. */
export function afterRefusals(state: TokenState, refuses: Refuses = () => true): TokenState {
  const isForgotten = state.refusal !== null && !refuses(state.refusal)
  return isForgotten ? { ...state, refusal: null, alert: null, forcedCause: null } : state
}

/** Other credentials, or another service: facts about the former ones do not count, but for the bounds of each. */
export function withCredentials(
  state: TokenState,
  { baseUrl, credentialsId }: Asked,
  { now }: Step,
): TokenState {
  const bounds = { ...state.otherBounds, [state.credentialsId]: state.notBeforeMs ?? -Infinity }
  return {
    ...withoutToken(state, isSameService({ baseUrl, credentialsId }, state) ? state.token : null, now),
    baseUrl,
    credentialsId,
    ...NOTHING_PENDING,
    notBeforeMs: bounds[credentialsId] ?? null,
    otherBounds: boundsInForce(bounds, { except: credentialsId, now }),
  }
}

/** Credentials whose bounds are remembered; the rest of a long row of them is not worth it. */
const MAX_OTHER_BOUNDS = 16

function boundsInForce(
  bounds: Readonly<Record<string, number>>,
  { except, now }: { except: string; now: Instant },
): Readonly<Record<string, number>> {
  const inForce = Object.entries(bounds).filter(([id, atMs]) => id !== except && atMs > now.bootMs)
  return Object.fromEntries(inForce.slice(-MAX_OTHER_BOUNDS))
}

/** A bound of credentials that were tried and not taken over. */
export function withOtherBound(
  state: TokenState,
  { credentialsId, notBeforeMs }: { credentialsId: string; notBeforeMs: number },
  now: Instant,
): TokenState {
  const bounds = { ...state.otherBounds, [credentialsId]: notBeforeMs }
  return { ...state, otherBounds: boundsInForce(bounds, { except: state.credentialsId, now }) }
}

function withoutToken(state: TokenState, token: Token | null, now: Instant): TokenState {
  if (token !== null || state.token === null) return state
  const lostMs = Math.min(now.bootMs, usableUntilMs(state.token))
  return {
    ...state,
    token: null,
    tokenlessSince: { bootMs: lostMs, wallMs: now.wallMs - (now.bootMs - lostMs) },
  }
}

/** Another `refresh.maxAge` counts for the token that is held, too. */
function withMaxAge(state: TokenState, { now, policy, random }: Step): TokenState {
  const { token } = state
  const lifeMs = assumedLifeMs(state, policy, now)
  if (token?.expirySource !== 'assumed' || token.lifeMs === lifeMs) return state
  // An assumed life begins with the last answer that gave the token.
  const startMs = token.expiresAtMs - token.lifeMs
  const plan = {
    lifeMs,
    expiresAtMs: startMs + lifeMs,
    refreshAtMs: startMs + refreshAfterMs(lifeMs, random()),
  }
  return { ...state, token: { ...token, ...plan } }
}

/** A restart: a `refresh.maxAge` that was lowered meanwhile counts for the token that is held. */
export function afterStart(saved: TokenState, step: Step): TokenState {
  const state = onWallClock(saved, step.now)
  const isLowered = state.token !== null && assumedLifeMs(state, step.policy, step.now) < state.token.lifeMs
  return isLowered ? withMaxAge(state, step) : state
}
