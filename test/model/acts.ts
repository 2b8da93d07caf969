// The acts of the model: what happens next, as a word, and what it needs, with colons between.
import { usableToken } from '../../src/token/state.ts'
import { deliver, settle } from './clock.ts'
import { nameOf } from './config.ts'
import { configOnDisk, start } from './host.ts'
import { kill } from './process.ts'
import { checkOwed, OPERATOR_MS, owe, settleKnown, WRITTEN_MS } from './request-rules.ts'
import { disturb, MAX_DELAY_MS, type Host, type State } from './state.ts'
import { look } from './state-rules.ts'
import { evil } from './store.ts'

/** A disk that hangs holds up a request for 2 s. */
const HANG_MS = 4_000

type Acts<Of> = Record<string, (of: Of, how: string, effects: string) => unknown>

/** Does the act, lets everything settle, and checks the rules. */
export type Act = (step: string) => Promise<void>

export function createAct(state: State): Act {
  const { hosts } = state
  const [ofHost, ofWorld] = [hostActs(state), worldActs(state)]
  state.perform = (host, what) => {
    const [name = '', how = ''] = what.split('.')
    if (name in ofHost) void ofHost[name]!(host, how, '')
    else void ofWorld[name]!(state, how, '')
  }
  return async (step) => {
    const [name = '', ...more] = step.split(':')
    const act = ofHost[name]
    if (act === undefined) await ofWorld[name]!(state, more[0] ?? '', '')
    else await act(hosts[Number(more[0])]!, more[1] ?? '', more[2] ?? '')
    await settle()
    for (const host of hosts) if (host.life.isDead) await start(state, host)
    settleKnown(state)
    for (const host of hosts) {
      checkOwed(state, host)
      if (host.life.inbox === null) look(state, host)
    }
  }
}

/** What happens to a host; its index comes first. */
function hostActs(state: State): Acts<Host> {
  const { requests, nowMs } = state

  /** Files that are written are an act: the pair in them may be asked with once. */
  function write(host: Host, name: string): void {
    host.rules.acted(nowMs(), [name])
    host.rules.wish('reload', nowMs())
    host.files = name
    host.written += 1
    host.owed = host.owed.filter((debt) => debt.act !== 'files')
    const isOther = name !== nameOf(host.life.config)
    if (isOther) owe(state, host, { act: 'files', ms: WRITTEN_MS, account: name })
  }

  /** A reload with what the host's configuration is now. */
  function reload(host: Host): void {
    host.written += 1
    host.rules.acted(nowMs(), [host.files])
    host.rules.wish('reload', nowMs())
    host.rules.setMaxDelay(MAX_DELAY_MS[host.policy])
    host.owed = []
    const { parts, stop } = host.life
    // As createReload.
    const use = (): unknown => stop.signal.aborted || parts.use(configOnDisk(state, host))
    void parts.readDisk().then(use)
  }

  return {
    answer: (host, kind) => requests.find((one) => one.life === host.life)?.answer(kind),
    operator(host) {
      const { parts, stop } = host.life
      const operator = new AbortController()
      host.rules.wish('operator', nowMs())
      host.operators.push(operator)
      owe(state, host, { act: 'operator', ms: OPERATOR_MS })
      void parts.refresh(AbortSignal.any([stop.signal, operator.signal]))
    },
    /** The operators who wait go away: what they asked for goes on. */
    leave: ({ operators }) => operators.splice(0).forEach((operator) => operator.abort()),
    reject({ rules, life: { parts, clock } }) {
      rules.wish('client', nowMs())
      rules.reported(nowMs())
      parts.keeper.reject(usableToken(parts.keeper.state(), clock.now())?.fingerprint ?? 'none')
    },
    need({ life, rules }) {
      rules.wish('client', nowMs())
      life.parts.keeper.need(200_000)
    },
    reload(host, name) {
      write(host, name)
      reload(host)
      if (name !== nameOf(host.life.config))
        owe(state, host, { act: 'reload', ms: OPERATOR_MS, account: name })
    },
    /** The address of the service is in no secret file. */
    rotate(host, name) {
      const [pair = ''] = name.split('@')
      write(host, host.files.endsWith('@there') ? `${pair}@there` : pair)
    },
    policy(host, policy) {
      host.policy = policy as Host['policy']
      // A wait that was drawn again is saved with the next answer; a start draws it again, too.
      host.isReplanned = true
      reload(host)
    },
    /** A reload that changes the shared store: to that of this prefix, or to none. */
    move(host, prefix) {
      disturb(state)
      host.prefix = prefix === 'none' ? null : prefix
      reload(host)
    },
    /** The service refuses this host alone from now on; without a kind, no more. */
    bar: (host, kind) => (host.barred = kind === '' ? null : (kind as NonNullable<Host['barred']>)),
    cut({ index }) {
      state.store.cutOff.add(index)
      disturb(state)
      for (const server of state.store.servers.values()) server.disconnect(`host-${index}`)
    },
    hangs: (host) => (host.hangsMs = HANG_MS),
    /** Somebody sets the wall clock. */
    wall: (host, seconds) => ((host.wallAheadMs += Number(seconds) * 1_000), (host.isWallSet = true)),
    ...processActs(state),
  }
}

/** What happens to the process of a host. */
function processActs(state: State): Acts<Host> {
  const { nowMs } = state
  return {
    crash: (host) => kill(state, host),
    async restart(host) {
      const { stop, store, parts } = host.life
      stop.abort()
      await settle()
      // It may be killed or stopped meanwhile.
      await Promise.race([store.close(parts.keeper.state()), settle()])
      kill(state, host)
      host.rules.acted(nowMs())
      await start(state, host)
    },
    reboot(host) {
      kill(state, host)
      const disk = { ...host.disk, token: null }
      // What was to be waited for follows the wall clock.
      if (host.isWallSet) host.rules.forgetAll()
      Object.assign(host, { sleptMs: 0, isWallSet: false })
      Object.assign(host, { disk, boots: host.boots + 1, bootedAtMs: nowMs() - 1_000, handed: {} })
      host.tokenless.reboot(1_000)
    },
    arm: (host, what, effects) => (host.armed = { what, effects: Number(effects) }),
    stop: ({ life }) => (life.inbox = []),
    go(host) {
      const { life } = host
      host.isLate = true
      disturb(state)
      const waiting = life.inbox ?? []
      life.inbox = null
      for (const call of waiting) deliver(life, call)
    },
  }
}

/** What happens to time, the service and the store. */
function worldActs(state: State): Acts<State> {
  const { clock, store, hosts } = state
  return {
    /** From now on each request is answered so at once; without a kind, it waits for an act. */
    auto({ requests }, kind) {
      state.auto = kind === '' ? null : kind
      for (const one of Array.from(requests)) if (state.auto !== null) one.answer(state.auto)
    },
    wait: (_state, seconds) => clock.advance(Number(seconds) * 1_000),
    sleep(_state, seconds) {
      clock.suspend(Number(seconds) * 1_000)
      disturb(state)
      for (const one of hosts) {
        one.sleptMs += Number(seconds) * 1_000
        one.owed = []
      }
    },
    lose() {
      store.state = 'lost'
      disturb(state)
      for (const server of store.servers.values()) server.disconnect()
    },
    hang: () => ((store.state = 'hung'), disturb(state)),
    find() {
      store.state = 'well'
      store.cutOff.clear()
      store.isPushing = true
      disturb(state)
      for (const server of store.servers.values()) server.message()
    },
    flush() {
      disturb(state)
      for (const server of store.servers.values()) server.flush()
    },
    deaf: () => (store.isPushing = false),
    clock(_state, seconds) {
      disturb(state)
      store.aheadMs += Number(seconds) * 1_000
    },
    evil: (_state, what) => evil(state, what),
  }
}
