// The settings of the request to the service, and the certificates that are trusted.
import { certificatesIn } from '../lib/pem.ts'
import { parseDuration } from '../lib/duration.ts'
import type { Config } from './config.ts'
import { defaults } from './defaults.ts'
import { readInput, type InputContext } from './inputs.ts'
import type { ValidPart } from './valid-part.ts'

export function resolveRequest(input: ValidPart['request'], context: InputContext): Config['request'] {
  const timeoutMs = parseDuration(input?.timeout ?? defaults.request.timeout)!
  const connectTimeoutMs = parseDuration(input?.connectTimeout ?? defaults.request.connectTimeout)!
  const caFile = input?.caFile ?? null
  const ca = caFile === null ? null : readCertificates(caFile, { at: 'request.caFile', context })
  return { timeoutMs, connectTimeoutMs: Math.min(connectTimeoutMs, timeoutMs), ca }
}

/** The PEM text; null where it has no certificate, and then the diagnostics have the reason. */
export function readCertificates(
  path: string,
  { at, context }: { at: string; context: InputContext },
): string | null {
  const remedy = 'name a PEM file of certificates, or null'
  const pem = readInput(path, { at, holdsSecret: false, remedy, context })?.toString('utf8')
  if (pem === undefined || certificatesIn(pem).length > 0) return pem ?? null
  context.diagnostics.fault(
    at,
    `the file ${path} holds no certificate that can be read: name a PEM file with "-----BEGIN CERTIFICATE-----" in it`,
  )
  return null
}
