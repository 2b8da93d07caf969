// Resolves all by which the service knows the account: key, secret, those of `service`, client certificate.
import type { KeyObject } from 'node:crypto'
import { certificateEndMs } from '../lib/certificates.ts'
import type { Credentials } from '../lib/credentials.ts'
import { Secret } from '../lib/secret.ts'
import type { Inputs } from './inputs.ts'
import { keyPath } from './issues.ts'
import type { Settings } from './schema.ts'
import { hasNames, headerValueProblem } from './service.ts'

export async function resolveCredentials(
  { credentials, service, request }: Pick<Settings, 'credentials' | 'service' | 'request'>,
  inputs: Inputs,
) {
  const apiKey = await inputs.secret('credentials.apiKey', credentials.apiKey)
  const apiSecret = await inputs.secret('credentials.apiSecret', credentials.apiSecret)
  const further: Record<string, Secret> = {}
  const add = (at: string, secret: Secret | null): void => {
    if (secret !== null) further[at] = secret
  }
  for (const group of ['parameters', 'headers'] as const)
    for (const [name, value] of Object.entries(service[group])) {
      if (typeof value !== 'object') continue
      const at = keyPath(['service', group, name])
      add(at, await inputs.secret(at, value))
      if (group === 'headers') checkHeader(at, further[at])
    }
  if (service.send === 'assertion' && service.assertion !== null) {
    const { key, algorithm } = service.assertion
    const at = 'service.assertion.key'
    add(at, await inputs.privateKey(at, key, (found) => algorithmProblem(found, algorithm)))
  }
  if (request.clientCertificate !== null) {
    const { certFile, key } = request.clientCertificate
    const own = await inputs.certificateWithKey([CERTIFICATE, certFile], [CERTIFICATE_KEY, key])
    add(CERTIFICATE, own && new Secret(own.cert))
    add(CERTIFICATE_KEY, own && own.key)
  }
  checkSent()

  function checkHeader(at: string, secret: Secret | null | undefined): void {
    const problem = secret && headerValueProblem(secret.reveal())
    if (problem) inputs.fault(at, problem)
  }

  /** Key and secret are there if they are sent, and fit for headers. */
  function checkSent(): void {
    const { send, names } = service
    const isSent = send !== 'assertion' && names.apiSecret !== null
    if (credentials.apiSecret === null && isSent)
      inputs.fault(
        'credentials.apiSecret',
        hasNames(service)
          ? 'is null, and the service is sent a secret: give it, or set service.names.apiSecret to null, too'
          : `is null, and "send": "${send}" sends a secret: ` +
              'give it, or send the key alone, by another service.send',
      )
    if (send !== 'headers') return
    if (names.apiKey !== null) checkHeader('credentials.apiKey', apiKey)
    if (names.apiSecret !== null) checkHeader('credentials.apiSecret', apiSecret)
  }

  const secrets = new Set(['credentials.apiKey', 'credentials.apiSecret', ...Object.keys(further)])
  return {
    credentials: { apiKey, apiSecret, further } as Credentials,
    /** Files that they come from, absolute, by key path. */
    secretFiles: Object.fromEntries(Object.entries(inputs.files).filter(([at]) => secrets.has(at))),
    /** When they end, in ms since the epoch; null: not known. */
    endsAtMs: {
      pair: credentials.expiresAt,
      certificate: CERTIFICATE in further ? certificateEndMs(further[CERTIFICATE].reveal()) : null,
    },
  }
}

const CERTIFICATE = 'request.clientCertificate.certFile'
const CERTIFICATE_KEY = 'request.clientCertificate.key'

/** The least length of an RSA key, in bits (RFC 7518, section 3.3). */
const MIN_RSA_BITS = 2048

function algorithmProblem(
  { asymmetricKeyType: type, asymmetricKeyDetails: details }: KeyObject,
  algorithm: 'RS256' | 'PS256' | 'ES256' | 'EdDSA',
): string | undefined {
  const fits = {
    RS256: type === 'rsa',
    PS256: type === 'rsa' || type === 'rsa-pss',
    ES256: type === 'ec' && details?.namedCurve === 'prime256v1',
    EdDSA: type === 'ed25519',
  }
  if (!fits[algorithm])
    return (
      `holds a key of the type ${type}, which is not for ${algorithm}: ` +
      'name another key, or set service.assertion.algorithm'
    )
  if ((details?.modulusLength ?? MIN_RSA_BITS) < MIN_RSA_BITS)
    return `holds an RSA key of less than ${MIN_RSA_BITS} bits, which is too weak to sign: make another`
  return undefined
}
