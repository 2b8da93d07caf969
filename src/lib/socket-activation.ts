// Listening sockets that systemd handed over (sd_listen_fds(3)).

/** SD_LISTEN_FDS_START. */
export const FIRST_LISTEN_FD = 3

/** Number of descriptors that LISTEN_FDS hands to this pid; none if LISTEN_PID names another one. */
export function countListenFds(env: NodeJS.ProcessEnv, pid: number): number {
  const { LISTEN_PID = '', LISTEN_FDS = '' } = env
  return LISTEN_PID === String(pid) && /^\d{1,4}$/.test(LISTEN_FDS) ? Number(LISTEN_FDS) : 0
}

/**
 * The names of the descriptors that were handed over, from the first one on; `unknown` if it has none. Takes
 * LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES out of the environment, so that no child uses them.
 */
export function takeListenNames(env: NodeJS.ProcessEnv, pid: number): string[] {
  const names = (env['LISTEN_FDNAMES'] ?? '').split(':')
  const taken = Array.from({ length: countListenFds(env, pid) }, (_, index) => names[index] || 'unknown')
  for (const name of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']) Reflect.deleteProperty(env, name)
  return taken
}
