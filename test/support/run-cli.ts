// Runs the command line as a user does: a process, its streams and its end.
import { spawn } from 'node:child_process'
import { PROGRAM } from './daemon.ts'

export interface Ended {
  readonly status: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

/** `env` is added to this process's own, without what could lead to another daemon. */
export function runCli(
  args: readonly string[],
  options: { env?: NodeJS.ProcessEnv; input?: string; cwd?: string; uid?: number } = {},
): Promise<Ended> {
  const [node, ...words] = PROGRAM
  const child = spawn(node, [...words, ...args], {
    env: {
      ...process.env,
      KYC_TOKEND_SOCKET: undefined,
      KYC_TOKEND_ACCOUNT: undefined,
      NO_COLOR: undefined,
      ...options.env,
    },
    timeout: 25_000,
    ...(options.cwd !== undefined && { cwd: options.cwd }),
    ...(options.uid !== undefined && { uid: options.uid, gid: options.uid }),
  })
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  // A command that reads nothing may have ended already.
  child.stdin.on('error', () => undefined)
  child.stdin.end(options.input ?? '')
  return new Promise((resolve) => {
    child.on('close', (status, signal) => {
      resolve({ status, signal, stdout, stderr })
    })
  })
}
