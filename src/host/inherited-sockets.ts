// The sockets that systemd handed over to this daemon, by the names that its socket units give them.
import { FIRST_LISTEN_FD, takeListenNames } from '../lib/socket-activation.ts'
import type { SocketName } from './account.ts'

/** Descriptors by name, any number of each. */
export interface InheritedSockets extends Readonly<Record<SocketName, readonly number[]>> {
  /** The names of others. */
  readonly unknown: readonly string[]
}

/** Takes them out of the environment, so that no child uses them. */
export function takeInheritedSockets(env: NodeJS.ProcessEnv, pid: number): InheritedSockets {
  const names = takeListenNames(env, pid)
  const fdsOf = (wanted: SocketName): number[] =>
    names.flatMap((name, index) => (name === wanted ? [FIRST_LISTEN_FD + index] : []))
  const known = {
    ipc: fdsOf('ipc'),
    http: fdsOf('http'),
    metrics: fdsOf('metrics'),
  }
  return { ...known, unknown: names.filter((name) => !Object.hasOwn(known, name)) }
}

/** Reports whether systemd handed over a socket that is served: the daemon then opens no other. */
export function isSocketActivated(inherited: InheritedSockets): boolean {
  const { unknown: _, ...served } = inherited
  return Object.values(served).some((fds) => fds.length > 0)
}

/** The descriptors to listen on; null: systemd handed over none at all, and the socket's path is opened. */
export function descriptorsOf(inherited: InheritedSockets, name: SocketName): readonly number[] | null {
  return isSocketActivated(inherited) ? inherited[name] : null
}
