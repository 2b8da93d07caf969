// The certificates and keys of PEM texts.
import { errorCode } from './error.ts'

/** Loaded with the first text: a start needs none of it. */
const crypto = () => process.getBuiltinModule('node:crypto')

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/** Each with its frame; none where the text has none, or has one that cannot be read. Text between them is ignored. */
export function certificatesIn(pem: string): string[] {
  const found = pem.match(CERTIFICATE) ?? []
  if (found.length === 0) return found
  const { X509Certificate } = crypto()
  try {
    return found.filter((certificate) => new X509Certificate(certificate).raw.length > 0)
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    return []
  }
}

/** Reports whether this private key, protected by no passphrase, is that of the first of these certificates. */
export function isKeyOf(key: string, certificates: string): boolean {
  const { createPrivateKey, X509Certificate } = crypto()
  try {
    return new X509Certificate(certificates).checkPrivateKey(createPrivateKey(key))
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    return false
  }
}
