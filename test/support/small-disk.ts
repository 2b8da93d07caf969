// A small file system of its own for a test, which can be filled up and made read-only.
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished } from 'vitest'
import { expectUntil } from './until.ts'

const SIZE_BYTES = 256 * 1024

/** Reports whether file systems can be mounted here: root, in a container that may. */
export const canMount = isMountable()

/** A tmpfs of 256 KiB at this path, which is made; gone when the test ends. */
export function smallDisk(path: string) {
  mkdirSync(path)
  run('mount', '-t', 'tmpfs', '-o', `size=${SIZE_BYTES},mode=755`, 'none', path)
  onTestFinished(() => run('umount', '-l', path))
  const filler = join(path, 'filler')
  return {
    /** Leaves no space for a single byte. */
    fill: (): void => {
      expect(() => writeFileSync(filler, Buffer.alloc(SIZE_BYTES + 1))).toThrow('ENOSPC')
    },
    /** Frees the space again. */
    empty: () => rmSync(filler),
    /** The kernel refuses it while a file there is being written. */
    readOnly: async (isReadOnly: boolean): Promise<void> => {
      const words = ['-o', `remount,${isReadOnly ? 'ro' : 'rw'}`, path]
      await expectUntil('the mount', () => spawnSync('mount', words).status === 0)
    },
  }
}

function run(command: string, ...args: string[]): void {
  const { status, stderr } = spawnSync(command, args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${stderr}`)
}

function isMountable(): boolean {
  if (process.geteuid?.() !== 0) return false
  const probe = mkdtempSync(join(tmpdir(), 'kyc-tokend-mount-'))
  const isMounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', probe]).status === 0
  if (isMounted) run('umount', '-l', probe)
  else process.stderr.write('Tests are skipped: no file system can be mounted here\n')
  rmdirSync(probe)
  return isMounted
}
