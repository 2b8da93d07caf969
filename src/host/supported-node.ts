// The system that the program needs: a supported Node and, for the daemon, Linux.
import { exitStatus, UserError } from '../lib/error.ts'

/** `engines` of package.json: the first minor version that will do, by major version. */
const FIRST_MINOR: Readonly<Record<number, number>> = { 22: 21, 24: 5 }
const FIRST_MAJOR_OF_ALL = 26

/** Throws UserError (69) on a Node that will not do. */
export function requireSupportedNode(): void {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  if (major >= FIRST_MAJOR_OF_ALL || minor >= (FIRST_MINOR[major] ?? Infinity)) return
  const message =
    `kyc-tokend needs Node 22.21, 24.5 or 26, or newer ones of these, and this is ${process.version}: ` +
    'install one; in a checkout on x64 `npm ci` brings one, which `npx kyc-tokend` uses.'
  throw new UserError(message, exitStatus.unavailable)
}

/** Throws UserError (69) if this is another system. */
export function requireLinux(): void {
  if (process.platform === 'linux') return
  const message =
    `The daemon of kyc-tokend runs on Linux only, and this is ${process.platform}: run it there. ` +
    'The client library runs here, too, against a socket that reaches such a daemon.'
  throw new UserError(message, exitStatus.unavailable)
}
