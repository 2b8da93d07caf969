// A directory of its own for a test, on a disk or in memory, removed when the test ends.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

/** Where directories are that the test needs on a disk (/tmp may be in memory), in memory, or anywhere. */
const ROOTS = { disk: '/var/tmp', memory: '/dev/shm', anywhere: tmpdir() }

export async function tempDirectory(where: keyof typeof ROOTS = 'anywhere'): Promise<string> {
  const directory = await mkdtemp(join(ROOTS[where], 'kyc-tokend-test-'))
  // What the test has stopped may still write its last file.
  onTestFinished(async () => rm(directory, { recursive: true, force: true, maxRetries: 5 }))
  return directory
}
