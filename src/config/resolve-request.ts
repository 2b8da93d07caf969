// The settings of the request to the service, and the certificates that are trusted.
import { certificatesIn } from '../lib/pem.ts'
import type { Config } from './config.ts'
import { readInput, type InputContext } from './inputs.ts'
import type { ValidPart } from './validate.ts'

export function resolveRequest(input: ValidPart['request'], context: InputContext): Config['request'] {
  const { timeout, connectTimeout, caFile } = input
  return {
    timeoutMs: timeout,
    connectTimeoutMs: Math.min(connectTimeout, timeout),
    ca: readCertificates(caFile, { at: 'request.caFile', context }),
  }
}

/** The PEM text; null where no file is named or it has no certificate, and then the diagnostics have the reason. */
export function readCertificates(
  path: string | null,
  { at, context }: { at: string; context: InputContext },
): string | null {
  if (path === null) return null
  const remedy = 'name a PEM file of certificates, or null'
  const pem = readInput(path, { at, holdsSecret: false, remedy, context })?.toString('utf8')
  if (pem === undefined || certificatesIn(pem).length > 0) return pem ?? null
  context.diagnostics.fault(
    at,
    `the file ${path} holds no certificate that can be read: name a PEM file with "-----BEGIN CERTIFICATE-----" in it`,
  )
  return null
}
