// token: prints the access token and nothing else.
import type { ClientToken } from '../client/index.ts'
import { textOf } from '../delivery/token-format.ts'
import { askToken } from '../terminal/ask.ts'
import type { RunCommand } from '../terminal/command.ts'

/** Each ends with a newline, and JSON has all that is known of the token. */
const formats: Readonly<Record<string, (token: ClientToken) => string>> = {
  ...textOf,
  raw: ({ accessToken }) => `${accessToken}\n`,
  json: (token) => `${JSON.stringify(token)}\n`,
}

export const run: RunCommand = async (invocation) => {
  const format = formats[String(invocation.options['format'] ?? 'raw')]
  const token = await askToken(invocation)
  invocation.stdout.write(format?.(token) ?? '')
  return 0
}
