// Functions of libraries that are in this process already: libc, and what Node itself is made with.
import { createRequire } from 'node:module'
import { errorCode, errorMessage, exitStatus, UserError } from './error.ts'

/** The part of koffi's native module that is used. */
export interface Koffi {
  load(path: null): { func(definition: string): (...args: unknown[]) => number }
  errno(): number
}
/**
 * The first time takes about 4 ms and 2.5 MB: load it where it is needed. Throws UserError (78) with the remedy where it is
 * not installed.
 */
export function loadKoffi(): Koffi {
  try {
    return nativeModule()
  } catch (cause) {
    throw new UserError(
      `The package koffi, by which kyc-tokend calls libc, cannot be loaded (${errorMessage(cause).split('\n')[0]}): install it with \`npm install koffi\``,
      exitStatus.configuration,
      { cause },
    )
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
