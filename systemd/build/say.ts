// The output of the makers of packages: each step as it begins, and one sentence where they cannot go on.
import { existsSync } from 'node:fs'
import path from 'node:path'

/** On stderr: stdout has the result alone. */
export function step(what: string): void {
  process.stderr.write(`${what} …\n`)
}

export function fail(sentence: string): never {
  process.stderr.write(`${sentence}\n`)
  process.exit(1)
}

/** Ends the program with the names of Debian's packages where a command is missing. */
export function needCommands(packages: Readonly<Record<string, string>>): void {
  const folders = (process.env['PATH'] ?? '').split(path.delimiter)
  const isThere = (name: string): boolean => folders.some((folder) => existsSync(path.join(folder, name)))
  const missing = Object.keys(packages).filter((name) => !isThere(name))
  if (missing.length === 0) return
  const wanted = [...new Set(missing.map((name) => packages[name]))].join(' ')
  fail(`${missing.join(', ')} cannot be found: sudo apt install ${wanted}`)
}
