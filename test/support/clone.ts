// A clone of the project as it is committed, which needs no installation of its own.
import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync } from 'node:fs'
import path from 'node:path'

const PROJECT = path.resolve(import.meta.dirname, '../..')

/** Clones into this directory, which is not there or is empty. */
export function cloneProject(directory: string): void {
  execFileSync('git', ['clone', '--quiet', '--no-hardlinks', PROJECT, directory])
  const modules = path.join(directory, 'node_modules')
  mkdirSync(modules)
  // Caches of tests that run meanwhile begin with a dot, too.
  const packages = readdirSync(path.join(PROJECT, 'node_modules')).filter((name) =>
    /^(?:[^.]|\.bin$)/.test(name),
  )
  execFileSync('cp', ['-al', ...packages, modules], { cwd: path.join(PROJECT, 'node_modules') })
}
