// The files of the bundle as its loader and its maker see them: an id binds them and their code caches to one build.
//
// Of a source V8 compares with its cache nothing but the length. In the middle of an upgrade, and after one for a daemon that
// was not restarted, the files may be of two versions; so each begins with the id of its build.
import { join } from 'node:path'

/** `//` and the id, before the line's end. */
export const ID_BYTES = 16
/** Parts that are used for a moment and then not kept in memory: the next use loads them again. */
export const RELEASED: ReadonlySet<string> = new Set(['./load-config.cjs'])
/** Flags of Node that V8 notes in a code cache: it takes none that was made with others. */
const NOTED_FLAGS = ['--jitless', '--disallow-code-generation-from-strings']

/** The directory of the code caches for this V8 with these flags, in the directory of the bundle. */
export function cacheDirectory(bundle: string, flags: readonly string[]): string {
  const noted = NOTED_FLAGS.filter((flag) => flags.includes(flag)).join('')
  return join(bundle, 'code-cache', `${process.versions.v8}-${process.arch}${noted}`)
}

/** The source as the function that makes the module. */
export function moduleFunction(source: string): string {
  return `(function(exports,require,module,__filename,__dirname){${source}\n})`
}
