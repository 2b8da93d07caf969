// The programs of the suite: those in C are compiled, all are started, and none outlives the run.
import { execFile, spawn, spawnSync, type ChildProcessByStdio } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

export const NODE = process.execPath
export const CLI = fileURLToPath(new URL('../../dist/cli.cjs', import.meta.url))

/** A file of the suite, absolute. */
export function ownFile(name: string): string {
  return fileURLToPath(new URL(name, import.meta.url))
}

export type Running = ChildProcessByStdio<Writable, Readable, null>

const running = new Set<Running>()

/** Compiles `name.c` into the directory and gives the program's path. */
export function compile(name: string, directory: string): string {
  const program = join(directory, name)
  const { status, error, stderr } = spawnSync('cc', ['-O2', '-o', program, ownFile(`${name}.c`)], {
    encoding: 'utf8',
  })
  if (error !== undefined)
    throw new Error('The benchmarks need a C compiler: install gcc, or another that is called cc', {
      cause: error,
    })
  if (status !== 0) throw new Error(`${name}.c cannot be compiled: ${stderr}`)
  return program
}

/** Starts a program; what it says on stderr goes to `logFile`, where one is given. */
export function start(
  command: readonly string[],
  options: { env?: NodeJS.ProcessEnv; logFile?: string } = {},
): Running {
  const [program = '', ...words] = command
  const log = options.logFile === undefined ? 'inherit' : openSync(options.logFile, 'a')
  const child = spawn(program, words, {
    stdio: ['pipe', 'pipe', log],
    env: { PATH: process.env['PATH'], ...options.env },
  }) as Running
  if (typeof log === 'number') closeSync(log)
  running.add(child)
  child.once('exit', () => running.delete(child))
  return child
}

export async function end(child: Running, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill(signal)
  await once(child, 'exit')
}

export async function endAll(): Promise<void> {
  await Promise.all([...running].map(async (child) => end(child, 'SIGKILL')))
}

/** Runs a program to its end and gives what it has printed. */
export async function outputOf(command: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<string> {
  const [program = '', ...words] = command
  const { stdout } = await promisify(execFile)(program, words, {
    env: { PATH: process.env['PATH'], ...env },
    maxBuffer: 16 * 1024 * 1024,
  })
  return stdout
}

/** Gives the next line that the program prints. Throws when it has ended. */
export function lineReader({ stdout, spawnargs }: Running): () => Promise<string> {
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]()
  return async () => {
    const { value, done } = await lines.next()
    if (done) throw new Error(`It has ended early: ${spawnargs.join(' ')}`)
    return value
  }
}
