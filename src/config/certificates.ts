// Certificates, their keys, and the TLS contexts that are made of them.
import type { KeyObject } from 'node:crypto'
import type { SecureContext } from 'node:tls'
import { errorCode, withSystemFallback } from '../lib/error.ts'
import { isRecord, parseJson } from '../lib/input.ts'

/** Loaded at the first call: most commands need none of it. */
const crypto = () => process.getBuiltinModule('node:crypto')

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/** Reports whether the text has certificates in PEM, all of which can be read. Other text is ignored. */
function holdsCertificates(pem: string): boolean {
  const found = pem.match(CERTIFICATE) ?? []
  const { X509Certificate } = crypto()
  return withSystemFallback(
    false,
    () => found.map((certificate) => new X509Certificate(certificate)).length > 0,
  )
}

/**
 * The private key in a text (PEM, JWK); else why there is none, as words after the name of its source. `file`:
 * its name in commands, quoted for a shell.
 */
export function privateKeyOf(text: string, file = 'KEY'): KeyObject | string {
  const { createPrivateKey } = crypto()
  const jwk = text.trimStart().startsWith('{') ? parseJson(text) : undefined
  try {
    return createPrivateKey(isRecord(jwk) ? { key: jwk, format: 'jwk' } : text)
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    if (/-----BEGIN ENCRYPTED|^Proc-Type: 4,ENCRYPTED/m.test(text))
      return (
        'wants a passphrase, which nobody could type when the daemon starts: ' +
        `write the key without one (openssl pkey -in ${file} -out key.pem)`
      )
    return (
      otherKeyFormat(text, file) ??
      'holds no private key that can be read: name one in PEM ("-----BEGIN PRIVATE KEY-----")'
    )
  }
}

/** The forms in which keys are handed out and that are not read here, with the command that rewrites each. */
function otherKeyFormat(text: string, file: string): string | undefined {
  const json = parseJson(text)
  if (isRecord(json) && Array.isArray(json['keys']))
    return `is a set of keys (JWK set): write the private one alone (jq '.keys[0]' ${file} >key.jwk)`
  if (isRecord(json) && typeof json['private_key'] === 'string')
    return (
      'is a JSON key as Google hands it out: write the key in it alone ' +
      `(jq -r .private_key ${file} >key.pem), and name its client_email as credentials.apiKey`
    )
  if (PKCS12.test(text))
    return (
      'is a PKCS #12 bundle (.pfx, .p12): write its key alone ' +
      `(openssl pkcs12 -in ${file} -nodes -nocerts -out key.pem)`
    )
  return DER.test(text)
    ? `is binary (DER): write it as PEM (openssl pkey -inform DER -in ${file} -out key.pem)`
    : undefined
}

/** DER, read as UTF-8: a sequence of 128 bytes or more, or a short one that begins with the version of a key. */
const DER = /^0(?:\ufffd|.\u0002\u0001[\u0000\u0001])/s
/** Likewise, one that begins with the version of PKCS #12. */
const PKCS12 = /^0\ufffd.{0,2}\u0002\u0001\u0003/s

/** Why a text holds no certificate that can be read, likewise. */
export function certificatesProblem(text: string, file = 'CERTIFICATE'): string | undefined {
  if (holdsCertificates(text)) return undefined
  if (PKCS12.test(text))
    return (
      'is a PKCS #12 bundle (.pfx, .p12): write its certificates alone ' +
      `(openssl pkcs12 -in ${file} -nokeys -out certificate.pem)`
    )
  if (DER.test(text))
    return `is binary (DER): write it as PEM (openssl x509 -inform DER -in ${file} -out certificate.pem)`
  return 'holds no certificate that can be read: name a PEM file with "-----BEGIN CERTIFICATE-----" in it'
}

/** Why the first of these certificates (PEM) cannot be presented, as words after the name of its file. */
export function certificateProblem(certificates: string, keyText: string): string | undefined {
  const key = privateKeyOf(keyText) as KeyObject
  if (!new (crypto().X509Certificate)(certificates).checkPrivateKey(key))
    return 'is not the certificate of that key: name the two that were made together'
  try {
    // Else the first request would end the daemon: TLS takes fewer keys than can be read.
    process.getBuiltinModule('node:tls').createSecureContext({ ca: [], cert: certificates, key: keyText })
    return undefined
  } catch (error) {
    const code = errorCode(error)
    if (code === undefined) throw error
    const remedy = 'name a key in PEM, not a JWK, and RSA of 2048 bits or more'
    return `and its key are nothing that TLS takes (${code}): ${remedy}`
  }
}

/**
 * Why the first of these certificates (PEM) does not hold at this time by our clock, likewise. It is presented
 * nevertheless: the clock may be wrong, and a kept token needs no certificate.
 */
export function certificateDatesProblem(certificates: string, nowMs: number): string | undefined {
  const { validFrom, validTo } = new (crypto().X509Certificate)(certificates)
  const day = (text: string): string => new Date(text).toISOString().slice(0, 10)
  if (Date.parse(validFrom) > nowMs)
    return `is valid from ${day(validFrom)} on: wait, name another, or set the clock of this host`
  if (Date.parse(validTo) < nowMs) return `ended on ${day(validTo)}: have it renewed, and name the new one`
  return undefined
}

/** From when until when the first of these certificates (PEM) is valid, in ms since the epoch. */
export function certificateLife(certificates: string): { fromMs: number; endMs: number } {
  const { validFrom, validTo } = new (crypto().X509Certificate)(certificates)
  return { fromMs: Date.parse(validFrom), endMs: Date.parse(validTo) }
}

interface Trust {
  /** Further authorities, PEM. */
  readonly ca: string | null
  /** Trusts those that Node knows, and NODE_EXTRA_CA_CERTS, beside them. */
  readonly isBuiltInTrusted?: boolean
}

/**
 * The context of TLS connections: to be made once and not for each of them, because each context takes
 * memory. Presents the certificate `cert`, if it is given with its key. All are PEM. Throws if certificate
 * and key do not belong together.
 */
export async function createSecureContext(
  { ca, isBuiltInTrusted = true }: Trust,
  own: { cert: string; key: string } | null = null,
): Promise<SecureContext> {
  const tls = await import('node:tls')
  const builtIn = isBuiltInTrusted ? tls.getCACertificates('default') : []
  const trusted = ca === null && isBuiltInTrusted ? {} : { ca: [...builtIn, ...(ca === null ? [] : [ca])] }
  return tls.createSecureContext({ ...trusted, ...own })
}
