// Libraries in C that are preloaded into a program under test: stalled-disk.c and stop-at.c.
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expectUntil } from './until.ts'

/** Makes the library in this directory, and gives its path. The caller knows that there is a C compiler. */
function compile(name: string, workDirectory: string): string {
  const library = join(workDirectory, `${name}.so`)
  const source = new URL(`${name}.c`, import.meta.url).pathname
  const { status, stderr } = spawnSync('cc', ['-shared', '-fPIC', '-o', library, source])
  if (status !== 0) throw new Error(stderr.toString())
  return library
}

/** Disks with all below these directories that hang on command; `workDirectory` is on none of them. */
export function createStalledDisk(directories: string | readonly string[], workDirectory: string) {
  const flag = join(workDirectory, 'stalled')
  return {
    /** For the program that is to see it. */
    env: {
      LD_PRELOAD: compile('stalled-disk', workDirectory),
      STALL_BELOW: [directories].flat().join(':'),
      STALL_WHILE: flag,
    },
    stall: () => writeFileSync(flag, ''),
    /** Reports whether a call has met the stall. */
    isMet: () => existsSync(`${flag}.met`),
    goOn: () => rmSync(flag, { force: true }),
  }
}

/** A write by a text that only it contains, and the moment at which the program stops. */
export interface Halt {
  readonly when: 'before' | 'after'
  readonly text: string
}

/** For a program that stops itself (SIGSTOP) at a certain write. */
export function createHalts(workDirectory: string) {
  const file = join(workDirectory, 'stop-at')
  return {
    /** For the program that is to stop. */
    env: { LD_PRELOAD: compile('stop-at', workDirectory), STOP_AT: file },
    /** It stops at the next such write. */
    at: ({ when, text }: Halt): void => writeFileSync(file, `${when} ${text}`),
  }
}

/** Resolves when the process is stopped. */
export async function untilStopped(pid: number): Promise<void> {
  await expectUntil(`process ${pid} to stop`, () =>
    / T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\)/, '')),
  )
}
