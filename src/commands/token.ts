// token and status: the token alone, and the state of the daemon with the remedy of its last failure.
import type { ClientToken } from '../client/index.ts'
import { textOf } from '../delivery/token-files.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { exitStatus } from '../lib/error.ts'
import { ask, askToken, remediesFor } from '../terminal/ask.ts'
import type { RunCommand } from '../terminal/command.ts'
import { formatStatus } from '../terminal/format-status.ts'

/** Each ends with a newline, and JSON has all that is known of the token. */
const formats: Readonly<Record<string, (token: ClientToken) => string>> = {
  ...textOf,
  raw: ({ accessToken }) => `${accessToken}\n`,
  json: (token) => `${JSON.stringify(token)}\n`,
}

export const token: RunCommand = async (invocation) => {
  const format = formats[String(invocation.options['format'] ?? 'raw')]
  const answer = await askToken(invocation)
  invocation.stdout.write(format?.(answer) ?? '')
  return exitStatus.ok
}

export const status: RunCommand = async (invocation) => {
  const { options, stdout } = invocation
  const answer = await ask(invocation, (client) => client.status())
  if (options['json'] === true) stdout.write(`${escapeUnsafe(JSON.stringify(answer))}\n`)
  else {
    const remedies = await remediesFor(answer.daemon, invocation)
    stdout.write(formatStatus(answer, { nowMs: Date.now(), remedies }))
  }
  if (answer.state === 'refused') return exitStatus.noPermission
  return answer.token === null ? exitStatus.tryAgain : exitStatus.ok
}
