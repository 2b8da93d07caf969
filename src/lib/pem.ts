// The certificates and keys of PEM texts.
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { errorCode } from './error.ts'

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/** Each with its frame; none where the text has none, or has one that cannot be read. Text between them is ignored. */
export function certificatesIn(pem: string): string[] {
  const found = pem.match(CERTIFICATE) ?? []
  try {
    return found.filter((certificate) => new X509Certificate(certificate).raw.length > 0)
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    return []
  }
}

/** Reports whether this private key, protected by no passphrase, is that of the first of these certificates. */
export function isKeyOf(key: string, certificates: string): boolean {
  try {
    return new X509Certificate(certificates).checkPrivateKey(createPrivateKey(key))
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    return false
  }
}
