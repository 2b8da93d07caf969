// Makes the configuration of valid settings: paths, ids, secrets, and the rules across settings.
import type { Stats } from 'node:fs'
import { dirname } from 'node:path'
import { runtimeDirectoryOf, stateDirectoryOf } from '../host/paths.ts'
import { baseUrlWarning } from './base-url.ts'
import { createInputs, type Inputs, type InputsOptions } from './inputs.ts'
import { formatIssue, type Collected, type Diagnostics } from './issues.ts'
import { permissionFaults } from './read-file.ts'
import { longLife, readReadyAssertion } from './ready-assertion.ts'
import { checkPaths, resolveSocket, resolveTokenFiles } from './resolve-outputs.ts'
import { resolveShare } from './resolve-share.ts'
import type { Settings } from './schema.ts'
import { resolveCredentials } from './resolve-credentials.ts'
import { resolveService } from './service.ts'

interface ResolveOptions extends Omit<InputsOptions, 'directory' | 'diagnostics'> {
  readonly diagnostics: Collected
  /** The configuration file, absolute, and the owner and mode of its descriptor. */
  readonly file: string
  readonly stats: Stats
  /** Used instead of the configured one. */
  readonly runtimeDirectory?: string | undefined
}

/**
 * The configuration, and the settings whose secret only the daemon sees. Faults and warnings go to
 * `diagnostics`; if there are any, the result is not to be used.
 */
export async function resolveConfig(settings: Settings, options: ResolveOptions) {
  const { file, stats, uid, env, diagnostics } = options
  const { credentials, service, request, alerts, share } = settings
  const inputs = createInputs({ ...options, directory: dirname(file) })
  const wantedRuntimeDirectory = inputs.pathOf(settings.runtimeDirectory ?? runtimeDirectoryOf(options))
  const runtimeDirectory = options.runtimeDirectory ?? wantedRuntimeDirectory
  const plan = resolvePlan(settings, diagnostics)
  const pair = await resolveCredentials(settings, inputs)
  const { apiSecret } = pair.credentials
  const hasSecret = credentials.apiSecret !== null || (service.assertion?.key ?? null) !== null
  const outputs = { runtimeDirectory, inputs }
  const config = {
    /** The configuration file, absolute. */
    file,
    ...plan,
    service: await resolveReadyAssertion(plan.service, inputs),
    ...pair,
    request: {
      timeoutMs: request.timeout,
      connectTimeoutMs: Math.min(request.connectTimeout, request.timeout),
      ...(await resolveTrust(request, inputs, env['SSL_CERT_FILE'] || SYSTEM_AUTHORITIES)),
      /** Null: that of the environment; false: none. */
      proxy: await resolveProxy(request.proxy, inputs),
    },
    tokenFiles: await resolveTokenFiles(settings.tokenFiles, outputs),
    ipc: await resolveSocket('ipc', settings.ipc, outputs),
    http: settings.http === false ? null : await resolveSocket('http', settings.http, outputs),
    alerts: {
      /** Ages of an alert at which it is reminded of, in rising order. */
      remindAfterMs: [...new Set(alerts.remindAfter)].toSorted((a, b) => a - b),
      /** Time without a usable token after which `no-token` is raised; null: never. */
      noTokenAfterMs: alerts.noTokenAfter,
      contact: alerts.contact,
    },
    /** Null: this host is by itself. */
    share: share && (await resolveShare(share, { apiSecret, hasSecret, inputs })),
    log: settings.log,
    /** Absolute. */
    runtimeDirectory,
    /**
     * The configured one: another than `runtimeDirectory` from a reload that changed it to the next start.
     */
    wantedRuntimeDirectory,
    stateDirectory: inputs.pathOf(settings.stateDirectory ?? stateDirectoryOf(options)),
    /** Every file that was read beside the configuration itself, absolute. */
    inputs: Object.values(inputs.files),
    /** Names of systemd credentials among the secret sources: they change only at a restart. */
    systemdCredentials: inputs.credentialNames,
    /** Things that are allowed and unwise, one sentence each, for the log and for `check`. */
    warnings: diagnostics.warnings.map(formatIssue),
  }
  for (const sentence of permissionFaults(file, stats, { uid, holdsSecret: inputs.hasLiteral() }))
    diagnostics.fault('', `the configuration file ${sentence}`)
  checkPaths(config, inputs)
  return { config, unseen: inputs.unseen }
}

/** The file with its absolute path. That there is none now is no fault: it is read at each request. */
async function resolveReadyAssertion(service: Plan['service'], inputs: Inputs): Promise<Plan['service']> {
  if (!service.assertion?.file) return service
  const file = inputs.pathOf(service.assertion.file)
  const wallMs = Date.now()
  const read = await readReadyAssertion(file, { wallMs })
  const problem = typeof read === 'string' ? undefined : longLife(read, wallMs)
  if (problem !== undefined) inputs.warn('service.assertion.file', `the file ${file} ${problem}`)
  return { ...service, assertion: { ...service.assertion, file } }
}

const SYSTEM_AUTHORITIES = '/etc/ssl/certs/ca-certificates.crt'

/** Authorities of the service's certificate. */
async function resolveTrust({ trust, caFile }: Settings['request'], inputs: Inputs, ofSystem: string) {
  if (trust === 'file' && caFile === null)
    inputs.fault('request.caFile', 'is missing beside "trust": "file": name a PEM file of authorities')
  const bundle = trust === 'system' ? ofSystem : null
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

async function resolveProxy(proxy: Settings['request']['proxy'], inputs: Inputs) {
  if (proxy === null || proxy === false) return proxy
  const { url, user } = proxy
  if (user === null && proxy.password !== null)
    inputs.fault('request.proxy.user', 'is missing beside the password: set both, or none')
  if (user?.includes(':'))
    inputs.fault('request.proxy.user', 'must not hold a ":", which ends a user in HTTP Basic')
  return { url, user, password: await inputs.secret('request.proxy.password', proxy.password) }
}

export type Plan = ReturnType<typeof resolvePlan>

/** The service and when it is asked: the part that needs no secret and no other file. */
export function resolvePlan({ baseUrl, service, refresh, retry }: Settings, diagnostics: Diagnostics) {
  const { initialDelay, maxDelay } = retry
  const warning = baseUrlWarning(baseUrl)
  if (warning !== undefined) diagnostics.warn('baseUrl', warning)
  return {
    /** Without a trailing slash. */
    baseUrl,
    service: resolveService(service, { baseUrl, diagnostics }),
    refresh: { maxAgeMs: refresh.maxAge },
    retry: { initialDelayMs: Math.min(initialDelay, maxDelay), maxDelayMs: maxDelay },
  }
}
