// The service of the model: what it answers, and which tokens it has given.
import type { FetchToken, ServiceOutcome } from '../../src/token/outcome.ts'
import { jwtOf } from '../support/jwt.ts'
import { deliver } from './clock.ts'
import { effect } from './process.ts'
import { checkRequest, learn } from './request-rules.ts'
import { LIFE_MS, MAX_AGE_MS, REQUEST_TIMEOUT_MS, type Life, type State } from './state.ts'

const RETRY_AFTER_MS = 180_000
const MAX_REQUESTS = 3_000
const INACTIVE = 'Your account is not active'

const failures: Record<string, ServiceOutcome> = {
  outage: { kind: 'transient', reason: 'server-error', detail: 'Down', status: 503 },
  reset: { kind: 'transient', reason: 'network', detail: 'Reset' },
  malformed: { kind: 'transient', reason: 'malformed-answer', detail: 'No token', status: 200 },
  timeout: { kind: 'transient', reason: 'timeout', detail: 'Too slow' },
  busy: { kind: 'transient', reason: 'rate-limited', detail: 'Busy', retryAfterMs: RETRY_AFTER_MS },
  rejected: { kind: 'transient', reason: 'rejected', detail: 'No', status: 401 },
  refused: { kind: 'permanent', reason: 'account-inactive', detail: INACTIVE, status: 500 },
}
export const ANSWERS = 'token opaque same expired malformed outage reset busy rejected refused'.split(' ')
const GIVEN_UP: ServiceOutcome = { kind: 'transient', reason: 'network', detail: 'Given up' }

export function fetchTokenOf(state: State, life: () => Life, account: string): FetchToken {
  const ask: FetchToken = async (signal, { cause, beforeRequest }) => {
    await beforeRequest()
    await effect(state, life())
    if (signal.aborted) return GIVEN_UP
    state.asked.push({ host: life().host.index, atMs: state.nowMs() })
    if (state.asked.length > MAX_REQUESTS) throw new Error('The service is asked without end')
    const { mayAskAlone } = life().host
    checkRequest(state, life(), { account, cause })
    const askedMs = state.nowMs()
    const before = state.disturbances
    const kind = await answerTo(state, { life: life(), account, signal })
    if (kind === null) return GIVEN_UP
    const outcome = outcomeOf(state, { kind, account, askedMs })
    learn(state, life(), {
      account,
      cause,
      kind,
      askedMs,
      outcome: kind === 'expired' ? failures['malformed']! : outcome,
      // What a host asked alone the fleet may never hear.
      isDisturbed: mayAskAlone || before !== state.disturbances,
    })
    await effect(state, life(), { isMoment: true })
    return outcome
  }
  return Object.assign(ask, state.notReady && { notReady: state.notReady })
}

/** The kind of the answer; null: the request was given up. */
async function answerTo(
  state: State,
  { life, account, signal }: { life: Life; account: string; signal: AbortSignal },
): Promise<string | null> {
  const { requests } = state
  if (state.auto !== null) return (state.auto === 'token' && life.host.barred) || state.auto
  return new Promise((resolve) => {
    const end = (kind: string | null): void => {
      cancel()
      if (requests.includes(request)) requests.splice(requests.indexOf(request), 1)
      deliver(life, () => resolve(kind))
    }
    const cancel = life.clock.schedule(REQUEST_TIMEOUT_MS, () => {
      state.timedOutMs = state.nowMs()
      end('timeout')
    })
    const askedMs = state.nowMs()
    const request = { life, account, askedMs, isDisturbed: false, answer: end }
    requests.push(request)
    signal.addEventListener('abort', () => end(null))
  })
}

function outcomeOf(
  { clock, tokens, nowMs }: State,
  { kind, account, askedMs }: { kind: string; account: string; askedMs: number },
): ServiceOutcome {
  const given = failures[kind]
  if (given !== undefined) return given
  const serverDateMs = clock.now().wallMs
  const [former, of] = [...tokens].findLast(([, token]) => token.account === account) ?? []
  if (kind === 'same' && former !== undefined && of !== undefined) {
    // An opaque token that is given again may be good for its whole life again.
    if (former.startsWith('opaque')) of.endsMs = nowMs() + 2 * MAX_AGE_MS
    Object.assign(of, { askedMs, issuedMs: nowMs() })
    return { kind: 'ok', accessToken: former, serverDateMs }
  }
  if (kind === 'expired') {
    const iat = Math.floor(serverDateMs / 1_000) - 60
    return { kind: 'ok', accessToken: jwtOf({ iat, exp: iat + 30 }), serverDateMs }
  }
  const number = tokens.size + 1
  const iat = Math.floor(serverDateMs / 1_000)
  const isOpaque = kind === 'opaque'
  const accessToken = isOpaque ? `opaque-${number}` : jwtOf({ iat, exp: iat + LIFE_MS / 1_000 }, number)
  const endsMs = nowMs() + (isOpaque ? 2 * MAX_AGE_MS : LIFE_MS)
  tokens.set(accessToken, { number, account, askedMs, issuedMs: nowMs(), endsMs })
  return { kind: 'ok', accessToken, serverDateMs }
}
