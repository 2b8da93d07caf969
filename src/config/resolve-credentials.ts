// Resolves everything by which the service knows the account: key, secret, those of `service`, and the client certificate.
import type { KeyObject } from 'node:crypto'
import { resolve } from 'node:path'
import { certificateEndMs, certificateProblem } from '../lib/crypto.ts'
import { Secret, type Credentials } from '../lib/secret.ts'
import type { Inputs } from './inputs.ts'
import { keyPath, type Diagnostics } from './issues.ts'
import type { SecretSource, Settings } from './schema.ts'
import { hasNames, headerValueProblem } from './service.ts'

type Input = Pick<Settings, 'credentials' | 'service' | 'request'>
interface Context {
  /** The directory of the configuration file, to which inputs are relative. */
  readonly directory: string
  readonly inputs: Inputs
  readonly diagnostics: Diagnostics
}

export async function resolveCredentials({ credentials, service, request }: Input, context: Context) {
  const { directory, inputs, diagnostics } = context
  const { fault } = diagnostics
  const secretFiles: Record<string, string> = {}
  const further: Record<string, Secret> = {}

  /** Notes the file of a source, which is watched. */
  function watched<T extends SecretSource | null>(at: string, source: T): T {
    if (source !== null && typeof source === 'object' && 'file' in source)
      secretFiles[at] = resolve(directory, source.file)
    return source
  }
  function add(at: string, secret: Secret | undefined): void {
    if (secret !== undefined) further[at] = secret
  }

  const apiKey = await inputs.secret('credentials.apiKey', watched('credentials.apiKey', credentials.apiKey))
  const apiSecret =
    (await inputs.secret('credentials.apiSecret', watched('credentials.apiSecret', credentials.apiSecret))) ??
    null
  for (const group of ['parameters', 'headers'] as const)
    for (const [name, value] of Object.entries(service[group])) {
      if (typeof value !== 'object') continue
      const at = keyPath(['service', group, name])
      const secret = await inputs.secret(at, watched(at, value))
      const problem = group === 'headers' && secret !== undefined && headerValueProblem(secret.reveal())
      if (problem) fault(at, problem)
      add(at, secret)
    }
  if (service.send === 'assertion' && service.assertion) {
    const { key, algorithm } = service.assertion
    const at = 'service.assertion.key'
    add(at, await inputs.privateKey(at, watched(at, key), (found) => algorithmProblem(found, algorithm)))
  }
  if (request.clientCertificate !== null) await addCertificate(request.clientCertificate)
  checkSent()

  async function addCertificate({
    certFile,
    key,
  }: NonNullable<Settings['request']['clientCertificate']>): Promise<void> {
    const [certAt, keyAt] = ['request.clientCertificate.certFile', 'request.clientCertificate.key'] as const
    secretFiles[certAt] = resolve(directory, certFile)
    const cert = await inputs.certificates(certAt, certFile, 'name the PEM file of the client certificate')
    const secret = await inputs.privateKey(keyAt, watched(keyAt, key), () => undefined)
    if (cert === null || secret === undefined) return
    const problem = certificateProblem(cert, secret.reveal(), Date.now())
    if (problem !== undefined) fault(certAt, `the file ${secretFiles[certAt]} ${problem}`)
    add(certAt, new Secret(cert))
    add(keyAt, secret)
  }

  /** Key and secret are there if they are sent, and fit for headers. */
  function checkSent(): void {
    const { send, names } = service
    const isSent = send !== 'assertion' && names.apiSecret !== null
    if (credentials.apiSecret === null && isSent)
      fault(
        'credentials.apiSecret',
        hasNames(service)
          ? 'is null, and the service is sent a secret: give it, or set service.names.apiSecret to null, too'
          : `is null, and "send": "${send}" sends a secret: give it, or send the key alone, by another service.send`,
      )
    if (send !== 'headers') return
    for (const [name, secret] of Object.entries({ apiKey, apiSecret })) {
      const problem = secret && names[name as 'apiKey'] !== null && headerValueProblem(secret.reveal())
      if (problem) fault(`credentials.${name}`, problem)
    }
  }

  const cert = further['request.clientCertificate.certFile']
  return {
    credentials: { apiKey, apiSecret, further } as Credentials,
    /** Files that they come from, absolute, by key path. */
    secretFiles: secretFiles as Readonly<Record<string, string>>,
    /** When they end, in ms since the epoch; null: not known. */
    endsAtMs: {
      pair: credentials.expiresAt,
      certificate: cert === undefined ? null : certificateEndMs(cert.reveal()),
    },
  }
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
    return `holds a key of the type ${type}, which is not for ${algorithm}: name another key, or set service.assertion.algorithm`
  if ((details?.modulusLength ?? MIN_RSA_BITS) < MIN_RSA_BITS)
    return `holds an RSA key of less than ${MIN_RSA_BITS} bits, which is too weak to sign: make another`
  return undefined
}
