// The files of the bundle as its loader and its maker see them: an id binds each to its code cache.
//
// Of a source V8 compares with its cache nothing but the length. In the middle of an upgrade the two may be of two versions, so
// each begins with the same id.
import { join } from 'node:path'

/** `//` and the id, before the line's end. */
export const ID_BYTES = 16
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
