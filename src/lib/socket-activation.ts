// Listening sockets that systemd handed over (sd_listen_fds(3)).
import { closeSync, fstatSync } from 'node:fs'
import { errorCode } from './error.ts'

/** SD_LISTEN_FDS_START. */
export const FIRST_LISTEN_FD = 3

/** Names of `FileDescriptorName=` that the daemon serves. */
const NAMES = ['ipc', 'http', 'metrics', 'credential'] as const
type SocketName = (typeof NAMES)[number]

/** Descriptors by name, any number of each. */
export interface InheritedSockets extends Readonly<Record<SocketName, readonly number[]>> {
  /** Those of other names. */
  readonly unknown: readonly { readonly name: string; readonly fd: number }[]
}

/** Number of descriptors that LISTEN_FDS hands to the process with this pid; none if LISTEN_PID names another one. */
export function countListenFds(env: NodeJS.ProcessEnv, pid: number): number {
  const { LISTEN_PID = '', LISTEN_FDS = '' } = env
  return LISTEN_PID === String(pid) && /^\d{1,4}$/.test(LISTEN_FDS) ? Number(LISTEN_FDS) : 0
}

/** Takes LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES out of the environment, so that no child uses them. */
export function takeInheritedSockets(env: NodeJS.ProcessEnv, pid: number): InheritedSockets {
  const names = (env['LISTEN_FDNAMES'] ?? '').split(':')
  const sockets = Array.from({ length: countListenFds(env, pid) }, (_, index) => ({
    // As systemd calls one without a name.
    name: names[index] || 'unknown',
    fd: FIRST_LISTEN_FD + index,
  }))
  delete env['LISTEN_PID']
  delete env['LISTEN_FDS']
  delete env['LISTEN_FDNAMES']
  const fdsOf = (wanted: SocketName): number[] =>
    sockets.filter(({ name }) => name === wanted).map(({ fd }) => fd)
  return {
    ipc: fdsOf('ipc'),
    http: fdsOf('http'),
    metrics: fdsOf('metrics'),
    credential: fdsOf('credential'),
    unknown: sockets.filter(({ name }) => !(NAMES as readonly string[]).includes(name)),
  }
}

/** Reports whether systemd handed over a socket that is served: the daemon then opens no other. */
export function isSocketActivated(inherited: InheritedSockets): boolean {
  return NAMES.some((name) => inherited[name].length > 0)
}

/** The descriptors to listen on; null: systemd handed over no socket at all, and this one is opened at its path. */
export function descriptorsOf(inherited: InheritedSockets, name: SocketName): readonly number[] | null {
  return isSocketActivated(inherited) ? inherited[name] : null
}

/**
 * Closes sockets of other names, so that their clients are refused and do not wait for ever. Call it before anything else
 * is opened. Only sockets are closed: a descriptor could be one of Node's own.
 */
export function closeUnknownSockets({ unknown }: InheritedSockets): void {
  for (const { fd } of unknown) {
    try {
      if (fstatSync(fd).isSocket()) closeSync(fd)
    } catch (error) {
      if (errorCode(error) !== 'EBADF') throw error
    }
  }
}
