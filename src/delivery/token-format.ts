// The token as text, as token files, credentials of systemd and `kyc-tokend token` give it.
import { variableLine } from '../token/template.ts'
import type { TokenResult } from '../protocol.ts'

export type TextFormat = 'raw' | 'header' | 'env' | 'json'
type Fields = Pick<
  TokenResult,
  'accessToken' | 'header' | 'prefix' | 'expiresAt' | 'obtainedAt' | 'generation'
>

/** `raw` is the token alone; the others are a line. */
export const textOf: Readonly<Record<TextFormat, (token: Fields) => string>> = {
  raw: ({ accessToken }) => accessToken,
  header: ({ accessToken, header, prefix }) => `${header}: ${prefix}${accessToken}\n`,
  env: ({ accessToken }) => `${variableLine(accessToken)}\n`,
  json: ({ accessToken, expiresAt, obtainedAt, generation }) =>
    `${JSON.stringify({ accessToken, expiresAt, obtainedAt, generation })}\n`,
}
