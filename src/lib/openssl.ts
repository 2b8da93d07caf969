// Functions of OpenSSL that each start needs, from the copy inside Node. `node:crypto` gives the same, but loads twenty modules
// for it: a tenth of the time until the first answer, a seventh without JIT. All else of it is needed only when the service or
// the store is asked.
import { loadKoffi } from './koffi.ts'

interface OpenSsl {
  sha256(text: Buffer): Buffer
  hmacSha256(key: Buffer, text: Buffer): Buffer
  random(bytes: number): Buffer
}

/** SHA-256 of this text, in hex. */
export function sha256(text: string): string {
  return openSsl().sha256(Buffer.from(text)).toString('hex')
}

/** HMAC with SHA-256 (RFC 2104), in hex. The key has at least one character. */
export function hmacSha256(key: string, text: string): string {
  return openSsl().hmacSha256(Buffer.from(key), Buffer.from(text)).toString('hex')
}

/** So many random bytes, in hex: fit for keys. */
export function randomHex(bytes: number): string {
  return openSsl().random(bytes).toString('hex')
}

let loaded: OpenSsl | undefined

function openSsl(): OpenSsl {
  loaded ??= throughKoffi() ?? throughNode()
  return loaded
}

const SHA256_BYTES = 32

/** undefined without koffi, and where Node shows no functions of OpenSSL. */
function throughKoffi(): OpenSsl | undefined {
  const koffi = loadKoffi()
  if ('error' in koffi) return undefined
  try {
    const openssl = koffi.load(null)
    const sha256Of = openssl.func('void *SHA256(const void *, size_t, void *)')
    const algorithm = openssl.func('void *EVP_sha256()')
    const hmacOf = openssl.func('void *HMAC(void *, const void *, int, const void *, size_t, void *, void *)')
    const randomOf = openssl.func('int RAND_bytes(void *, int)')
    return {
      sha256(text) {
        const digest = Buffer.alloc(SHA256_BYTES)
        succeeded('SHA256', sha256Of(text, text.length, digest))
        return digest
      },
      hmacSha256(key, text) {
        const digest = Buffer.alloc(SHA256_BYTES)
        succeeded('HMAC', hmacOf(algorithm(), key, key.length, text, text.length, digest, null))
        return digest
      },
      random(bytes) {
        const random = Buffer.alloc(bytes)
        succeeded('RAND_bytes', randomOf(random, bytes) === 1)
        return random
      },
    }
  } catch {
    return undefined
  }
}

function succeeded(name: string, result: unknown): void {
  if (!result) throw new Error(`${name} of OpenSSL failed`)
}

function throughNode(): OpenSsl {
  const { createHash, createHmac, randomBytes } = process.getBuiltinModule('node:crypto')
  return {
    sha256: (text) => createHash('sha256').update(text).digest(),
    hmacSha256: (key, text) => createHmac('sha256', key).update(text).digest(),
    random: randomBytes,
  }
}
