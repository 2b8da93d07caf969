// Resolves all by which the service knows the account: key, secret, those of `service`, client certificate.
import type { KeyObject } from 'node:crypto'
import { certificateLife } from './certificates.ts'
import type { Credentials } from './credentials.ts'
import { Secret } from '../lib/secret.ts'
import type { Inputs } from './inputs.ts'
import { keyPath } from './issues.ts'
import type { Settings } from './schema.ts'
import { hasNames, headerValueProblem } from './service.ts'

export async function resolveCredentials(
  settings: Pick<Settings, 'credentials' | 'service' | 'request'>,
  inputs: Inputs,
) {
  const { credentials, service, request } = settings
  const apiKey = await inputs.secret('credentials.apiKey', credentials.apiKey)
  const apiSecret = await inputs.secret('credentials.apiSecret', credentials.apiSecret)
  const further: Record<string, Secret> = {
    ...(await secretValues('parameters', service, inputs)),
    ...(await secretValues('headers', service, inputs)),
    ...(await assertionKey(service, inputs)),
    ...(await certificateSecrets(request, inputs)),
  }
  checkSent(settings, { apiKey, apiSecret }, inputs)
  const secrets = new Set(['credentials.apiKey', 'credentials.apiSecret', ...Object.keys(further)])
  const life = CERTIFICATE in further ? certificateLife(further[CERTIFICATE].reveal()) : null
  return {
    credentials: { apiKey, apiSecret, further } as Credentials,
    /** Files that they come from, absolute, by key path. */
    secretFiles: Object.fromEntries(Object.entries(inputs.files).filter(([at]) => secrets.has(at))),
    /** When they end, in ms since the epoch; null: not known. */
    endsAtMs: {
      pair: credentials.expiresAt,
      certificate: life?.endMs ?? null,
      /** When the life of the certificate began. */
      certificateFrom: life?.fromMs ?? null,
    },
  }
}

type Secrets = Readonly<Record<string, Secret>>

/** The secret sources among the further fields or headers, by key path. */
async function secretValues(
  group: 'parameters' | 'headers',
  service: Settings['service'],
  inputs: Inputs,
): Promise<Secrets> {
  const secrets: Record<string, Secret> = {}
  for (const [name, value] of Object.entries(service[group])) {
    if (typeof value !== 'object') continue
    const at = keyPath(['service', group, name])
    const secret = await inputs.secret(at, value)
    if (secret === null) continue
    secrets[at] = secret
    if (group === 'headers') checkHeader(at, secret, inputs)
  }
  return secrets
}

async function assertionKey({ send, assertion }: Settings['service'], inputs: Inputs): Promise<Secrets> {
  if (send !== 'assertion' || !assertion?.key) return {}
  const at = 'service.assertion.key'
  const problemOf = (key: KeyObject) => algorithmProblem(key, assertion.algorithm)
  const key = await inputs.privateKey(at, assertion.key, problemOf)
  return key === null ? {} : { [at]: key }
}

const CERTIFICATE = 'request.clientCertificate.certFile'
const CERTIFICATE_KEY = 'request.clientCertificate.key'

async function certificateSecrets(
  { clientCertificate }: Settings['request'],
  inputs: Inputs,
): Promise<Secrets> {
  if (clientCertificate === null) return {}
  const { certFile, key } = clientCertificate
  const pair = await inputs.certificateWithKey([CERTIFICATE, certFile], [CERTIFICATE_KEY, key])
  return pair === null ? {} : { [CERTIFICATE]: new Secret(pair.cert), [CERTIFICATE_KEY]: pair.key }
}

/** Key and secret are there if they are sent, and fit for headers. */
function checkSent(
  { credentials, service }: Pick<Settings, 'credentials' | 'service'>,
  { apiKey, apiSecret }: { apiKey: Secret | null; apiSecret: Secret | null },
  inputs: Inputs,
): void {
  const { send, names, assertion } = service
  const isReadyMade = send === 'assertion' && (assertion?.file ?? null) !== null
  if (credentials.apiKey === null && !isReadyMade)
    inputs.fault(
      'credentials.apiKey',
      'is null, which only a ready-made assertion allows: give it, or set service.assertion.file',
    )
  if (credentials.apiSecret !== null && isReadyMade)
    inputs.fault(
      'credentials.apiSecret',
      'is of no use beside service.assertion.file, by which the account is known: set it to null',
    )
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
  if (names.apiKey !== null) checkHeader('credentials.apiKey', apiKey, inputs)
  if (names.apiSecret !== null) checkHeader('credentials.apiSecret', apiSecret, inputs)
}

function checkHeader(at: string, secret: Secret | null, { fault }: Inputs): void {
  const problem = secret === null ? undefined : headerValueProblem(secret.reveal())
  if (problem !== undefined) fault(at, problem)
}

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
