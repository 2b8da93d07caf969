// Listening sockets that systemd handed over (sd_listen_fds(3)).

/** SD_LISTEN_FDS_START. */
export const FIRST_LISTEN_FD = 3

/** Names of `FileDescriptorName=` that the daemon serves. */
const NAMES = ['ipc', 'http', 'metrics', 'credential'] as const
type SocketName = (typeof NAMES)[number]

/** Descriptors by name, any number of each. */
export interface InheritedSockets extends Readonly<Record<SocketName, readonly number[]>> {
  /** The names of others. */
  readonly unknown: readonly string[]
}

/** Number of descriptors that LISTEN_FDS hands to this pid; none if LISTEN_PID names another one. */
export function countListenFds(env: NodeJS.ProcessEnv, pid: number): number {
  const { LISTEN_PID = '', LISTEN_FDS = '' } = env
  return LISTEN_PID === String(pid) && /^\d{1,4}$/.test(LISTEN_FDS) ? Number(LISTEN_FDS) : 0
}

/** Takes LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES out of the environment, so that no child uses them. */
export function takeInheritedSockets(env: NodeJS.ProcessEnv, pid: number): InheritedSockets {
  const given = (env['LISTEN_FDNAMES'] ?? '').split(':')
  // `unknown`: as systemd calls one without a name.
  const names = Array.from({ length: countListenFds(env, pid) }, (_, index) => given[index] || 'unknown')
  for (const name of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']) Reflect.deleteProperty(env, name)
  const fdsOf = (wanted: SocketName): number[] =>
    names.flatMap((name, index) => (name === wanted ? [FIRST_LISTEN_FD + index] : []))
  return {
    ipc: fdsOf('ipc'),
    http: fdsOf('http'),
    metrics: fdsOf('metrics'),
    credential: fdsOf('credential'),
    unknown: names.filter((name) => !(NAMES as readonly string[]).includes(name)),
  }
}

/** Reports whether systemd handed over a socket that is served: the daemon then opens no other. */
export function isSocketActivated(inherited: InheritedSockets): boolean {
  return NAMES.some((name) => inherited[name].length > 0)
}

/** The descriptors to listen on; null: systemd handed over none at all, and the socket's path is opened. */
export function descriptorsOf(inherited: InheritedSockets, name: SocketName): readonly number[] | null {
  return isSocketActivated(inherited) ? inherited[name] : null
}
