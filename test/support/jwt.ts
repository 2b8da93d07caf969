// Tokens as a service gives them, for tests: JWT-shaped, not signed.

/** What the service gives at this moment of its clock: a JWT that lives so long. */
export function grantAt(wallMs: number, lifeMs = 3_600_000, salt = 0) {
  const iat = Math.floor(wallMs / 1_000)
  return { kind: 'ok', accessToken: jwtOf({ iat, exp: iat + lifeMs / 1_000 }, salt) } as const
}

/** An unsigned JWT with these claims; `salt` makes it another token with the same claims. */
export function jwtOf(claims: Record<string, unknown>, salt = 0): string {
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url')
  const signature = Buffer.from(`signature-${salt}`).toString('base64url')
  return `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}.${signature}`
}
