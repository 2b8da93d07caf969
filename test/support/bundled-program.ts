// Bundles the program once for a whole run of the tests: what they start is what is shipped.
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { bundleProgram } from '../../src/bundle.ts'

/** Where the bundled program is, for test/support/daemon.ts. */
const VARIABLE = 'KYC_TOKEND_TEST_PROGRAM'

/** Called by vitest before the first test; what it gives is called after the last. */
export async function setup(): Promise<() => void> {
  const project = join(import.meta.dirname, '..', '..')
  // Inside the project, from where the program finds its optional native module.
  const cache = join(project, 'node_modules', '.cache')
  mkdirSync(cache, { recursive: true })
  const directory = mkdtempSync(join(cache, 'kyc-tokend-'))
  await bundleProgram(directory)
  process.env[VARIABLE] = join(directory, 'cli.cjs')
  return () => rmSync(directory, { recursive: true, force: true })
}
