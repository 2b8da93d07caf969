// The end of each path: the service is well from now on. There is a token in bounded time, no alert, and few
// requests.
import { phaseOf, usableToken, type TokenState } from '../../src/token/state.ts'
import type { Act } from './acts.ts'
import { nameOf } from './config.ts'
import { LIFE_MS, PREFIX, type Host, type State } from './state.ts'
import { keptLease } from './store.ts'

/** `isKnown`: the same was played from a situation that means the same. */
export async function calm(state: State, act: Act, isKnown: () => boolean): Promise<void> {
  const { hosts, isShared, check } = state
  for (const host of hosts) {
    host.armed = null
    if (host.life.inbox !== null) await act(`go:${host.index}`)
    if (isShared && host.prefix !== PREFIX) await act(`move:${host.index}:${PREFIX}`)
  }
  if (isShared) await act('find')
  await act('auto:token')
  if (isKnown()) return
  await checkSpared(state, act)
  const isQuiet = (): boolean =>
    !isWaiting(state) && hosts.every((host) => isReady(state, host) && isSettled(host))
  // The pace of `rejected` is 10 min at most.
  await untilHolds(isQuiet, () => act('wait:70'))
  if (isKnown()) return
  for (const host of hosts) {
    const isRefused = phaseOf(stateOf(host), host.life.clock.now()) === 'refused'
    const isWell = isReady(state, host)
    check(isWell || isRefused, 'the service is well for ten minutes, and there is no token')
    if (isRefused || !isSettled(host)) await act(`operator:${host.index}`)
  }
  // A host whose refresh falls due now may have to wait with the fleet, for 5 min at most.
  const isNonePutOff = (): boolean => hosts.every((host) => stateOf(host).postponement === null)
  await untilHolds(isNonePutOff, () => act('wait:40'))
  const before = state.asked.length
  for (const host of hosts.filter((one) => hasAsker(state, one))) checkWell(state, host)
  if (isShared) checkOneToken(state)
  await act('wait:200')
  const accounts = new Set(hosts.map((host) => nameOf(host.life.config))).size
  check(state.asked.length - before <= 2 * accounts, 'more than two requests in 200 quiet seconds')
}

/** While one host is refused alone, the others have tokens, at each moment; then it is let in again. */
async function checkSpared(state: State, act: Act): Promise<void> {
  const barred = state.hosts.filter((host) => host.barred !== null)
  // Two that are refused count for all.
  if (barred.length === 1) {
    const others = state.hosts.filter((host) => host.barred === null && hasAsker(state, host))
    await untilHolds(
      () => others.every((host) => isReady(state, host)),
      () => act('wait:70'),
    )
    for (let seconds = 0; seconds < LIFE_MS / 1_000 + 60; seconds += 20) {
      const isSpared = ({ life: { parts, clock } }: Host): boolean => {
        const now = clock.now()
        return (
          usableToken(parts.keeper.state(), now) !== null || phaseOf(parts.keeper.state(), now) === 'refused'
        )
      }
      state.checkRule(others.every(isSpared), 'spared')
      await act('wait:20')
    }
  }
  for (const { index } of barred) await act(`bar:${index}:`)
}

async function untilHolds(holds: () => boolean, wait: () => Promise<void>): Promise<void> {
  for (let round = 0; round < 10; round += 1) {
    await wait()
    if (holds()) return
  }
}

const stateOf = ({ life }: Host): TokenState => life.parts.keeper.state()
const isSettled = (host: Host): boolean => host.files === nameOf(host.life.config)

/** A host that does not ask has what others of its account ask for, if the service lets them. */
function hasAsker({ hosts, waits }: State, { index, life, prefix }: Host): boolean {
  const isAsker = (one: Host): boolean =>
    !waits.includes(one.index) &&
    one.barred === null &&
    one.prefix === prefix &&
    nameOf(one.life.config) === nameOf(life.config)
  return !waits.includes(index) || hosts.some(isAsker)
}

/** A token that is good now may end before the wait of the fleet does. */
function isReady(state: State, host: Host): boolean {
  const { postponement } = stateOf(host)
  const phase = phaseOf(stateOf(host), host.life.clock.now())
  return !hasAsker(state, host) || (phase === 'ready' && postponement === null)
}

/** A wait of a fleet stands, which a host may meet only later. */
function isWaiting({ store }: State): boolean {
  return [...store.servers.values()].some((server) => keptLease(server) !== null)
}

function checkWell(state: State, host: Host): void {
  const isWell = isReady(state, host) && stateOf(host).objection === null
  state.check(isWell, 'an operator asks, the service is well, and there is no token')
  const isAsker = !state.waits.includes(host.index)
  state.check(isSettled(host) || !isAsker, 'the pair in the files is never taken over')
}

function checkOneToken({ hosts, store, checkRule }: State): void {
  for (const account of new Set(hosts.map((host) => nameOf(host.life.config)))) {
    const held = hosts
      .filter((host) => nameOf(host.life.config) === account)
      .map((host) => stateOf(host).token?.accessToken)
    checkRule(new Set(held).size === 1 || store.aheadMs < 0, 'fleet-apart')
  }
}
