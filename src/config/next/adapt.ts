// The parts of a configuration that the former schema made, for rooms that take parts already.
import { Secret } from '../../lib/secret.ts'
import type { Config as FormerConfig } from '../config.ts'
import type { Value } from '../service.ts'
import type * as parts from './config.ts'

/** All parts but those that only a load knows. The template is the text of the former file. */
export function partsOf(config: FormerConfig): parts.Config {
  const { baseUrl, service, credentials, request, refresh, retry, endsAtMs, secretFiles, file } = config
  const further = credentials.further ?? {}
  const withSecrets = (values: Readonly<Record<string, Value>>): Record<string, parts.Value> =>
    Object.fromEntries(
      Object.entries(values).map(([name, value]) => [
        name,
        typeof value === 'object' ? further[value.secretAt]! : value,
      ]),
    )
  const cert = further['request.clientCertificate.certFile']
  const certificateKey = further['request.clientCertificate.key']
  const { assertion } = service
  const ofKey = further['service.assertion.key']
  const files = Object.values(secretFiles)
  return {
    service: {
      baseUrl,
      tokenUrl: service.tokenUrl,
      hostSetting: service.hostSetting,
      lifetime: service.lifetime,
      refusals: service.refusals,
      refusedBy: service.refusedBy,
      use: service.use,
    },
    pair: {
      apiKey: credentials.apiKey,
      apiSecret: credentials.apiSecret,
      clientCertificate: cert && certificateKey ? { cert: cert.reveal(), key: certificateKey } : null,
      send: service.send,
      names: service.names,
      parameters: withSecrets(service.parameters),
      headers: withSecrets(service.headers),
      token: service.token,
      assertion:
        assertion === null
          ? null
          : assertion.file === null
            ? {
                ...assertion,
                kind: 'signed',
                key: ofKey ?? new Secret(''),
                lifetimeMs: assertion.lifetime,
                as: assertion.as === 'grant' ? 'grant' : 'client',
              }
            : { kind: 'ready', file: assertion.file, as: assertion.as, type: assertion.type },
      ends: {
        credentialsMs: endsAtMs.pair,
        certificate:
          endsAtMs.certificate === null
            ? null
            : { fromMs: endsAtMs.certificateFrom ?? 0, endMs: endsAtMs.certificate },
      },
      files: files.length === 0 ? [file] : files,
    },
    request,
    policy: { ...refresh, ...retry },
    tokenFiles: config.tokenFiles.map((tokenFile) => ({
      ...tokenFile,
      template: tokenFile.template?.replaceAll('${accessToken}', '{token}') ?? null,
    })),
    ipc: config.ipc,
    http: config.http,
    alerts: config.alerts,
    log: {
      level: config.log.level as parts.LogConfig['level'],
      format: config.log.format,
    },
    share: config.share && { ...config.share, tls: config.share.tls },
    runtimeDirectory: config.runtimeDirectory,
    stateDirectory: config.stateDirectory,
    read: {
      file,
      files: [file, ...config.inputs],
      document: new Secret(''),
      systemdCredentials: config.systemdCredentials,
      needsRestart: [],
      warnings: config.warnings,
    },
  }
}
