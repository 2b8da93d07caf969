// The rules about what a host of the model knows and hands out, now and after a crash.
import { currentAlert } from '../../src/token/current-alert.ts'
import { dueAtMs, phaseOf, refusalOf, usableToken, type TokenState } from '../../src/token/state.ts'
import { checkAlert, createHanded } from '../rules/tokens.ts'
import { nameOf } from './config.ts'
import { forgetLifted } from './request-rules.ts'
import { restored } from './host.ts'
import type { Host, State } from './state.ts'

const NO_TOKEN_AFTER_MS = 600_000
/** Neither older nor newer than anything. */
const NO_ORDER = { asked: -Infinity, answered: Infinity }

/** Looks at what the host knows and hands out at this moment. */
export function look(world: State, host: Host): void {
  const { isShared, check } = world
  const { parts, clock, config } = host.life
  const state = parts.keeper.state()
  const now = clock.now()
  lookAtToken(world, host)
  const hasToken = usableToken(state, now) !== null
  lookForAlert(world, host, hasToken)
  const reason = state.objection?.reason ?? null
  const account = nameOf(config)
  if (isShared && reason !== null && (reason === 'rejected' || account.includes('+')))
    world.ownAnswers.shown({ host: host.index, account, reason })
  const isPlanned = dueAtMs(state) - now.bootMs < 86_400_000
  if (phaseOf(state, now) !== 'refused') check(isPlanned, 'nothing is planned: a trap')
  const facts = host.rules.of(nameOf(config))
  if (isShared) forgetLifted(host.life)
  const isRefused = facts.isRefused && state.inFlight === null
  check(!isRefused || state.objection !== null, 'a refusal is forgotten')
}

function lookAtToken({ isShared, tokens, store, broke, nowMs, check, checkRule }: State, host: Host): void {
  const { parts, clock, config } = host.life
  const state = parts.keeper.state()
  const token = usableToken(state, clock.now())
  const known = token && tokens.get(token.accessToken)
  checkRule(token === null || known !== undefined, 'expired', 'it had ended when it came')
  if (!token || !known) return
  const { number, account, askedMs, issuedMs, endsMs } = known
  host.handed[account] ??= createHanded(broke, { grainMs: 1_000 })
  // Requests of a fleet that overlap have no order, and a clock of the store that was set back has none either.
  const overlapping = store.aheadMs >= 0 ? { asked: askedMs, answered: issuedMs } : NO_ORDER
  const order = isShared ? overlapping : { asked: number, answered: number }
  const { accessToken: text, generation } = token
  if (text !== host.handed[account].newest()?.text) host.mayAskAlone = false
  host.handed[account].hand({ text, generation, order, endsMs }, nowMs())
  const isNewer = number > (host.refusedAt.get(nameOf(config)) ?? 0)
  check(
    isShared || refusalOf(state) === null || !isNewer,
    'refused beside a token that is newer than the refusal',
  )
}

function lookForAlert({ broke }: State, host: Host, hasToken: boolean): void {
  const { parts, clock } = host.life
  const state = parts.keeper.state()
  // When a token ended since the last look is not known.
  const none = host.tokenless.seen(hasToken, { awakeMs: clock.awakeMs(), endedAgoMs: 0 })
  const alert = currentAlert(state, clock.now(), NO_TOKEN_AFTER_MS)?.reason ?? null
  const isAwaited = state.inFlight !== null || state.next !== null
  const shown = {
    hasToken,
    hasFailed: state.failure !== null && !isAwaited && dueAtMs(state) > clock.now().bootMs,
    isRefused: refusalOf(state) !== null,
    isRejected: state.objection?.reason === 'rejected',
    alert,
  }
  checkAlert(shown, { ...none, noTokenAfterMs: NO_TOKEN_AFTER_MS }, broke)
}

/** What a process that is killed now would know after its start, against what it knows now. */
export function checkSaved(world: State, host: Host): void {
  const { isShared, check } = world
  const { parts, clock, inbox } = host.life
  const state = parts.keeper.state()
  const now = clock.now()
  // An attempt of a fleet that was put off is not saved: it asks the store again.
  if (
    inbox !== null ||
    host.hungSinceMs !== null ||
    state.inFlight !== null ||
    (isShared && state.next !== null)
  )
    return
  const meaning = (one: TokenState): Record<string, unknown> => ({
    token: usableToken(one, now) && [usableToken(one, now)?.accessToken, one.token?.refreshAtMs],
    objection: one.objection?.reason ?? null,
    failure: one.failure &&
      !host.isReplanned && [one.failure.reason, one.failure.attempts, one.failure.retryAtMs],
    notBefore: Object.entries(one.notBefore).filter(([, untilMs]) => untilMs > now.bootMs),
    generation: one.generation,
    pace: one.pace.requestedMs,
  })
  const before = meaning(state)
  const after = meaning(restored(world, host, { settings: state, now }))
  for (const [name, fact] of Object.entries(before))
    check(JSON.stringify(fact) === JSON.stringify(after[name]), `a crash changes ${name}`)
  const { candidate } = state
  if (candidate === null || candidate.failure === null || candidate.next !== null) return
  // The files still hold it: its start knows what it was answered.
  const settings = { ...state, credentialsId: candidate.credentialsId }
  const { failure, objection } = restored(world, host, { settings, now })
  const known = failure?.reason ?? objection?.reason
  check(known === candidate.failure.reason, 'a crash changes what the candidate was answered')
}
