// Programs that tests need and a machine may lack: those tests are skipped by name.
import { spawnSync } from 'node:child_process'

/** Those of the programs that the search path does not have. */
export function missingOf(programs: readonly string[]): string[] {
  return programs.filter((name) => spawnSync('sh', ['-c', `command -v ${name}`]).status !== 0)
}

/** Reports whether one of the programs is not there, and says so on stderr. */
export function lacks(...programs: readonly string[]): boolean {
  const missing = missingOf(programs)
  if (missing.length > 0) process.stderr.write(`Tests are skipped: there is no ${missing.join(', ')}\n`)
  return missing.length > 0
}
