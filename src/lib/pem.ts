// The certificates of a PEM text.
import { X509Certificate } from 'node:crypto'
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
