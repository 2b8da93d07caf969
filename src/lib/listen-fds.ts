// Descriptors that systemd handed to this process (sd_listen_fds(3)).

/** SD_LISTEN_FDS_START. */
export const FIRST_LISTEN_FD = 3

/** Number of descriptors that LISTEN_FDS hands to the process with this pid; none where LISTEN_PID names another one. */
export function countListenFds(env: NodeJS.ProcessEnv, pid: number): number {
  const { LISTEN_PID = '', LISTEN_FDS = '' } = env
  return LISTEN_PID === String(pid) && /^\d{1,4}$/.test(LISTEN_FDS) ? Number(LISTEN_FDS) : 0
}
