// The system that the program needs: a supported Node and, for the daemon, Linux.
import { exitStatus, UserError } from '../lib/error.ts'

/** `engines` of package.json: the first without a known hole in TLS or HTTP. */
const FIRST_NODE = '24.18.1'

/** Throws UserError (69) on a Node that is older. */
export function requireSupportedNode(version = process.versions.node): void {
  if (version.localeCompare(FIRST_NODE, 'en', { numeric: true }) >= 0) return
  const message =
    `kyc-tokend needs Node ${FIRST_NODE} or newer, and this is v${version}: ` +
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
