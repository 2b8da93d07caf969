// Tokens as a service gives them, for tests: JWT-shaped, not signed.

/** An unsigned JWT with these claims; `salt` makes it another token with the same claims. */
export function jwtOf(claims: Record<string, unknown>, salt = 0): string {
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url')
  const signature = Buffer.from(`signature-${salt}`).toString('base64url')
  return `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}.${signature}`
}
