// Makes the code caches of the bundle: V8's bytecode of the functions that a start calls, so that it does not compile.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { cacheDirectory, ID_BYTES, moduleFunction } from './parts.ts'
import { profileStart } from './start-profile.ts'

/** The daemon's files: each of its starts loads them. */
const CACHED = ['main', 'run', 'load-config', 'error', 'secret']
/** As commands start, and as the unit and its drop-in for many requests start the daemon. */
const FLAG_SETS = [
  [],
  ['--jitless', '--disallow-code-generation-from-strings'],
  ['--disallow-code-generation-from-strings'],
]
/** The same source gives the same bytes where V8's hashes have a fixed seed. */
const MAKING = ['--hash-seed=1']

/** Writes the caches beside the files of this bundle; each of its parts gets the id of the build. */
export async function writeCodeCaches(bundle: string, names: readonly string[]): Promise<void> {
  const texts = new Map(names.map((name) => [name, readFileSync(join(bundle, `${name}.cjs`), 'utf8')]))
  const hash = createHash('sha256').update(JSON.stringify([...texts]))
  const id = `//${hash.digest('hex')}`.slice(0, ID_BYTES)
  for (const [name, text] of texts) writeFileSync(join(bundle, `${name}.cjs`), `${id}\n${text}`)
  const profile = await profileStart(bundle)
  const parts = CACHED.map((name) => {
    const filename = `${name}.cjs`
    return { filename, source: moduleFunction(`${id}\n${texts.get(name)}`), called: profile[filename] }
  })
  for (const flags of FLAG_SETS) {
    const directory = cacheDirectory(bundle, flags)
    mkdirSync(directory, { recursive: true })
    const compiler = join(import.meta.dirname, 'compile.mjs')
    const { status } = spawnSync(process.execPath, [...MAKING, ...flags, compiler], {
      input: JSON.stringify({ id, directory, parts }),
      stdio: ['pipe', 'inherit', 'inherit'],
    })
    if (status !== 0) throw new Error('The code caches cannot be made: see above')
  }
}
