// status: how it stands, for people and for programs.
import { exitStatus } from '../lib/error.ts'
import type { StatusResult } from '../protocol.ts'
import { ask } from './ask.ts'
import type { RunCommand } from './command.ts'
import { tellStatus } from './tell-status.ts'

export const run: RunCommand = async ({ options, env, stdout, ...rest }) => {
  const status = await ask({ options, env, stdout, ...rest }, (client) => client.status())
  if (options['json'] === true) stdout.write(`${JSON.stringify(status)}\n`)
  else {
    const isTerminal = 'isTTY' in stdout && stdout.isTTY === true
    const hasColour = isTerminal && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb'
    stdout.write(tellStatus(status, { nowMs: Date.now(), hasColour }))
  }
  return exitStatusOf(status)
}

function exitStatusOf(status: StatusResult): number {
  if (status.state === 'refused') return exitStatus.noPermission
  return status.token === null ? exitStatus.tryAgain : exitStatus.ok
}
