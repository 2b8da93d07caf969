// The sockets that systemd handed over to this daemon (sd_listen_fds(3)), by the names that its socket units give
// them.
import type { SocketName } from './account.ts'

/** Descriptors by name, any number of each. */
export interface InheritedSockets extends Readonly<Record<SocketName, readonly number[]>> {
  /** The names of others. */
  readonly unknown: readonly string[]
}

/** SD_LISTEN_FDS_START. */
const FIRST_LISTEN_FD = 3

/** Takes them out of the environment, so that no child uses them. None if LISTEN_PID names another process. */
export function takeInheritedSockets(env: NodeJS.ProcessEnv, pid: number): InheritedSockets {
  const { LISTEN_PID, LISTEN_FDS = '', LISTEN_FDNAMES = '' } = env
  const isOurs = LISTEN_PID === String(pid) && /^\d{1,4}$/.test(LISTEN_FDS)
  const given = LISTEN_FDNAMES.split(':')
  const names = Array.from(
    { length: isOurs ? Number(LISTEN_FDS) : 0 },
    (_, index) => given[index] || 'unknown',
  )
  for (const name of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']) Reflect.deleteProperty(env, name)
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
