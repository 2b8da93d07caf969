// Makes the code caches of the bundle: V8's bytecode of the functions that a start calls, so that it does not compile.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { cacheDirectory, ID_BYTES, moduleFunction } from './parts.ts'
import { profileStart } from './start-profile.ts'

/** The daemon's files: each of its starts loads them. */
const CACHED = ['main.cjs', 'run.cjs', 'error.cjs']
/** As commands start, and as the unit and its drop-in for many requests start the daemon. */
const FLAG_SETS = [
  [],
  ['--jitless', '--disallow-code-generation-from-strings'],
  ['--disallow-code-generation-from-strings'],
]
/** The same source gives the same bytes where V8's hashes have a fixed seed. */
const MAKING = ['--hash-seed=1']

/** Writes the caches beside the files of this bundle, each of which gets an id. */
export async function writeCodeCaches(bundle: string): Promise<void> {
  const parts = CACHED.map((filename) => {
    const path = join(bundle, filename)
    const text = readFileSync(path, 'utf8')
    const id = `//${createHash('sha256').update(text).digest('hex')}`.slice(0, ID_BYTES)
    const source = `${id}\n${text}`
    writeFileSync(path, source)
    return { filename, id, source: moduleFunction(source) }
  })
  const profile = await profileStart(bundle)
  for (const flags of FLAG_SETS) {
    const directory = cacheDirectory(bundle, flags)
    mkdirSync(directory, { recursive: true })
    const input = JSON.stringify(
      parts.map((part) => ({
        ...part,
        called: profile[part.filename],
        target: join(directory, part.filename),
      })),
    )
    const compiler = join(import.meta.dirname, 'compile.mjs')
    const { status } = spawnSync(process.execPath, [...MAKING, ...flags, compiler], {
      input,
      stdio: ['pipe', 'inherit', 'inherit'],
    })
    if (status !== 0) throw new Error('The code caches cannot be made: see above')
  }
}
