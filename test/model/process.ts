// The moments at which a process of the model can be killed or stopped, or has another act done: its effects.
import { deliver } from './clock.ts'
import { leftMs, type Host, type Life, type State } from './state.ts'

const never = (): Promise<never> => new Promise(() => undefined)

/** `isMoment`: too short a moment for a process to be stopped in. */
export async function effect(state: State, life: Life, { isMoment = false } = {}): Promise<void> {
  const { host } = life
  const isMeant = host.armed !== null && !(isMoment && host.armed.what === 'stop')
  if (host.armed !== null && isMeant && host.life === life && !life.isDead) {
    host.armed.effects -= 1
    if (host.armed.effects <= 0) {
      const { what } = host.armed
      host.armed = null
      if (what === 'stop') life.inbox = []
      else if (what === 'crash') kill(state, host)
      else state.perform(host, what)
    }
  }
  if (life.inbox !== null) await new Promise<void>((resolve) => deliver(life, resolve))
  if (life.isDead) await never()
}

export function kill(state: State, host: Host): void {
  const { life } = host
  const { requests } = state
  life.isDead = true
  for (const one of requests.filter((request) => request.life === life)) {
    // It was saved as failed before it went out.
    host.rules.cutShort(one.account, { askedMs: one.askedMs, leftMs: leftMs(life, one.askedMs) })
    requests.splice(requests.indexOf(one), 1)
  }
  host.rules.forgetToken()
  host.tokenless.unsure()
  // What it handed out meanwhile is not on its disk.
  if (host.hungSinceMs !== null) {
    host.rules.forgetAll()
    host.handed = {}
  }
  host.hungSinceMs = null
  ;[host.armed, host.owed, host.operators] = [null, [], []]
  life.stop.abort()
}
