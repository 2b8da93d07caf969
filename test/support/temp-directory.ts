// A directory of its own for a test, on a disk or in memory, removed when the test ends.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

/** `memory`: on /dev/shm, a tmpfs on every Linux. */
export async function tempDirectory(where: 'disk' | 'memory' = 'disk'): Promise<string> {
  const directory = await mkdtemp(join(where === 'disk' ? tmpdir() : '/dev/shm', 'kyc-tokend-test-'))
  onTestFinished(async () => rm(directory, { recursive: true, force: true }))
  return directory
}
