// Disks that hang on command, for a program into which stalled-disk.c is preloaded.
import { spawnSync } from 'node:child_process'
import { existsSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/**
 * Disks with all below these directories; `workDirectory` is on none of them. The caller knows that there is a C
 * compiler.
 */
export function createStalledDisk(directories: readonly string[], workDirectory: string) {
  const flag = join(workDirectory, 'stalled')
  const library = join(workDirectory, 'stalled-disk.so')
  const source = new URL('stalled-disk.c', import.meta.url).pathname
  const { status, stderr } = spawnSync('cc', ['-shared', '-fPIC', '-o', library, source])
  if (status !== 0) throw new Error(stderr.toString())
  return {
    /** For the program that is to see it. */
    env: { LD_PRELOAD: library, STALL_BELOW: directories.join(':'), STALL_WHILE: flag },
    stall: () => writeFileSync(flag, ''),
    /** Reports whether a call has met the stall. */
    isMet: () => existsSync(`${flag}.met`),
    goOn: () => rmSync(flag, { force: true }),
  }
}
