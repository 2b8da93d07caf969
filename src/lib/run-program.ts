// Runs a program of the system to its end and returns its output. It runs as the caller, who may be root,
// with a PATH that no other user has set.

export const SYSTEM_PATH = '/usr/sbin:/usr/bin:/sbin:/bin'

interface Finished {
  readonly isOk: boolean
  readonly stdout: string
  /** Why it failed, even if it printed nothing: it was not there, or took longer than `timeoutMs`. */
  readonly stderr: string
}

/** Never rejects. */
export async function runProgram(
  program: string,
  words: readonly string[],
  timeoutMs: number,
): Promise<Finished> {
  const { execFile } = await import('node:child_process')
  return new Promise((resolve) => {
    const options = {
      timeout: timeoutMs,
      killSignal: 'SIGKILL',
      env: { PATH: SYSTEM_PATH, LC_ALL: 'C', SYSTEMD_COLORS: '0', SYSTEMD_PAGER: '' },
    } as const
    execFile(program, words, options, (error, stdout, stderr) => {
      resolve({ isOk: error === null, stdout, stderr: stderr || (error?.message ?? '') })
    })
  })
}
