// token: prints the access token and nothing else.
import type { ClientToken } from '../client/index.ts'
import { variableLine } from '../lib/template.ts'
import { askToken } from './ask.ts'
import type { RunCommand } from './command.ts'

const formats: Readonly<Record<string, (token: ClientToken) => string>> = {
  raw: ({ accessToken }) => accessToken,
  header: ({ accessToken, header, prefix }) => `${header}: ${prefix}${accessToken}`,
  env: ({ accessToken }) => variableLine(accessToken),
  json: (token) => JSON.stringify(token),
}

export const run: RunCommand = async (invocation) => {
  const format = formats[String(invocation.options['format'] ?? 'raw')]
  const token = await askToken(invocation)
  invocation.stdout.write(`${format?.(token)}\n`)
  return 0
}
