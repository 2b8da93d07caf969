// The system that the program needs: a supported Node and, for the daemon, Linux.
import { exitStatus, UserError } from '../lib/error.ts'

/** The first versions that have what the program needs (`proxyEnv`), by major version; of later ones, all. */
const FIRST_MINOR: Readonly<Record<number, number>> = { 22: 21, 24: 5 }
const FIRST_MAJOR_OF_ALL = 26
/** `engines` of package.json: the first without a known hole in TLS or HTTP. */
const FIRST_SAFE: Readonly<Record<number, string>> = { 22: '22.23.2', 24: '24.18.1' }

/** Throws UserError (69) on a Node that will not do. */
export function requireSupportedNode(): void {
  const [major = 0, minor = 0] = numbersOf(process.versions.node)
  if (major >= FIRST_MAJOR_OF_ALL || minor >= (FIRST_MINOR[major] ?? Infinity)) return
  const message =
    `kyc-tokend needs Node ${Object.values(FIRST_SAFE).join(', ')} or ${FIRST_MAJOR_OF_ALL}, or newer ones of ` +
    `these, and this is ${process.version}: ` +
    'install one; in a checkout on x64 `npm ci` brings one, which `npx kyc-tokend` uses.'
  throw new UserError(message, exitStatus.unavailable)
}

/** Why this Node should be another; null: nothing is known against it. */
export function nodeProblem(version = process.versions.node): string | null {
  const [major = 0, minor = 0, patch = 0] = numbersOf(version)
  const safe = FIRST_SAFE[major]
  if (safe === undefined) return null
  const [, safeMinor = 0, safePatch = 0] = numbersOf(safe)
  if (minor > safeMinor || (minor === safeMinor && patch >= safePatch)) return null
  return `Node ${version} has known holes in TLS or HTTP: install ${safe} or newer`
}

function numbersOf(version: string): number[] {
  return version.split('.').map(Number)
}

/** Throws UserError (69) if this is another system. */
export function requireLinux(): void {
  if (process.platform === 'linux') return
  const message =
    `The daemon of kyc-tokend runs on Linux only, and this is ${process.platform}: run it there. ` +
    'The client library runs here, too, against a socket that reaches such a daemon.'
  throw new UserError(message, exitStatus.unavailable)
}
