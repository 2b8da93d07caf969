// Runs the command line as a user does: a process, its streams and its end.
import { spawn } from 'node:child_process'
import { onTestFinished } from 'vitest'
import { PROGRAM } from './daemon.ts'

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
  /** All that it can read; without it the standard input stays open. */
  readonly input?: string
}

/** The command line as it runs, with its output so far. */
export type Running = ReturnType<typeof startProgram>

export function startProgram([command = '', ...words]: readonly string[], options: Options = {}) {
  const { env, uid, input, ...others } = options
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
  // A program that reads nothing may have ended already.
  child.stdin.on('error', () => undefined)
  if (input !== undefined) child.stdin.end(input)
  return { child, stdout: () => stdout, stderr: () => stderr, ended }
}

/** The same; it is killed at the end of the test. */
function startInTest(command: readonly string[], options: Options): Running {
  const running = startProgram(command, options)
  onTestFinished(() => void running.child.kill('SIGKILL'))
  return running
}

export const startCli = (args: readonly string[], options: Options = {}): Running =>
  startInTest([...PROGRAM, ...args], options)

/** The command line at a terminal, whose screen is its stdout. */
export function startAtTerminal(args: readonly string[], { env, ...others }: Options = {}): Running {
  const quoted = [...PROGRAM, ...args].map((word) => `'${word}'`).join(' ')
  const words = ['script', '-qefc', `exec ${quoted}`, '/dev/null']
  return startInTest(words, { env: { TERM: 'xterm', ...env }, ...others })
}

/** A program without input, or with this one, to its end. */
export const runProgram = (command: readonly string[], options: Options = {}): Promise<Ended> =>
  startInTest(command, { input: '', ...options }).ended

export const runCli = (args: readonly string[], options: Options = {}): Promise<Ended> =>
  runProgram([...PROGRAM, ...args], options)
