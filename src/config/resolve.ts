// Makes the configuration of valid settings: paths, ids and secrets.
import type { KeyObject } from 'node:crypto'
import { join, resolve } from 'node:path'
import * as v from 'valibot'
import { idOf, type IdKind } from '../host/ids.ts'
import { OWN_FILES, ownSockets, runtimeDirectoryOf, stateDirectoryOf } from '../host/paths.ts'
import { MAX_SOCKET_PATH_BYTES } from '../lib/libc.ts'
import { Secret } from '../lib/secret.ts'
import { certificateLife } from './certificates.ts'
import type { Frozen, PairConfig, Value } from './pair-config.ts'
import { keyPath, type Diagnostics } from './faults.ts'
import { rulesOf } from './rules.ts'
import { service as serviceSchema, type ServiceSettings, type Settings } from './schema.ts'
import type { Inputs } from './secrets.ts'

/** Another `baseUrl` or `tokenUrl` is another service. All else here takes effect at once. */
export type ServiceConfig = Frozen<ReturnType<typeof resolveService>>
export type TokenFileConfig = Frozen<Awaited<ReturnType<typeof resolveTokenFiles>>[number]>
export type SocketConfig = Frozen<Awaited<ReturnType<typeof resolveSocket>>>
type Directories = ReturnType<typeof directoriesOf>
/** A daemon that runs, as far as only a restart changes it. */
export type Running = Readonly<Directories> & { readonly http: SocketConfig | null }

interface ResolveOptions {
  /** The configuration file, absolute. */
  readonly file: string
  readonly env: NodeJS.ProcessEnv
  /** The daemon that runs: settings that only a restart changes stay as they are there. */
  readonly running?: Running | undefined
  readonly inputs: Inputs
}

/** Faults and warnings go to `inputs`; if there are faults, the result is not to be used. */
export async function resolveConfig(settings: Settings, { file, env, running, inputs }: ResolveOptions) {
  const { alerts, refresh, retry, log, share } = settings
  const service = serviceOf(settings)
  for (const [isBroken, at, sentence] of rulesOf(settings, service)) if (isBroken) inputs.fault(at, sentence)
  const pair = await resolvePair(settings, file, inputs)
  const wanted = {
    ...directoriesOf(settings, env, inputs),
    http: settings.http === false ? null : await resolveSocket('http', settings.http, inputs),
  }
  const { runtimeDirectory, stateDirectory, http } = running ?? wanted
  const config = {
    service: resolveService(settings.baseUrl, service),
    pair,
    request: await resolveRequest(settings.request, env, inputs),
    policy: {
      maxAgeMs: refresh.maxAge,
      /** At most `maxDelayMs`. */
      initialDelayMs: Math.min(retry.initialDelay, retry.maxDelay),
      maxDelayMs: retry.maxDelay,
    },
    tokenFiles: await resolveTokenFiles(settings.tokenFiles, runtimeDirectory, inputs),
    ipc: await resolveSocket('ipc', settings.ipc, inputs),
    /** Null: it is off. */
    http: http && (wanted.http ?? http),
    alerts: {
      /** Ages of an alert at which it is repeated, in rising order. */
      remindAfterMs: [...new Set(alerts.remindAfter)].toSorted((one, other) => one - other),
      /** Null: never. */
      noTokenAfterMs: alerts.noTokenAfter,
      contact: alerts.contact,
    },
    log,
    /** Null: this host is by itself. */
    share: share && (await resolveShare(share, sealSecretOf(settings, pair), inputs)),
    /** The daemon's own sockets are in it: `ownSockets` of `host/paths.ts`. */
    runtimeDirectory,
    stateDirectory,
    /** What was read. */
    read: {
      /** The configuration file. */
      file,
      /** All files that were read: `versionOf` says whether one of them has changed. */
      files: [...new Set([file, ...Object.values(inputs.files)])],
      /** Names of systemd credentials among the secret sources, which systemd loads at the start only. */
      systemdCredentials: inputs.credentialNames,
      /** Settings that differ from those of the running daemon, and are not in force before a restart. */
      needsRestart: running === undefined ? [] : needingRestart(wanted, running),
    },
  }
  checkPaths(config, inputs)
  return config
}

function needingRestart(wanted: Running, running: Running): string[] {
  const names = ['runtimeDirectory', 'stateDirectory'] as const
  const isSwitched = (wanted.http === null) !== (running.http === null)
  return [...names.filter((name) => wanted[name] !== running[name]), ...(isSwitched ? ['http'] : [])]
}

/** The settings of `service`; null means its defaults. */
function serviceOf({ service }: Pick<Settings, 'service'>): ServiceSettings {
  return service ?? v.parse(serviceSchema(), {})
}

function resolveService(given: string, { tokenUrl, lifetime, refusals, refusedBy, use }: ServiceSettings) {
  const baseUrl = new URL(given).href.replace(/\/+$/, '')
  const isPath = tokenUrl.startsWith('/')
  return {
    /** Without a trailing slash. */
    baseUrl,
    /** The whole URL of the token endpoint. */
    tokenUrl: new URL(isPath ? baseUrl + tokenUrl : tokenUrl).href,
    /** Names of the answer's fields, one within the other; null: the answer has no life. */
    lifetime,
    /** In the order in which they are looked for. `in`: names as above; null: anywhere. */
    refusals,
    refusedBy,
    use,
  }
}

interface ServiceAndPair {
  readonly service: ServiceConfig
  readonly pair: PairConfig
}

/** The service and the shape of its request, without secrets and without what comes from files. */
export function serviceWithoutSecrets(settings: Pick<Settings, 'baseUrl' | 'service'>): ServiceAndPair {
  const service = serviceOf(settings)
  const { send, names, token, assertion } = service
  const unknown = new Secret('')
  const pair: PairConfig = {
    apiKey: unknown,
    apiSecret: unknown,
    clientCertificate: null,
    send,
    names,
    parameters: {},
    headers: {},
    token,
    assertion: assertion && assertionOf(assertion, unknown),
    ends: { credentialsMs: null, certificate: null },
    files: [],
  }
  return { service: resolveService(settings.baseUrl, service), pair }
}

/** The service of the interface description at this base URL, likewise. */
export function standardService(baseUrl = 'https://api.example.com'): ServiceAndPair {
  return serviceWithoutSecrets({ baseUrl, service: null })
}

type AssertionSettings = NonNullable<ServiceSettings['assertion']>

function assertionOf(
  { file, as, type, lifetime, key: _key, ...signed }: AssertionSettings,
  key: Secret,
): PairConfig['assertion'] {
  if (file !== null) return { kind: 'ready', file, as, type }
  return { ...signed, kind: 'signed', key, lifetimeMs: lifetime, as: as === 'grant' ? as : 'client' }
}

/** The settings whose files belong to the pair. */
const OF_PAIR = /^(?:credentials|service|request\.clientCertificate)\./

async function resolvePair(settings: Settings, file: string, inputs: Inputs): Promise<PairConfig> {
  const { credentials, request } = settings
  const service = serviceOf(settings)
  const apiKey = await inputs.secret('credentials.apiKey', credentials.apiKey)
  const apiSecret = await inputs.secret('credentials.apiSecret', credentials.apiSecret)
  const parameters = await resolveValues('parameters', service.parameters, inputs)
  const headers = await resolveValues('headers', service.headers, inputs)
  const sent = service.send === 'headers' ? [apiKey, apiSecret] : []
  for (const value of [...sent, ...Object.values(headers)])
    if (!HEADER_VALUE.test(value instanceof Secret ? value.reveal() : String(value)))
      inputs.fault('service.headers', 'have a value that no HTTP header can have: write visible characters')
  const { assertion: given } = service
  const problemOf = (key: KeyObject) => algorithmProblem(key, given!.algorithm)
  const key = given?.key ? await inputs.privateKey('service.assertion.key', given.key, problemOf) : null
  const clientCertificate =
    request.clientCertificate &&
    (await inputs.certificateWithKey('request.clientCertificate', request.clientCertificate))
  const files = Object.entries(inputs.files).flatMap(([at, path]) => (OF_PAIR.test(at) ? path : []))
  return {
    ...serviceWithoutSecrets(settings).pair,
    apiKey,
    apiSecret,
    clientCertificate,
    parameters,
    headers,
    assertion:
      given &&
      assertionOf({ ...given, file: given.file && inputs.pathOf(given.file) }, key ?? new Secret('')),
    ends: {
      credentialsMs: credentials.expiresAt,
      certificate: clientCertificate && certificateLife(clientCertificate.cert),
    },
    files: files.length === 0 ? [file] : files,
  }
}

async function resolveValues(
  group: 'parameters' | 'headers',
  values: ServiceSettings['headers'],
  inputs: Inputs,
): Promise<Record<string, Value>> {
  const entries = await Array.fromAsync(Object.entries(values), async ([name, value]) => {
    const isSource = typeof value === 'object'
    return [name, isSource ? await inputs.secret(keyPath(['service', group, name]), value) : value] as const
  })
  return Object.fromEntries(entries.map(([name, value]) => [name, value ?? '']))
}

/** RFC 9110, section 5.5: visible characters, blanks and tabs within. */
const HEADER_VALUE = /^(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?$/
/** Type, curve and length of a key. */
const KEYS_OF = {
  RS256: /^rsa {2}[2-9]\d{3}/,
  PS256: /^rsa\S* {2}[2-9]\d{3}/,
  ES256: /^ec prime256v1/,
  EdDSA: /^ed25519/,
}

function algorithmProblem(
  { asymmetricKeyType: type, asymmetricKeyDetails: { namedCurve = '', modulusLength = 0 } = {} }: KeyObject,
  algorithm: AssertionSettings['algorithm'],
): string | undefined {
  if (KEYS_OF[algorithm].test(`${type} ${namedCurve} ${modulusLength}`)) return undefined
  return `holds a key (${type}) that is not for ${algorithm} (RSA: 2048 bits or more): set service.assertion.algorithm`
}

const SYSTEM_AUTHORITIES = '/etc/ssl/certs/ca-certificates.crt'

async function resolveRequest(
  { trust, caFile, proxy, timeout, connectTimeout }: Settings['request'],
  env: NodeJS.ProcessEnv,
  inputs: Inputs,
) {
  const bundle = trust === 'system' ? env['SSL_CERT_FILE'] || SYSTEM_AUTHORITIES : null
  const texts = [
    await inputs.certificates('request.trust', bundle),
    await inputs.certificates('request.caFile', caFile),
  ].filter((text) => text !== null)
  return {
    timeoutMs: timeout,
    /** At most `timeoutMs`. */
    connectTimeoutMs: Math.min(connectTimeout, timeout),
    /** Further authorities, PEM, as the start or the reload read them; null: none. */
    ca: texts.length === 0 ? null : texts.join('\n'),
    /** Node's own list is trusted, too. */
    isBuiltInTrusted: trust === 'built-in',
    /** Null: that of HTTPS_PROXY and NO_PROXY; false: none. */
    proxy: proxy && { ...proxy, password: await inputs.secret('request.proxy.password', proxy.password) },
  }
}

export async function resolveTokenFiles(
  files: Settings['tokenFiles'],
  runtimeDirectory: string,
  inputs: Inputs,
) {
  return Array.fromAsync(files, async ({ owner, group, ...settings }, index) => {
    const at = `tokenFiles[${index}]`
    if ((settings.mode & 0o004) !== 0)
      inputs.warn(`${at}.mode`, 'lets every user of this host read the token: set "0640" and a group')
    return {
      ...settings,
      path: resolve(runtimeDirectory, settings.path),
      /** Null: as the file is created. */
      uid: await idOrNull(`${at}.owner`, 'user', owner, inputs),
      gid: await idOrNull(`${at}.group`, 'group', group, inputs),
    }
  })
}

export async function resolveSocket(
  at: 'ipc' | 'http',
  { group, allow, ...settings }: Settings['ipc'],
  inputs: Inputs,
) {
  const idsOf = async (kind: IdKind): Promise<number[]> => {
    const ids = await Array.fromAsync(allow[`${kind}s`], async (account, index) =>
      idOrNull(`${at}.allow.${kind}s[${index}]`, kind, account, inputs),
    )
    return ids.filter((id) => id !== null)
  }
  return {
    /** `mode` and `gid`: of a socket of the daemon's own. */
    ...settings,
    gid: await idOrNull(`${at}.group`, 'group', group, inputs),
    /** Who may use it beside operators; both empty: the mode alone decides. */
    allow: { uids: await idsOf('user'), gids: await idsOf('group') },
    /** At most `maxConnections`. */
    maxConnectionsPerUser: Math.min(settings.maxConnectionsPerUser, settings.maxConnections),
  }
}

/** The id of a user or group; null, too, if none is named. */
async function idOrNull(
  at: string,
  kind: IdKind,
  name: string | number | null,
  { fault }: Diagnostics,
): Promise<number | null> {
  const id = name === null ? null : await idOf(kind, name)
  return id === undefined
    ? fault(at, `there is no ${kind} ${name} on this host: make it (${kind}add --system ${name})`)
    : id
}

async function resolveShare(
  { timeout, tls, ...settings }: NonNullable<Settings['share']>,
  ofAccount: SealSecret,
  inputs: Inputs,
) {
  const { sentinel, servers } = settings
  const hasSocket = servers.some((server) => 'path' in server)
  const key = await inputs.secret('share.key', settings.key)
  checkSeal({ key, isMissing: settings.key === null, ofAccount }, inputs)
  const { caFile = null, serverName = null, certFile, key: source } = typeof tls === 'object' ? tls : {}
  const own =
    certFile && source ? await inputs.certificateWithKey('share.tls', { certFile, key: source }) : null
  const ca = await inputs.certificates('share.tls.caFile', caFile)
  return {
    ...settings,
    /** One server, all sentinels of one master, nodes of one cluster, or one Unix socket. */
    servers: servers.map((server) => ('path' in server ? { path: inputs.pathOf(server.path) } : server)),
    /** Not null: the servers are sentinels. */
    sentinel: sentinel && {
      ...sentinel,
      password: await inputs.secret('share.sentinel.password', sentinel.password),
    },
    /** PEM texts; null: without TLS. */
    tls:
      tls === false || hasSocket ? null : { ca, serverName, cert: own?.cert ?? null, key: own?.key ?? null },
    password: await inputs.secret('share.password', settings.password),
    /** A part of the seal; null: the account's secret alone. */
    key,
    /** For one command. */
    timeoutMs: timeout,
  }
}

const MIN_KEY_BYTES = 16
/** What of the account is in the seal: nothing; a key, or what cannot be read here; a secret. */
type SealSecret = 'none' | 'some' | Secret

function sealSecretOf({ credentials, service }: Settings, { apiSecret }: PairConfig): SealSecret {
  const hasSecret = (credentials.apiSecret ?? service?.assertion?.key ?? null) !== null
  return apiSecret ?? (hasSecret ? 'some' : 'none')
}

/** A reader of the store must not be able to try all secrets. */
function checkSeal(
  { key, isMissing, ofAccount }: { key: Secret | null; isMissing: boolean; ofAccount: SealSecret },
  { fault, warn }: Diagnostics,
): void {
  const make = 'make one with `openssl rand -hex 32`, the same on all hosts'
  const isShort = (secret: Secret): boolean => Buffer.byteLength(secret.reveal()) < MIN_KEY_BYTES
  if (key !== null && isShort(key)) fault('share.key', `is shorter than ${MIN_KEY_BYTES} bytes: ${make}`)
  if (isMissing && ofAccount === 'none')
    fault('share.key', `is missing, and the account has no secret for the seal: ${make}`)
  if (isMissing && ofAccount instanceof Secret && isShort(ofAccount))
    warn('credentials.apiSecret', 'is short, and a reader of the store could try all: set share.key')
}

function directoriesOf(
  { runtimeDirectory, stateDirectory }: Settings,
  env: NodeJS.ProcessEnv,
  inputs: Inputs,
) {
  if (env['RUNTIME_DIRECTORY'])
    for (const [at, path] of Object.entries({ runtimeDirectory, stateDirectory }))
      if (path !== null) inputs.fault(at, 'is for a daemon without systemd, which makes it: leave it out')
  const identity = { env, uid: process.geteuid!() }
  const wanted = inputs.pathOf(runtimeDirectory ?? runtimeDirectoryOf(identity))
  const bytes = Buffer.byteLength(ownSockets(wanted).http)
  if (bytes > MAX_SOCKET_PATH_BYTES)
    inputs.fault(
      'runtimeDirectory',
      `makes a socket's path ${bytes} bytes long, of at most ${MAX_SOCKET_PATH_BYTES}: choose a shorter one`,
    )
  return {
    runtimeDirectory: wanted,
    stateDirectory: inputs.pathOf(stateDirectory ?? stateDirectoryOf(identity)),
  }
}

interface Paths extends Directories {
  readonly pair: PairConfig
  readonly tokenFiles: readonly TokenFileConfig[]
  readonly read: { readonly files: readonly string[] }
}

/** No two settings may write to one path, none to a file that is read or the daemon's own, nor where systemd writes. */
function checkPaths({ pair, tokenFiles, read, ...directories }: Paths, { fault }: Diagnostics): void {
  const own = (['runtimeDirectory', 'stateDirectory'] as const).flatMap((name) => [
    directories[name],
    ...Object.values(OWN_FILES[name]).map((file) => join(directories[name], file)),
  ])
  const { runtimeDirectory } = directories
  const ready = pair.assertion?.kind === 'ready' ? [pair.assertion.file] : []
  const taken = new Set([...own, ...Object.values(ownSockets(runtimeDirectory)), ...read.files, ...ready])
  for (const [index, { path }] of tokenFiles.entries()) {
    const at = `tokenFiles[${index}].path`
    if (path.startsWith('/run/kyc-tokend/') && !path.startsWith(`${runtimeDirectory}/`))
      fault(at, 'is where systemd alone writes: give the name alone, such as "token"')
    if (taken.has(path))
      fault(at, `is ${path}, which is the daemon's own, is read, or is named twice: change it`)
    taken.add(path)
  }
}
