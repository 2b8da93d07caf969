// Hashes and random bytes, in hex.

/** Loaded at the first call: most commands need none of it. */
const crypto = () => process.getBuiltinModule('node:crypto')

/** SHA-256 of this text. */
export function sha256(text: string): string {
  return crypto().hash('sha256', text)
}

/** HMAC with SHA-256 (RFC 2104). */
export function hmacSha256(key: string, text: string): string {
  return crypto().createHmac('sha256', key).update(text).digest('hex')
}

/** As many random bytes as this, fit for keys. */
export function randomHex(bytes: number): string {
  return crypto().randomBytes(bytes).toString('hex')
}
