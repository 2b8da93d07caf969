// A disk that stops answering on command: a library that is preloaded into the program (stalled-disk.c).
import { spawnSync } from 'node:child_process'
import { existsSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Reports whether a C compiler is there. */
export const canStall = spawnSync('cc', ['--version']).status === 0

export interface StalledDisk {
  /** For the program that is to see it. */
  readonly env: NodeJS.ProcessEnv
  stall(): void
  /** Reports whether a call has met the stall. */
  isMet(): boolean
  goOn(): void
}

/** All files below `directory` are on that disk; the library is made in `workDirectory`, which is not. */
export function createStalledDisk(directory: string, workDirectory: string): StalledDisk {
  const library = join(workDirectory, 'stalled-disk.so')
  const flag = join(workDirectory, 'stalled')
  const source = new URL('stalled-disk.c', import.meta.url).pathname
  const { status, stderr } = spawnSync('cc', ['-shared', '-fPIC', '-o', library, source])
  if (status !== 0) throw new Error(stderr.toString())
  return {
    env: { LD_PRELOAD: library, STALL_BELOW: directory, STALL_WHILE: flag },
    stall: () => {
      writeFileSync(flag, '')
    },
    isMet: () => existsSync(`${flag}.met`),
    goOn: () => {
      rmSync(flag, { force: true })
    },
  }
}
