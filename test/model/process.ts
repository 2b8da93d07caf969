// The moments at which a process of the model can be killed or stopped, or has another act done: its effects.
import { deliver } from './clock.ts'
import type { Host, Life, State } from './state.ts'

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

export function kill({ requests }: State, host: Host): void {
  const { life } = host
  life.isDead = true
  host.rules.forgetToken()
  host.tokenless.unsure()
  if (host.isHung) host.rules.forgetAll()
  host.isHung = false
  ;[host.armed, host.owed, host.operators] = [null, [], []]
  life.stop.abort()
  for (const one of requests.filter((request) => request.life === life))
    requests.splice(requests.indexOf(one), 1)
}
