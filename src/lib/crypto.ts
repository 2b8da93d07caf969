// Hashes, random bytes, certificates, and TLS contexts.
import type { SecureContext } from 'node:tls'
import { withSystemFallback } from './error.ts'

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

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/** Reports whether the text has certificates in PEM, all of which can be read. Other text is ignored. */
export function holdsCertificates(pem: string): boolean {
  const found = pem.match(CERTIFICATE) ?? []
  const { X509Certificate } = crypto()
  return withSystemFallback(
    false,
    () => found.map((certificate) => new X509Certificate(certificate)).length > 0,
  )
}

/** Reports whether this private key, protected by no passphrase, is that of the first of these certificates. */
export function isKeyOf(key: string, certificates: string): boolean {
  const { createPrivateKey, X509Certificate } = crypto()
  return withSystemFallback(false, () =>
    new X509Certificate(certificates).checkPrivateKey(createPrivateKey(key)),
  )
}

/**
 * The context of TLS connections: to be made once and not for each of them, because each context takes memory. Trusts the
 * authorities that Node knows (and NODE_EXTRA_CA_CERTS), and those of `ca` beside them. Presents the certificate `cert`, if it is
 * given with its key. All are PEM. Throws if certificate and key do not belong together.
 */
export async function createSecureContext(
  ca: string | null,
  own: { cert: string; key: string } | null = null,
): Promise<SecureContext> {
  const tls = await import('node:tls')
  const trusted = ca === null ? {} : { ca: [...tls.getCACertificates('default'), ca] }
  return tls.createSecureContext({ ...trusted, ...own })
}
