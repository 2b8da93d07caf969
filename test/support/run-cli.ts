// Runs the command line as a user does: a process, its streams and its end.
import { spawn } from 'node:child_process'
import { onTestFinished } from 'vitest'
import { PROGRAM } from './daemon.ts'

const LONGEST_MS = 25_000

export interface Ended {
  readonly status: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

interface Options {
  /** Added to this process's own, without what could lead to another daemon. */
  readonly env?: NodeJS.ProcessEnv
  readonly cwd?: string
  readonly uid?: number
}

/** The command line as it runs, with its output so far. */
export type Running = ReturnType<typeof startProgram>

export function startCli(args: readonly string[], options: Options = {}): Running {
  return startProgram([...PROGRAM, ...args], options)
}

export function startProgram([command = '', ...words]: readonly string[], options: Options = {}) {
  const { env, uid, ...others } = options
  const none = { KYC_TOKEND_SOCKET: undefined, KYC_TOKEND_ACCOUNT: undefined }
  const child = spawn(command, words, {
    env: { ...process.env, ...none, ...env },
    ...(uid !== undefined && { uid, gid: uid }),
    ...others,
  })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (stdout += chunk))
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => (stderr += chunk))
  const ended = new Promise<Ended>((resolve) => {
    child.on('close', (status, signal) => resolve({ status, signal, stdout, stderr }))
  })
  return { child, stdout: () => stdout, stderr: () => stderr, ended }
}

/** The command line at a terminal, whose screen is its stdout; it ends with the test. */
export function startAtTerminal(args: readonly string[], options: Options = {}): Running {
  const { env, ...others } = options
  const quoted = [...PROGRAM, ...args].map((word) => `'${word}'`).join(' ')
  const words = ['script', '-qefc', `exec ${quoted}`, '/dev/null']
  const running = startProgram(words, { env: { TERM: 'xterm', ...env }, ...others })
  onTestFinished(() => void running.child.kill('SIGKILL'))
  return running
}

export function runCli(
  args: readonly string[],
  { input = '', ...options }: Options & { input?: string } = {},
): Promise<Ended> {
  const { child, ended } = startCli(args, options)
  setTimeout(() => child.kill(), LONGEST_MS).unref()
  // A command that reads nothing may have ended already.
  child.stdin.on('error', () => undefined)
  child.stdin.end(input)
  return ended
}
