// Certificates, their keys, and the TLS contexts that are made of them. All are PEM; a key may be a JWK.
import type { KeyObject } from 'node:crypto'
import type { SecureContext } from 'node:tls'
import { errorCode, withSystemFallback } from '../lib/error.ts'
import { isRecord, parseJson } from '../lib/input.ts'

/** Loaded at the first call: most commands need none of it. */
const crypto = () => process.getBuiltinModule('node:crypto')

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/** The private key in a text; else why there is none, as words after the name of its source. */
export function privateKeyOf(text: string): KeyObject | string {
  const jwk = text.trimStart().startsWith('{') ? parseJson(text) : undefined
  try {
    return crypto().createPrivateKey(isRecord(jwk) ? { key: jwk, format: 'jwk' } : text)
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    return /-----BEGIN ENCRYPTED|^Proc-Type: 4,ENCRYPTED/m.test(text)
      ? 'wants a passphrase, which the daemon does not have: write the key without one (openssl pkey -in KEY)'
      : 'holds no private key that can be read: write it in PEM ("-----BEGIN PRIVATE KEY-----") or as a JWK'
  }
}

/** Why a text holds no certificates that can be read, likewise. Other text around them is ignored. */
export function certificatesProblem(text: string): string | undefined {
  const found = text.match(CERTIFICATE) ?? []
  const parse = () => found.map((certificate) => new (crypto().X509Certificate)(certificate))
  if (withSystemFallback([], parse).length > 0) return undefined
  return 'holds no certificate that can be read: name a PEM file with "-----BEGIN CERTIFICATE-----" in it'
}

/** Why the first of these certificates cannot be presented with this key, likewise. */
export function pairProblem(certificates: string, key: string): string | undefined {
  if (!new (crypto().X509Certificate)(certificates).checkPrivateKey(privateKeyOf(key) as KeyObject))
    return 'is not the certificate of that key: name the two that were made together'
  // Else the first request would end the daemon: TLS takes fewer keys than can be read.
  const { createSecureContext: create } = process.getBuiltinModule('node:tls')
  return withSystemFallback(
    'and its key are nothing that TLS takes: name PEM, and RSA of 2048 bits or more',
    () => {
      create({ ca: [], cert: certificates, key })
      return undefined
    },
  )
}

/** Why the first of these certificates does not hold by our clock, likewise. It is presented nevertheless. */
export function datesProblem(certificates: string, nowMs: number): string | undefined {
  const { fromMs, endMs } = certificateLife(certificates)
  const day = (ms: number): string => new Date(ms).toISOString().slice(0, 10)
  if (fromMs > nowMs) return `is valid from ${day(fromMs)} on: wait, or set the clock of this host`
  return endMs < nowMs ? `ended on ${day(endMs)}: have it renewed, and name the new one` : undefined
}

/** From when until when the first of these certificates is valid, in ms since the epoch. */
export function certificateLife(certificates: string): { fromMs: number; endMs: number } {
  const { validFrom, validTo } = new (crypto().X509Certificate)(certificates)
  return { fromMs: Date.parse(validFrom), endMs: Date.parse(validTo) }
}

/**
 * The context of TLS connections, made once and not for each of them, because each takes memory. `ca`: further
 * authorities. `own`: the certificate that is presented. Throws if it does not belong to its key.
 */
export async function createSecureContext(
  { ca, isBuiltInTrusted = true }: { readonly ca: string | null; readonly isBuiltInTrusted?: boolean },
  own: { cert: string; key: string } | null = null,
): Promise<SecureContext> {
  const tls = await import('node:tls')
  const builtIn = isBuiltInTrusted ? tls.getCACertificates('default') : []
  const trusted = ca === null && isBuiltInTrusted ? {} : { ca: [...builtIn, ...(ca === null ? [] : [ca])] }
  return tls.createSecureContext({ ...trusted, ...own })
}
