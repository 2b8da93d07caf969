// What a socket that systemd hands over must be, so that the daemon knows who asks.
import { join } from 'node:path'
import { serviceEnvironment, unitNames } from '../../lib/account.ts'
import { exitStatus, UserError } from '../../lib/error.ts'
import { loadLibc } from '../../lib/libc.ts'
import type { InheritedSockets } from '../../lib/socket-activation.ts'

/**
 * Throws UserError (78), with the line of the unit to change, if a socket named `ipc` or `http` is not a Unix
 * socket with a path: over TCP or an abstract name the token would go to everybody who can connect.
 */
export function assertUnixSockets(inherited: InheritedSockets, account: string | undefined): void {
  const { unit, httpUnit } = unitNames(account)
  for (const [name, socketUnit] of [
    ['ipc', unit],
    ['http', httpUnit],
  ] as const) {
    const isKnown = inherited[name].every((fd) => loadLibc().socketPath(fd) !== '')
    if (isKnown) continue
    const path = join(serviceEnvironment(account).RUNTIME_DIRECTORY, `${name}.sock`)
    const message =
      `The socket that systemd hands over as \`${name}\` is no Unix socket with a path, so that everybody who can connect to ` +
      `it would get the token: write \`ListenStream=${path}\` in its unit (\`sudo systemctl edit --full ${socketUnit}.socket\`), ` +
      `then \`sudo systemctl restart ${socketUnit}.socket ${unit}\``
    throw new UserError(message, exitStatus.configuration)
  }
}
