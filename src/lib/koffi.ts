// Functions of libraries that are in this process already: libc, and what Node itself is made with.
import { createRequire } from 'node:module'
import { errorCode, errorMessage } from './error.ts'

/** The part of koffi's native module that is used. */
export interface Koffi {
  load(path: null): { func(definition: string): (...args: unknown[]) => number }
  errno(): number
}
export interface KoffiMissing {
  /** Why there is none, and the remedy. */
  readonly error: string
}

/** The first time takes about 4 ms and 2.5 MB: load it where it is needed. */
export function loadKoffi(): Koffi | KoffiMissing {
  try {
    return nativeModule()
  } catch (error) {
    return {
      error: `The optional package koffi cannot be loaded (${errorMessage(error).split('\n')[0]}): install it with \`npm install koffi\``,
    }
  }
}

/** The native module itself where it can be found: through koffi's own entry it takes 9 ms and 4 MB more. */
function nativeModule(): Koffi {
  const requireHere = createRequire(import.meta.url)
  try {
    return requireHere(`@koromix/koffi-linux-${process.arch}`) as Koffi
  } catch (error) {
    if (errorCode(error) !== 'MODULE_NOT_FOUND') throw error
    return requireHere('koffi') as Koffi
  }
}
