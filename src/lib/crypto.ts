// Hashes and random bytes.

/** Loaded at the first call: a start and most commands need none of it. */
const crypto = () => process.getBuiltinModule('node:crypto')

export function sha256(text: string): string {
  return crypto().hash('sha256', text)
}

/** RFC 2104. In hex digits. */
export function hmacSha256(key: string, text: string): string {
  return crypto().createHmac('sha256', key).update(text).digest('hex')
}

/** This number of random bytes, fit for keys, in hex digits. */
export function randomHex(bytes: number): string {
  return crypto().randomBytes(bytes).toString('hex')
}
