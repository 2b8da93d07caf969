// The rules about the requests of the model: of each host, and of the fleet as one client.
import type { Cause, ServiceOutcome } from '../../src/token/outcome.ts'
import { usableToken } from '../../src/token/state.ts'
import { nameOf } from './config.ts'
import { leftMs, LIFE_MS, MAX_AGE_MS, REQUEST_TIMEOUT_MS, type Host, type Life, type State } from './state.ts'
import { isReachedByAll } from './store.ts'

const LEASE_MS = REQUEST_TIMEOUT_MS + 2_000
/** A request waits for its save for so long where the disk hangs. */
const SAVE_MS = 2_000
/** No start and no plan replaces a token that is younger. */
const FRESH_MS = 30_000
/** What a kill leaves of an answer that was not saved yet. */
const UNSAVED = { isRefused: false, notBeforeMs: -Infinity, rejectedUntilMs: -Infinity }
/** An act of an operator is followed by a request at once, but for the files that settle. */
export const OPERATOR_MS = 2_500
/** In a fleet so much later: another host may have a lease, or the pair may have been refused a moment ago. */
const FLEET_ACT_MS = 60_000
/** A written file is found at the next tick, once it has settled. */
export const WRITTEN_MS = 32_500

/** A request goes out. */
export function checkRequest(
  state: State,
  life: Life,
  { account, cause }: { account: string; cause: Cause },
): void {
  const { hosts, requests, isShared, nowMs } = state
  settleKnown(state)
  state.askedAtMs = nowMs()
  const { host } = life
  state.checkRule(!requests.some((one) => one.life === life), 'one-at-a-time', cause)
  const { hungSinceMs } = host
  const isSaved = hungSinceMs === null || nowMs() - hungSinceMs >= SAVE_MS
  state.checkRule(isSaved, 'unsaved', cause)
  host.isReplanned = false
  const isPaid = (owner: Host, owed: string | null): boolean =>
    owed === account || (owed === null && (owner === host || isShared))
  for (const one of hosts) one.owed = one.owed.filter((debt) => !isPaid(one, debt.account))
  checkFleet(state, life, { account, cause })
  if (isShared) forgetLifted(life)
  host.mayAskAlone = false
  host.rules.asked(account, { cause, atMs: nowMs(), isTrial: account !== nameOf(life.config) })
}

/** Another host of the fleet may have lifted a refusal, or ended a wait, by its answer. */
export function forgetLifted({ host, parts, config }: Life): void {
  const { objection, failure } = parts.keeper.state()
  const facts = host.rules.of(nameOf(config))
  if (objection === null) facts.isRefused = false
  if (failure === null)
    Object.assign(facts, { notBeforeMs: -Infinity, rejectedUntilMs: -Infinity, failures: 0 })
}

/** While the store is well and every host runs, the fleet is one client. */
function checkFleet(state: State, life: Life, { account, cause }: { account: string; cause: Cause }): void {
  const { hosts, requests, nowMs } = state
  if (!state.isShared || !isReachedByAll(state)) return
  // The first host asks before the last one has been started.
  if (hosts.some(({ isLate, life: other }) => isLate || (other as Life | undefined)?.inbox)) return
  const token = usableToken(life.parts.keeper.state(), life.clock.now())
  // A host whose token ends soon waits for another host only for half of that time.
  const isPressed = token !== null && leftMs(life, nowMs()) < 2 * LEASE_MS
  const isAlone = !requests.some((one) => one.account === account && !one.isDisturbed)
  // After two leases of hosts that get no answer a host asks by itself.
  const isHanging = nowMs() - state.timedOutMs < 3 * LEASE_MS
  // At the time that it drew without the store a host asks in any case.
  const isAllowed = isPressed || isHanging || life.host.mayAskAlone
  state.checkRule(isAlone || isAllowed, 'fleet-at-once', cause)
  const known = ofFleet(state, account)
  if (cause === 'operator' || cause === 'reload') return
  state.checkRule(nowMs() >= known.notBeforeMs, 'asked-for-wait', `of the fleet, ${cause}`)
  const isPlanned = cause !== 'client' && cause !== 'retry'
  state.checkRule(nowMs() >= known.freshUntilMs || !isPlanned, 'fleet-again', cause)
}

function ofFleet({ fleet }: State, account: string) {
  const known = fleet.get(account) ?? { freshUntilMs: 0, notBeforeMs: 0 }
  fleet.set(account, known)
  return known
}

/** The answers of this step count: until now a process may have ended before it saved them. */
export function settleKnown({ unsettled }: State): void {
  for (const call of unsettled.splice(0)) call()
}

interface Answered {
  readonly account: string
  readonly cause: Cause
  readonly kind: string
  readonly askedMs: number
  readonly outcome: ServiceOutcome
  /** The store was disturbed since the request. */
  readonly isDisturbed: boolean
}

/** The answer to a request has come. */
export function learn(state: State, life: Life, answered: Answered): void {
  const { account, cause, kind, askedMs, outcome } = answered
  learnOwn(state, life, answered)
  const atMs = state.nowMs()
  const isTrial = account !== nameOf(life.config)
  const { host } = life
  if (outcome.kind === 'permanent') host.refusedAt.set(account, state.tokens.size)
  // It was saved as failed before it went out.
  const failed = outcome.kind === 'ok' ? 0 : host.rules.of(account).failures + 1
  const lifeMs = state.isShared || kind === 'same' ? 0 : kind === 'opaque' ? MAX_AGE_MS : LIFE_MS
  const answer = { atMs, isTrial, cause, lifeMs }
  state.unsettled.push(() => {
    // Killed or stopped in the moment of the answer: it may have been saved, or not.
    const isSaved = !life.isDead && life.inbox === null
    host.rules.answered(account, outcome, { ...answer, leftMs: leftMs(life, atMs) })
    const { token } = life.parts.keeper.state()
    // Another configuration may have come between.
    const isDropped = outcome.kind === 'ok' && token?.accessToken !== outcome.accessToken
    if (isDropped) host.rules.forgetToken()
    if (!isSaved) {
      // What was saved is that it failed when it went out.
      Object.assign(host.rules.of(account), { ...UNSAVED, failures: failed, answeredMs: askedMs })
      host.rules.forgetToken()
    }
    learnOfFleet(state, answered, { isSaved, atMs })
  })
}

/** An answer that may concern this host alone. */
function learnOwn({ hosts, ownAnswers }: State, { host }: Life, { account, outcome }: Answered): void {
  if (outcome.kind === 'ok') ownAnswers.granted(account)
  if (outcome.kind === 'ok') return
  const isHeard = (one: Host): boolean => one.prefix === host.prefix && nameOf(one.life.config) === account
  const isAlone = host.prefix === null || hosts.filter(isHeard).length < 2
  ownAnswers.answered({ host: host.index, account, reason: outcome.reason }, { isAlone })
}

function learnOfFleet(
  state: State,
  { account, outcome, isDisturbed }: Answered,
  { isSaved, atMs }: { isSaved: boolean; atMs: number },
): void {
  const { isShared, store, fleet } = state
  if (!(isSaved && isShared && store.state === 'well' && store.cutOff.size === 0 && !isDisturbed)) {
    fleet.delete(account)
    return
  }
  const shared = ofFleet(state, account)
  const freshUntilMs = outcome.kind === 'ok' ? atMs + FRESH_MS : 0
  const bound = outcome.kind === 'transient' ? atMs + (outcome.retryAfterMs ?? 0) : 0
  const former = outcome.kind === 'transient' ? shared.notBeforeMs : 0
  Object.assign(shared, { freshUntilMs, notBeforeMs: Math.max(former, bound) })
}

/** This host or, in a fleet, another host of the same store has a request under way. */
function isAskingNow({ requests, isShared }: State, host: Host): boolean {
  return (
    host.life.parts.keeper.state().inFlight !== null ||
    requests.some(({ life }) => life === host.life || (isShared && life.host.prefix === host.prefix))
  )
}

/** A request must follow this act within `ms`. One that is under way answers it. */
export function owe(state: State, host: Host, debt: { act: string; ms: number; account?: string }): void {
  const { isShared, waits } = state
  if (isAskingNow(state, host) || waits.includes(host.index)) return
  // A request of the fleet in the moment of the act is not before it.
  if (isShared && state.askedAtMs === state.nowMs()) return
  const { act, account = null } = debt
  const ms = debt.ms + (isShared ? FLEET_ACT_MS : 0)
  host.owed = [...host.owed.filter((one) => one.act !== act), { act, byMs: state.nowMs() + ms, account }]
}

/** An act is followed by a request, unless something else came between. */
export function checkOwed(state: State, host: Host): void {
  const { nowMs, isShared, hosts } = state
  if (host.life.inbox !== null || (isShared && !isReachedByAll(state))) host.owed = []
  const { candidate } = host.life.parts.keeper.state()
  // The fleet has an answer for the pair: a token, or one that is too young to be asked for again.
  const isAnswered = (account: string | null): boolean =>
    isShared &&
    account !== null &&
    (nameOf(host.life.config) === account || (candidate?.failure ?? null) !== null)
  host.owed = host.owed.filter(({ account }) => !isAnswered(account))
  for (const debt of host.owed) {
    const { account } = debt
    const isHeld = account !== null && hosts.some(({ rules }) => rules.of(account).notBeforeMs > nowMs())
    if (isHeld || isAskingNow(state, host)) debt.byMs = Math.max(debt.byMs, nowMs() + WRITTEN_MS)
    state.checkRule(nowMs() <= debt.byMs, 'act', debt.act)
  }
  host.owed = host.owed.filter(({ byMs }) => byMs >= nowMs())
}
