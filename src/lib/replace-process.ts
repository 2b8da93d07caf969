// Becomes another program: execve(2), with the signals as a program expects to find them.
import { loadLibc } from './libc.ts'

/** Ignored by Node from its start on, and a program that is executed inherits what is ignored (signal(7)). */
const IGNORED_BY_NODE = ['SIGPIPE', 'SIGXFSZ'] as const

/**
 * Replaces this process; the process id, the environment given and the standard streams stay. `path` is the file
 * itself, `argv[0]` what it is called. Returns only by throwing: a SystemCallError with the kernel's `code`, or an
 * error that names the remedy where neither koffi nor `process.execve` is there.
 */
export function replaceProcess(path: string, argv: readonly string[], env: NodeJS.ProcessEnv): never {
  for (const signal of IGNORED_BY_NODE) restoreDefault(signal)
  const libc = loadLibc()
  if (!('error' in libc)) libc.replaceProcess(path, argv, env)
  // Second choice: where the kernel refuses, Node aborts.
  if (process.execve !== undefined) process.execve(path, [...argv], env)
  throw new Error('error' in libc ? libc.error : 'This Node cannot become another program')
}

/** libuv gives a signal its default action back when its last listener goes. */
function restoreDefault(signal: NodeJS.Signals): void {
  const listener = (): void => undefined
  process.on(signal, listener)
  process.off(signal, listener)
}
