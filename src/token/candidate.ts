// The candidate: another pair, which comes into use by giving a token and harms nobody until then. Transitions
// of its part of the state, pure. Its plan is like that of the running pair: saved, paced, brought forward.
import type { Instant } from '../lib/clock.ts'
import { invariant } from '../lib/invariant.ts'
import { isAboutCredentials, type Cause, type FetchOutcome } from './outcome.ts'
import { isRefusedPair, type Candidate, type Step, type TokenState } from './state.ts'
import {
  attemptsAfter,
  nextState,
  planAfterFailure,
  postponedPlan,
  UNANSWERED,
  withCredentials,
  withNotBefore,
} from './transitions.ts'

/** A pair that is tried, as the state has it once it is there. */
type WithCandidate = TokenState & { readonly candidate: Candidate }

export function hasCandidate(state: TokenState): state is WithCandidate {
  return state.candidate !== null
}

/** Reports whether an attempt with the candidate is under way. */
export function isTrying({ inFlight, candidate }: TokenState): boolean {
  return candidate !== null && inFlight?.credentialsId === candidate.credentialsId
}

/**
 * This pair is the candidate from now on; null: there is none. A pair that is the candidate already keeps its
 * facts, and is asked once, because somebody has acted; an attempt that is under way answers that.
 */
export function afterCandidate(state: TokenState, credentialsId: string | null, now: Instant): TokenState {
  if (credentialsId === null || credentialsId === state.credentialsId)
    return state.candidate === null ? state : { ...state, candidate: null }
  const isSame = state.candidate?.credentialsId === credentialsId
  if (isSame && isTrying(state)) return state
  const next = { cause: 'reload', atMs: now.bootMs } as const
  return {
    ...state,
    candidate: { credentialsId, since: now, failure: null, ...(isSame && state.candidate), next },
  }
}

export function afterTrialBegan(state: WithCandidate, cause: Cause, now: Instant): TokenState {
  const { credentialsId } = state.candidate
  invariant(state.inFlight === null, 'one-request-at-a-time', { cause })
  const inFlight = { since: now, cause, credentialsId }
  return { ...state, inFlight, candidate: { ...state.candidate, next: null } }
}

/**
 * The attempt with the candidate ends with this outcome. A token brings the pair into use; all else changes
 * only the candidate. Returns the outcome that counts, too: a token that has expired is a failure.
 */
export function afterTrial(
  state: WithCandidate,
  outcome: FetchOutcome,
  step: Step,
): { state: TokenState; outcome: FetchOutcome } {
  const { candidate, baseUrl } = state
  if (outcome.kind === 'ok') {
    const used = withCredentials(state, { baseUrl, credentialsId: candidate.credentialsId }, step.now)
    const answered = nextState(used, outcome, step)
    // An operator who asked meanwhile has a new token.
    if (answered.outcome.kind === 'ok') return { ...answered, state: { ...answered.state, next: null } }
    return afterTrial(state, answered.outcome, step)
  }
  const ended = { ...state, inFlight: null }
  if (outcome.kind !== 'postponed') return { state: afterNoToken(ended, outcome, step), outcome }
  const next = postponedPlan(state, { retryAfterMs: outcome.retryAfterMs, now: step.now })
  return { state: { ...ended, candidate: { ...candidate, next } }, outcome }
}

/** The state if the candidate's request that goes out now is never answered. */
export function assumeTrialFailed(state: TokenState, step: Step): TokenState {
  if (!hasCandidate(state) || isRefusedPair(state.candidate)) return state
  return afterNoToken(state, UNANSWERED, step)
}

function afterNoToken(
  state: WithCandidate,
  failed: Exclude<FetchOutcome, { kind: 'ok' | 'postponed' }>,
  step: Step,
): TokenState {
  const { candidate } = state
  const { credentialsId, failure: before } = candidate
  const { reason, detail, status = null } = failed
  const isRefused = isAboutCredentials(failed)
  const attempts = attemptsAfter(reason, before)
  const plan =
    failed.kind === 'transient'
      ? planAfterFailure(state, failed, { credentialsId, attempts, step })
      : { retryAtMs: 0, notBeforeMs: 0 }
  const { says = null, askedBy = null, known = null } = failed.kind === 'permanent' ? failed : {}
  const since = before?.since ?? step.now
  const failure = { reason, detail, status, says, askedBy, known, since, attempts }
  const next = {
    ...state,
    candidate: { ...candidate, failure: { ...failure, retryAtMs: plan.retryAtMs } },
  }
  // The pace of `rejected` is the running pair's: a candidate that is refused is not repeated at all.
  return isRefused ? next : withNotBefore(next, { credentialsId, atMs: plan.notBeforeMs }, step.now)
}
