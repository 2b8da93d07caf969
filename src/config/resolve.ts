// Makes the configuration of a valid document: defaults, durations, paths, ids, secrets, and the rules across settings.
import type { Stats } from 'node:fs'
import { dirname, resolve } from 'node:path'

import { connectionMemoryProblem } from '../lib/connection-memory.ts'
import { parseDuration } from '../lib/duration.ts'
import { runtimeDirectoryOf, stateDirectoryOf } from '../lib/paths.ts'
import type { Secret } from '../lib/secret.ts'
import { baseUrlWarning } from './base-url.ts'
import type { Config } from './config.ts'
import type { Diagnostics } from './issues.ts'
import { permissionFaults, readCertificates, type InputContext } from './read-file.ts'
import { checkPaths, resolveSocket, resolveTokenFiles } from './resolve-outputs.ts'
import { resolveShare } from './resolve-share.ts'
import { STANDARD_INITIAL_DELAY } from './schema.ts'
import { readSecret } from './secrets.ts'
import { resolveService } from './service.ts'
import type { SecretSource, ValidPart } from './validate.ts'

interface ResolveContext extends Omit<InputContext, 'directory' | 'reads'> {
  /** The configuration file, absolute, and the owner and mode of its descriptor. */
  readonly file: string
  readonly stats: Stats
  /** Instead of the configured one. */
  readonly runtimeDirectory?: string | undefined
}

/**
 * The configuration, its `warnings` still empty. Faults go to `diagnostics`; where there are any, here or before, the
 * result is not to be used.
 */
export async function resolveConfig(input: ValidPart, options: ResolveContext): Promise<Config> {
  const { file, diagnostics } = options
  const context: InputContext = { ...options, directory: dirname(file), reads: [] }
  const { directory } = context
  const wantedRuntimeDirectory = resolve(directory, input.runtimeDirectory ?? runtimeDirectoryOf(options))
  const runtimeDirectory = options.runtimeDirectory ?? wantedRuntimeDirectory
  const stateDirectory = resolve(directory, input.stateDirectory ?? stateDirectoryOf(options))
  checkConfigFile(input, options)
  const { alerts } = input
  const { timeout, connectTimeout, caFile } = input.request
  const plan = resolvePlan(input, diagnostics)
  const { baseUrl } = plan
  const credentials = resolveCredentials(input, context)
  const outputs = { runtimeDirectory, context, baseUrl, claims: [] }
  const config: Config = {
    file,
    ...plan,
    credentials: credentials as { apiKey: Secret; apiSecret: Secret },
    secretFiles: {
      apiKey: fileOf(input.credentials?.apiKey, directory),
      apiSecret: fileOf(input.credentials?.apiSecret, directory),
    },
    inputs: context.reads,
    systemdCredentials: sourcesOf(input).flatMap((source) =>
      typeof source === 'object' && 'credential' in source ? [source.credential] : [],
    ),
    request: {
      timeoutMs: timeout,
      connectTimeoutMs: Math.min(connectTimeout, timeout),
      ca: readCertificates(caFile, { at: 'request.caFile', context }),
    },
    tokenFiles: await resolveTokenFiles(input.tokenFiles, outputs),
    ipc: await resolveSocket('ipc', input.ipc, outputs),
    http: input.http === false ? null : await resolveSocket('http', input.http, outputs),
    alerts: {
      remindAfterMs: [...new Set(alerts.remindAfter)]
        .filter((ms) => ms !== undefined)
        .toSorted((a, b) => a - b),
      noTokenAfterMs: alerts.noTokenAfter,
      contact: alerts.contact,
    },
    share: resolveShare(input.share, { apiSecret: credentials.apiSecret, context }),
    log: input.log,
    runtimeDirectory,
    wantedRuntimeDirectory,
    stateDirectory,
    warnings: [],
  }
  checkPaths(config, outputs)
  const memoryProblem = connectionMemoryProblem([config.ipc, config.http])
  if (memoryProblem !== null) diagnostics.warn('', memoryProblem)
  return config
}

export type Plan = Pick<Config, 'baseUrl' | 'service' | 'refresh' | 'retry'>

/** The service and when it is asked: the part that needs no secret and no other file. */
export function resolvePlan(
  { baseUrl = '', service, refresh, retry }: ValidPart,
  diagnostics: Diagnostics,
): Plan {
  const { maxDelay, initialDelay = Math.min(parseDuration(STANDARD_INITIAL_DELAY)!, maxDelay) } = retry
  const warning = baseUrl === '' ? undefined : baseUrlWarning(baseUrl)
  if (warning !== undefined) diagnostics.warn('baseUrl', warning)
  if (initialDelay > maxDelay)
    diagnostics.fault('retry.initialDelay', 'must not be longer than retry.maxDelay: lower it or raise that')
  return {
    baseUrl,
    service: resolveService(service, { baseUrl, diagnostics }),
    refresh: { maxAgeMs: refresh.maxAge },
    retry: { initialDelayMs: Math.min(initialDelay, maxDelay), maxDelayMs: maxDelay },
  }
}

function resolveCredentials(
  { credentials }: ValidPart,
  context: InputContext,
): { apiKey: Secret | undefined; apiSecret: Secret | undefined } {
  const read = (name: 'apiKey' | 'apiSecret'): Secret | undefined => {
    const source = credentials?.[name]
    return source === undefined ? undefined : readSecret(source, { at: `credentials.${name}`, context })
  }
  return { apiKey: read('apiKey'), apiSecret: read('apiSecret') }
}

function sourcesOf({ credentials }: ValidPart): SecretSource[] {
  return [credentials?.apiKey, credentials?.apiSecret].filter((source) => source !== undefined)
}

function fileOf(source: SecretSource | undefined, directory: string): string | null {
  return typeof source === 'object' && 'file' in source ? resolve(directory, source.file) : null
}

function checkConfigFile(input: ValidPart, { file, stats, uid, diagnostics }: ResolveContext): void {
  const { share } = input
  const secrets = [...sourcesOf(input), share?.password, share?.key, share?.sentinel?.password]
  const holdsSecret = secrets.some((source) => typeof source === 'string')
  for (const sentence of permissionFaults(file, stats, { uid, holdsSecret }))
    diagnostics.fault('', `the configuration file ${sentence}`)
}
