// status: the state of the daemon and the remedy of its last failure, for people and for programs.
import { escapeUnsafe } from '../lib/display-text.ts'
import { exitStatus } from '../lib/error.ts'
import { placeOfDaemon } from '../host/systemd.ts'
import { ask, namedSocket } from '../terminal/ask.ts'
import type { RunCommand } from '../terminal/command.ts'
import { formatStatus, screenOf } from '../terminal/format-status.ts'

export const run: RunCommand = async (invocation) => {
  const { options, env, stdout } = invocation
  const status = await ask(invocation, (client) => client.status())
  if (options['json'] === true) stdout.write(`${escapeUnsafe(JSON.stringify(status))}\n`)
  else {
    const place = await placeOfDaemon(status.daemon, namedSocket(invocation))
    stdout.write(formatStatus(status, { nowMs: Date.now(), place, ...screenOf(stdout, env) }))
  }
  if (status.state === 'refused') return exitStatus.noPermission
  return status.token === null ? exitStatus.tryAgain : exitStatus.ok
}
