// Becomes another program: execve(2), with the signals as a program expects to find them.
import { loadLibc } from './libc.ts'

/** Ignored by Node from its start on, and a program that is executed inherits what is ignored (signal(7)). */
const IGNORED_BY_NODE = ['SIGPIPE', 'SIGXFSZ'] as const

/**
 * Replaces this process; the process id, the environment given and the standard streams stay. `path` is the file
 * itself, `argv[0]` what it is called. Returns only by throwing: a SystemCallError with the kernel's `code`. \`process.execve\`
 * of Node aborts where the kernel refuses.
 */
export function replaceProcess(path: string, argv: readonly string[], env: NodeJS.ProcessEnv): never {
  for (const signal of IGNORED_BY_NODE) restoreDefault(signal)
  return loadLibc().replaceProcess(path, argv, env)
}

/** libuv gives a signal its default action back when its last listener goes. */
function restoreDefault(signal: NodeJS.Signals): void {
  const listener = (): void => undefined
  process.on(signal, listener)
  process.off(signal, listener)
}
