// Signs the assertion by which the service knows the account (RFC 7523).
import { randomUUID, type KeyObject } from 'node:crypto'
import { SignJWT } from 'jose'
import type { ServiceConfig } from '../config/config.ts'
import { privateKeyOf } from '../lib/certificates.ts'
import type { Credentials } from '../config/credentials.ts'

/** A JWT that is valid from now on. `wallMs`: the service's clock as far as it is known, else ours. */
export async function signedAssertion(
  { assertion, tokenUrl }: Pick<ServiceConfig, 'assertion' | 'tokenUrl'>,
  credentials: Credentials,
  wallMs: number,
): Promise<string> {
  const { algorithm, keyId, audience, lifetime, claims } = assertion!
  const issuer = credentials.apiKey.reveal()
  const iat = Math.floor(wallMs / 1_000)
  const own = { iss: issuer, sub: issuer, aud: audience ?? tokenUrl, jti: randomUUID() }
  const key = privateKeyOf(credentials.further!['service.assertion.key']!.reveal()) as KeyObject
  return new SignJWT({ ...own, iat, exp: iat + Math.ceil(lifetime / 1_000), ...claims })
    .setProtectedHeader({ alg: algorithm, typ: 'JWT', ...(keyId !== null && { kid: keyId }) })
    .sign(key)
}
