// Signs the assertion by which the service knows the account (RFC 7523).
import { randomUUID, type KeyObject } from 'node:crypto'
import { SignJWT } from 'jose'
import type { ServiceConfig } from '../config/config.ts'
import { privateKeyOf } from '../config/certificates.ts'
import type { Credentials } from '../config/credentials.ts'

/** A JWT that is valid from now on. `wallMs`: the service's clock as far as it is known, else ours. */
export async function signedAssertion(
  { assertion, tokenUrl }: Pick<ServiceConfig, 'assertion' | 'tokenUrl'>,
  credentials: Credentials,
  wallMs: number,
): Promise<string> {
  const { algorithm, keyId, audience, lifetime, claims, header } = assertion!
  const issuer = credentials.apiKey!.reveal()
  const iat = Math.floor(wallMs / 1_000)
  const standard = { iss: issuer, sub: issuer, aud: audience ?? tokenUrl, jti: randomUUID() }
  const key = privateKeyOf(credentials.further!['service.assertion.key']!.reveal()) as KeyObject
  const exp = iat + Math.ceil(lifetime / 1_000)
  return new SignJWT(withoutNull({ ...standard, iat, exp, ...claims }))
    .setProtectedHeader({
      ...withoutNull({ typ: 'JWT', ...header }),
      alg: algorithm,
      ...(keyId !== null && { kid: keyId }),
    })
    .sign(key)
}

/** Null leaves one out: some services refuse claims that they do not know. */
function withoutNull(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null))
}
