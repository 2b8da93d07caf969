// Makes the configuration of a valid document: defaults, durations, paths, ids, secrets, and the rules across settings.
import type { Stats } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { parseDuration } from '../lib/duration.ts'
import { runtimeDirectoryOf, stateDirectoryOf } from '../lib/paths.ts'
import { baseUrlWarning } from './base-url.ts'
import { createInputs, type Inputs, type InputsOptions } from './inputs.ts'
import type { Diagnostics } from './issues.ts'
import { permissionFaults } from './read-file.ts'
import { createOutputs } from './resolve-outputs.ts'
import { resolveShare } from './resolve-share.ts'
import { STANDARD_INITIAL_DELAY, type Settings } from './schema.ts'
import { resolveCredentials } from './resolve-credentials.ts'
import { resolveService } from './service.ts'

interface ResolveOptions extends Omit<InputsOptions, 'directory'> {
  /** The configuration file, absolute, and the owner and mode of its descriptor. */
  readonly file: string
  readonly stats: Stats
  /** Used instead of the configured one. */
  readonly runtimeDirectory?: string | undefined
}

/**
 * The configuration, its `warnings` still empty, and the settings whose secret only the daemon sees. Faults go to
 * `diagnostics`; if there are any, the result is not to be used.
 */
export async function resolveConfig(input: Settings, options: ResolveOptions) {
  const { file, stats, uid, diagnostics } = options
  const directory = dirname(file)
  const inputs = createInputs({ ...options, directory })
  const wantedRuntimeDirectory = resolve(directory, input.runtimeDirectory ?? runtimeDirectoryOf(options))
  const runtimeDirectory = options.runtimeDirectory ?? wantedRuntimeDirectory
  const { alerts, share } = input
  const { timeout, connectTimeout } = input.request
  const plan = resolvePlan(input, diagnostics)
  const pair = await resolveCredentials(input, { directory, inputs, diagnostics })
  const { apiSecret } = pair.credentials
  const hasSecret = input.credentials.apiSecret !== null || input.service.send === 'assertion'
  const outputs = createOutputs({ runtimeDirectory, directory, inputs, diagnostics })
  const config = {
    /** The configuration file, absolute. */
    file,
    ...plan,
    ...pair,
    /** Every file that was read beside the configuration itself, absolute. */
    inputs: inputs.files,
    /** Names of systemd credentials among the secret sources: they change only at a restart. */
    systemdCredentials: inputs.credentialNames,
    request: {
      timeoutMs: timeout,
      connectTimeoutMs: Math.min(connectTimeout, timeout),
      ...(await resolveTrust(input.request, { env: options.env, inputs, diagnostics })),
      /** Null: that of the environment; false: none. */
      proxy: await resolveProxy(input.request.proxy, { inputs, diagnostics }),
    },
    tokenFiles: await outputs.tokenFiles(input.tokenFiles),
    ipc: await outputs.socket('ipc', input.ipc),
    http: input.http === false ? null : await outputs.socket('http', input.http),
    alerts: {
      /** Ages of an alert at which it is reminded of, in rising order. */
      remindAfterMs: [...new Set(alerts.remindAfter)].toSorted((a, b) => a - b),
      /** Time without a usable token after which `no-token` is raised; null: never. */
      noTokenAfterMs: alerts.noTokenAfter,
      contact: alerts.contact,
    },
    /** Null: this host is by itself. */
    share:
      share &&
      (await resolveShare(share, {
        directory,
        apiSecret,
        hasSecret,
        inputs,
        diagnostics,
      })),
    log: input.log,
    /** Absolute. */
    runtimeDirectory,
    /** The configured one. After a reload that changed it, it differs from `runtimeDirectory` until the next start. */
    wantedRuntimeDirectory,
    stateDirectory: resolve(directory, input.stateDirectory ?? stateDirectoryOf(options)),
    /** Things that are allowed and unwise, one sentence each, for the log and for `check`. */
    warnings: [] as string[],
  }
  for (const sentence of permissionFaults(file, stats, { uid, holdsSecret: inputs.hasLiteral() }))
    diagnostics.fault('', `the configuration file ${sentence}`)
  outputs.check(config)
  return { config, unseen: inputs.unseen }
}

/** Authorities of the service's certificate. */
async function resolveTrust(
  { trust, caFile }: Settings['request'],
  { env, inputs, diagnostics }: { env: NodeJS.ProcessEnv; inputs: Inputs; diagnostics: Diagnostics },
) {
  if (trust === 'file' && caFile === null)
    diagnostics.fault('request.caFile', 'is missing beside "trust": "file": name a PEM file of authorities')
  const bundle = trust === 'system' ? env['SSL_CERT_FILE'] || SYSTEM_AUTHORITIES : null
  const texts = [
    await inputs.certificates('request.trust', bundle, 'install ca-certificates, or set $SSL_CERT_FILE'),
    await inputs.certificates('request.caFile', caFile),
  ].filter((text) => text !== null)
  return {
    /** Further authorities, PEM, read when the configuration was. */
    ca: texts.length === 0 ? null : texts.join('\n'),
    isBuiltInTrusted: trust === 'built-in',
  }
}

const SYSTEM_AUTHORITIES = '/etc/ssl/certs/ca-certificates.crt'

async function resolveProxy(
  proxy: Settings['request']['proxy'],
  { inputs, diagnostics }: { inputs: Inputs; diagnostics: Diagnostics },
) {
  if (proxy === null || proxy === false) return proxy
  const password = (await inputs.secret('request.proxy.password', proxy.password)) ?? null
  if (proxy.user === null && proxy.password !== null)
    diagnostics.fault('request.proxy.user', 'is missing beside the password: set both, or none')
  if (proxy.user?.includes(':'))
    diagnostics.fault('request.proxy.user', 'must not hold a ":", which ends a user in HTTP Basic')
  return { ...proxy, password }
}

export type Plan = ReturnType<typeof resolvePlan>

/** The service and when it is asked: the part that needs no secret and no other file. */
export function resolvePlan({ baseUrl, service, refresh, retry }: Settings, diagnostics: Diagnostics) {
  const { maxDelay, initialDelay = Math.min(parseDuration(STANDARD_INITIAL_DELAY)!, maxDelay) } = retry
  const warning = baseUrlWarning(baseUrl)
  if (warning !== undefined) diagnostics.warn('baseUrl', warning)
  if (initialDelay > maxDelay)
    diagnostics.fault('retry.initialDelay', 'must not be longer than retry.maxDelay: lower it or raise that')
  return {
    /** Without a trailing slash. */
    baseUrl,
    service: resolveService(service, { baseUrl, diagnostics }),
    refresh: { maxAgeMs: refresh.maxAge },
    retry: { initialDelayMs: initialDelay, maxDelayMs: maxDelay },
  }
}
