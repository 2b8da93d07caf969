// A program that stops itself (SIGSTOP) at a certain write: a library that is preloaded into it (stop-at.c).
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expectUntil } from './until.ts'

/** Reports whether a C compiler is there. */
export const canStopAt = spawnSync('cc', ['--version']).status === 0

/** A write by a text that only it contains, and the moment at which the program stops. */
export interface Halt {
  readonly when: 'before' | 'after'
  readonly text: string
}
export interface Halts {
  /** For the program that is to stop. */
  readonly env: NodeJS.ProcessEnv
  /** It stops at the next such write. */
  at(halt: Halt): void
}

/** The library is made in this directory. */
export function createHalts(workDirectory: string): Halts {
  const library = join(workDirectory, 'stop-at.so')
  const file = join(workDirectory, 'stop-at')
  const source = new URL('stop-at.c', import.meta.url).pathname
  const { status, stderr } = spawnSync('cc', ['-shared', '-fPIC', '-o', library, source])
  if (status !== 0) throw new Error(stderr.toString())
  return {
    env: { LD_PRELOAD: library, STOP_AT: file },
    at({ when, text }) {
      writeFileSync(file, `${when} ${text}`)
    },
  }
}

/** Resolves when the process is stopped. */
export async function untilStopped(pid: number): Promise<void> {
  await expectUntil(`process ${pid} to stop`, () =>
    / T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\)/, '')),
  )
}
