// Makes the configuration of a valid document: defaults, durations, paths, ids, secrets, and the rules across settings.
import type { Stats } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { parseDuration } from '../lib/duration.ts'
import { runtimeDirectoryOf, stateDirectoryOf } from '../lib/paths.ts'
import { type Credentials, Secret } from '../lib/secret.ts'
import { isKeyOf } from '../lib/crypto.ts'
import { baseUrlWarning, isLoopbackHost } from './base-url.ts'
import type { Config, ShareConfig } from './config.ts'
import { createInputs, type InputsOptions, type Inputs } from './inputs.ts'
import { type Diagnostics, reportEach, usable } from './issues.ts'
import { permissionFaults } from './read-file.ts'
import { createOutputs } from './resolve-outputs.ts'
import { STANDARD_INITIAL_DELAY } from './schema.ts'
import { resolveService } from './service.ts'
import type { ValidPart } from './validate.ts'
import type { ServerAddress } from './schema-parts.ts'

/**
 * The most memory that one connection takes, in MiB: 64 KiB that were read at once, 16 KiB of unsent answers, 12 KiB in the
 * kernel's send buffer, and 4 KiB for the socket and its waiting requests (delivery/limits.ts).
 */
const CONNECTION_MIB = 96 / 1024
/** `MemoryMax=` of the unit. */
const SERVICE_MIB = 256
/** The memory of a daemon without clients. */
const IDLE_MIB = 60

interface ResolveOptions extends Omit<InputsOptions, 'directory'> {
  /** The configuration file, absolute, and the owner and mode of its descriptor. */
  readonly file: string
  readonly stats: Stats
  /** Used instead of the configured one. */
  readonly runtimeDirectory?: string | undefined
}

/**
 * The configuration, its `warnings` still empty, and the settings whose secret only the daemon sees. Faults go to
 * `diagnostics`; if there are any, here or before, the result is not to be used.
 */
export async function resolveConfig(input: ValidPart, options: ResolveOptions) {
  const { file, stats, uid, diagnostics } = options
  const directory = dirname(file)
  const inputs = createInputs({ ...options, directory })
  const wantedRuntimeDirectory = resolve(directory, input.runtimeDirectory ?? runtimeDirectoryOf(options))
  const runtimeDirectory = options.runtimeDirectory ?? wantedRuntimeDirectory
  const { credentials, alerts, share } = input
  const { timeout, connectTimeout, caFile } = input.request
  const plan = resolvePlan(input, diagnostics)
  const sources = [credentials?.apiKey, credentials?.apiSecret]
  const apiKey = inputs.secret('credentials.apiKey', sources[0])
  const apiSecret = inputs.secret('credentials.apiSecret', sources[1])
  const [keyFile = null, secretFile = null] = sources.map((source) =>
    typeof source === 'object' && 'file' in source ? resolve(directory, source.file) : null,
  )
  const outputs = createOutputs({ runtimeDirectory, directory, inputs, diagnostics })
  const config = {
    /** The configuration file, absolute. */
    file,
    ...plan,
    credentials: { apiKey, apiSecret } as Credentials,
    /** Files that the credentials come from, absolute; null: another source. */
    secretFiles: { apiKey: keyFile, apiSecret: secretFile },
    /** Every file that was read beside the configuration itself, absolute. */
    inputs: inputs.files,
    /** Names of systemd credentials among the secret sources: they change only at a restart. */
    systemdCredentials: sources.flatMap((source) =>
      typeof source === 'object' && 'credential' in source ? source.credential : [],
    ),
    request: {
      timeoutMs: timeout,
      connectTimeoutMs: Math.min(connectTimeout, timeout),
      /** PEM text of `caFile`, read when the configuration was. */
      ca: inputs.certificates('request.caFile', caFile),
    },
    tokenFiles: await outputs.tokenFiles(input.tokenFiles),
    ipc: await outputs.socket('ipc', input.ipc),
    http: input.http === false ? null : await outputs.socket('http', input.http),
    alerts: {
      /** Ages of an alert at which it is reminded of, in rising order. */
      remindAfterMs: usable([...new Set(alerts.remindAfter)]).toSorted((a, b) => a - b),
      /** Time without a usable token after which `no-token` is raised; null: never. */
      noTokenAfterMs: alerts.noTokenAfter,
      contact: alerts.contact,
    },
    /** Null: this host is by itself. */
    share: share && resolveShare(share, { directory, apiSecret, inputs, diagnostics }),
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
  checkMemory(config, diagnostics)
  return { config, unseen: inputs.unseen }
}

export type Plan = ReturnType<typeof resolvePlan>

/** The service and when it is asked: the part that needs no secret and no other file. */
export function resolvePlan({ baseUrl = '', service, refresh, retry }: ValidPart, diagnostics: Diagnostics) {
  const { maxDelay, initialDelay = Math.min(parseDuration(STANDARD_INITIAL_DELAY)!, maxDelay) } = retry
  const warning = baseUrl === '' ? undefined : baseUrlWarning(baseUrl)
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

/** Warns of connections that could hold more memory than the unit allows. */
function checkMemory({ ipc, http }: Config, { warn }: Diagnostics): void {
  const connections = ipc.maxConnections + (http?.maxConnections ?? 0)
  const heldMib = Math.ceil(connections * CONNECTION_MIB + IDLE_MIB)
  if (heldMib > SERVICE_MIB)
    warn(
      '',
      `${connections} connections (\`maxConnections\` of \`ipc\` and \`http\`) can hold ${heldMib} MiB, and the unit allows ` +
        `${SERVICE_MIB} MiB: lower \`maxConnections\`, or raise MemoryMax= of the unit`,
    )
}

type ShareInput = NonNullable<ValidPart['share']>

interface ShareContext {
  readonly directory: string
  readonly apiSecret: Secret | undefined
  readonly inputs: Inputs
  readonly diagnostics: Diagnostics
}

const MIN_KEY_BYTES = 16
/** A reader of the store could find a shorter secret by trying all. */
const MIN_SECRET_LENGTH = 16

/** One token for all hosts of the account, through Redis. */
function resolveShare(input: ShareInput, context: ShareContext) {
  const { directory, inputs, apiSecret, diagnostics } = context
  const { timeout, sentinel, ...settings } = input
  /** One server, all sentinels of one master, nodes of one cluster, or one Unix socket (absolute). */
  const servers: readonly ServerAddress[] = usable(input.servers ?? []).map((server) =>
    'path' in server ? { path: resolve(directory, server.path) } : server,
  )
  const config = {
    ...settings,
    servers,
    /** If set, the servers are sentinels. */
    sentinel:
      sentinel?.name === undefined
        ? null
        : {
            name: sentinel.name,
            user: sentinel.user,
            password: inputs.secret('share.sentinel.password', sentinel.password) ?? null,
          },
    /** Null: without TLS. PEM texts, read when the configuration was. */
    tls: resolveTls(input.tls ?? !hasUnixSocket(servers), context),
    password: inputs.secret('share.password', input.password) ?? null,
    /** For one command. */
    timeoutMs: timeout,
    /** A part of the key with which records are encrypted. */
    key: inputs.secret('share.key', input.key) ?? null,
  }
  reportEach(problemsOf(config), diagnostics.fault)
  const length = apiSecret?.reveal().length ?? MIN_SECRET_LENGTH
  if (length < MIN_SECRET_LENGTH && !input.key)
    diagnostics.warn(
      'credentials.apiSecret',
      `has ${length} characters: a reader of the store could try them all. Set share.key`,
    )
  return config
}

function hasUnixSocket(servers: readonly ServerAddress[]): boolean {
  return servers.some((server) => 'path' in server)
}

function resolveTls(input: NonNullable<ShareInput['tls']>, { inputs, diagnostics }: ShareContext) {
  if (input === false) return null
  const { caFile = null, serverName = null, certFile = null, keyFile = null } = input === true ? {} : input
  if ((certFile === null) !== (keyFile === null))
    diagnostics.fault(
      `share.tls.${certFile === null ? 'certFile' : 'keyFile'}`,
      'is missing beside the other one: a certificate needs its key, so set both or none',
    )
  const cert = inputs.certificates('share.tls.certFile', certFile)
  const at = 'share.tls.keyFile'
  const remedy = 'name a PEM file with the key of share.tls.certFile'
  const key =
    keyFile === null ? undefined : inputs.file(at, keyFile, remedy, { holdsSecret: true })?.toString()
  if (key !== undefined && cert !== null && !isKeyOf(key, cert))
    diagnostics.fault(at, `holds no key of that certificate, or one that a passphrase protects: ${remedy}`)
  const ca = inputs.certificates('share.tls.caFile', caFile)
  return { ca, serverName, cert, key: key === undefined ? null : new Secret(key) }
}

function problemsOf(config: ShareConfig): Parameters<typeof reportEach>[0] {
  const { sentinel, cluster, database, key, asks, whenAlone } = config
  return {
    'share.servers': serversProblem(config),
    'share.tls': tlsProblem(config),
    'share.cluster':
      sentinel !== null &&
      cluster &&
      'is true beside share.sentinel: servers are either nodes or sentinels; leave one out',
    'share.database': cluster && database !== 0 && 'is not 0, and a cluster has no other: leave it out',
    'share.key':
      key !== null &&
      Buffer.byteLength(key.reveal()) < MIN_KEY_BYTES &&
      `is shorter than ${MIN_KEY_BYTES} bytes: make one with \`openssl rand -hex 32\``,
    'share.asks':
      !asks &&
      whenAlone === 'fetch' &&
      'is false and share.whenAlone is "fetch": such a host would never have a token of its own; set share.whenAlone to "wait"',
  }
}

function serversProblem({ servers, sentinel, cluster }: ShareConfig): string | undefined {
  const isSeveral = sentinel !== null || cluster
  if (hasUnixSocket(servers) && (servers.length > 1 || isSeveral))
    return 'has a Unix socket beside other servers, a sentinel or a cluster: name it alone'
  if (servers.length > 1 && !isSeveral)
    return 'has several servers, which are neither sentinels nor a cluster: name one, or set share.sentinel or share.cluster'
  return undefined
}

function tlsProblem({ servers, tls, password, sentinel }: ShareConfig): string | false {
  if (hasUnixSocket(servers)) return tls !== null && 'is set, and a Unix socket has no TLS: leave it out'
  const away = servers
    .flatMap((server) => ('host' in server ? server.host : []))
    .find((host) => !isLoopbackHost(host))
  if (tls !== null || away === undefined || !(password ?? sentinel?.password)) return false
  const exposed = password === null ? 'share.sentinel.password' : 'share.password'
  return `is false and ${away} is not this host: ${exposed} would cross the network in the clear. Set share.tls, or leave ${exposed} out`
}
