// Bundles the program once for a whole run of the tests: what they start is what is shipped.
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { bundleProgram } from '../../src/build/bundle.ts'

/** Names the bundled program for test/support/daemon.ts. */
const VARIABLE = 'KYC_TOKEND_TEST_PROGRAM'

/** Called by vitest before the first test; what it gives is called after the last. */
export async function setup(): Promise<() => void> {
  const project = join(import.meta.dirname, '..', '..')
  // Inside the project, from where the program finds its optional native module.
  const cache = join(project, 'node_modules', '.cache')
  mkdirSync(cache, { recursive: true })
  const directory = mkdtempSync(join(cache, 'kyc-tokend-'))
  // Other users run it, too.
  chmodSync(directory, 0o755)
  process.stderr.write('Building the program …\n')
  if (process.getuid?.() !== 0)
    process.stderr.write('Tests that need other users, mounts or machines are skipped: you are not root\n')
  await bundleProgram(directory)
  process.env[VARIABLE] = join(directory, 'cli.cjs')
  // Installed: a shell finds it by its name.
  const bin = `${directory}.bin`
  mkdirSync(bin)
  symlinkSync(join(directory, 'cli.cjs'), join(bin, 'kyc-tokend'))
  process.env['PATH'] = `${process.env['PATH']}:${bin}`
  return () => {
    for (const made of [directory, bin, `${directory}.packages`])
      rmSync(made, { recursive: true, force: true })
  }
}
