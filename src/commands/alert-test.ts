// alert-test: rehearses an alert through the whole way, from the log to the operator's command.
import { createReconnectingConnection } from '../client/connection.ts'
import { call } from '../client/call.ts'
import { currentIdentity, findSocket, socketName } from '../client/find-socket.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import type { AlertTestResult } from '../protocol.ts'
import { asUserError } from './ask.ts'
import type { RunCommand } from './command.ts'

export const run: RunCommand = async ({ options, stdout }) => {
  const { socket: socketPath, account } = options as { socket?: string; account?: string }
  const named = socketName(currentIdentity(), { socketPath, account })
  const connection = createReconnectingConnection({
    findPath: () => findSocket(currentIdentity(), named),
  })
  try {
    const { outcome, resolvesAt, detail } = await call<AlertTestResult>(connection, {
      type: 'alert.test',
      data: () => ({}),
      isOnce: true,
    })
    if (outcome === 'refused')
      throw new UserError(`No test alert, because one is raised: ${detail ?? ''}`, exitStatus.tryAgain)
    stdout.write(
      `A test alert is raised, and is over at ${resolvesAt?.slice(0, 19) ?? ''}Z. See that it reached you: the log, alert.json and, under systemd, the alert command (journalctl -u kyc-tokend-alert).\n`,
    )
    return exitStatus.ok
  } catch (error) {
    throw asUserError(error)
  } finally {
    connection.close()
  }
}
