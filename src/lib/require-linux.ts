// The daemon needs Linux; its clients need only its socket.
import { exitStatus, UserError } from './error.ts'

/** Throws UserError (69) where this is another system. */
export function requireLinux(): void {
  if (process.platform === 'linux') return
  const message = `The daemon of kyc-tokend runs on Linux only, and this is ${process.platform}: run it there. The client library runs here, too, against a socket that reaches such a daemon.`
  throw new UserError(message, exitStatus.unavailable)
}
