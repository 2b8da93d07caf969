// A token out of a grant: its life, its plan, and the same token given again.
import type { Instant } from '../lib/clock.ts'
import type { Grant } from './outcome.ts'
import { assumedLifeMs } from './rejections.ts'
import type { Step, TokenState } from './state.ts'
import { knownLife, MIN_REFRESH_AFTER_MS, refreshAfterMs, type Token } from './token.ts'

/** The token of a grant, or the reason why it is none. */
export function tokenOf(
  state: TokenState,
  grant: Grant & { readonly fingerprint: string },
  { now, policy, random }: Step,
): Token | { readonly problem: string } {
  const known = knownLife(grant, now.wallMs)
  const expirySource = grant.expirySource ?? known?.expirySource ?? 'assumed'
  const assumedMs = assumedLifeMs(state, policy, now)
  // A life that another host learned is shorter than the one that is assumed here, or the setting is.
  const givenMs = expirySource === 'assumed' ? Math.min(grant.lifeMs ?? Infinity, assumedMs) : grant.lifeMs
  const lifeMs = givenMs ?? known?.lifeMs ?? assumedMs
  const ageMs = grant.ageMs ?? 0
  const received = { bootMs: now.bootMs - ageMs, wallMs: now.wallMs - ageMs }
  const fresh: Token = {
    accessToken: grant.accessToken,
    fingerprint: grant.fingerprint,
    generation: state.generation + 1,
    baseUrl: state.baseUrl,
    credentialsId: state.credentialsId,
    received,
    lifeMs,
    expiresAtMs: received.bootMs + lifeMs,
    expirySource,
    refreshAtMs: received.bootMs + refreshAfterMs(lifeMs, random()),
  }
  const token = sameAgain(state.token, fresh, now) ?? fresh
  if (token.expiresAtMs > now.bootMs) return token
  return {
    problem:
      token === fresh
        ? 'The service gave a token that has already expired'
        : 'The service gave the same token again, which has expired',
  }
}

/**
 * The same token once more is the same token: it keeps its number and its birth, and a JWT does not live longer for
 * having been given twice; an answer's own word counts each time. Only its refresh is planned again, from the life that is left.
 */
function sameAgain(before: Token | null, fresh: Token, now: Instant): Token | null {
  if (before?.fingerprint !== fresh.fingerprint) return null
  const { generation, received } = before
  if (fresh.expirySource !== 'jwt') return { ...fresh, generation, received }
  const expiresAtMs = Math.min(before.expiresAtMs, fresh.expiresAtMs)
  const share = (fresh.refreshAtMs - fresh.received.bootMs) / fresh.lifeMs
  const refreshAtMs = now.bootMs + Math.max(MIN_REFRESH_AFTER_MS, (expiresAtMs - now.bootMs) * share)
  return { ...fresh, generation, received, lifeMs: before.lifeMs, expiresAtMs, refreshAtMs }
}
