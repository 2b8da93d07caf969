// Facts of a token state for tests: a service, a policy, the first state, a token.
import type { Instant } from '../../src/lib/clock.ts'
import { STANDARD_USE } from '../../src/protocol.ts'
import { initialState, type TokenState } from '../../src/token/state.ts'
import { fingerprintOf } from '../../src/protocol.ts'
import type { Token } from '../../src/token/token.ts'

export const POLICY = { maxAgeMs: 900_000, initialDelayMs: 1_000, maxDelayMs: 300_000 }

export function serviceFacts(id = 'service', baseUrl = `https://${id}.test`): TokenState['service'] {
  return { id, baseUrl, use: STANDARD_USE, refusedBy: [401] }
}

/** The state of a daemon that has asked nothing, with the pair `first`. */
export function firstState(now: Instant, facts: Partial<TokenState> = {}): TokenState {
  return { ...initialState({ service: serviceFacts(), policy: POLICY, pair: 'first' }, now), ...facts }
}

/** A token that the first pair has just obtained. */
export function tokenAt(now: Instant, { lifeMs = 900_000, ...facts }: Partial<Token> = {}): Token {
  const accessToken = facts.accessToken ?? 'token'
  return {
    accessToken,
    fingerprint: fingerprintOf(accessToken),
    pair: 'first',
    receivedAtMs: now.bootMs,
    givenAtMs: now.bootMs,
    lifeMs,
    expiresAtMs: now.bootMs + lifeMs,
    expirySource: 'jwt',
    expMs: null,
    refreshAtMs: now.bootMs + lifeMs / 2,
    isUnchanged: false,
    ...facts,
  }
}
