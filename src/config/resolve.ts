// Makes the configuration of valid settings: looks up all that they name, and checks what was found.
import { join, resolve } from 'node:path'
import * as v from 'valibot'
import { OWN_FILES, ownSockets, runtimeDirectoryOf, stateDirectoryOf } from '../host/paths.ts'
import { fallbackOnSystemError } from '../lib/error.ts'
import { isRecord } from '../lib/input.ts'
import { Secret } from '../lib/secret.ts'
import { faultsBetween, MAKE_KEY } from './document.ts'
import { keyPath } from './faults.ts'
import type { Lookup } from './kinds.ts'
import { service as serviceSchema, type Settings } from './schema.ts'
import { certificateLife, createSecureContext, privateKeyOf, type Inputs } from './secrets.ts'

/** Settings with what they name in the place of each `Lookup`. */
type Resolved<T> =
  T extends Lookup<infer Named> ? Named : T extends object ? { [Key in keyof T]: Resolved<T[Key]> } : T

type Found = Resolved<Settings>

/** Looks up one after the other, so that a disk that does not answer holds one thread. */
async function resolved(value: unknown, inputs: Inputs, at: readonly PropertyKey[] = []): Promise<unknown> {
  if (typeof value === 'function') return (value as Lookup<unknown>)(inputs, keyPath(at))
  if (Array.isArray(value))
    return Array.fromAsync(value, async (each, index) => resolved(each, inputs, [...at, index]))
  if (!isRecord(value)) return value
  const entries = await Array.fromAsync(Object.entries(value), async ([name, each]) => {
    return [name, await resolved(each, inputs, [...at, name])] as const
  })
  return Object.fromEntries(entries)
}

/** The type as it is in a configuration: read-only to its depth. */
export type Frozen<T> = unknown extends T
  ? T
  : T extends Secret
    ? T
    : { readonly [Key in keyof T]: Frozen<T[Key]> }

/** The settings of a daemon that only a restart changes. */
export type RestartOnly = Frozen<ReturnType<typeof directoriesOf> & { http: Found['ipc'] | null }>

/**
 * `text`: the document in JSON. `inForce`: the settings of a daemon that runs; those that only a restart changes stay
 * as they are there. Faults and warnings go to `inputs`; if there are faults, the result is not to be used.
 */
export async function resolveConfig(
  settings: Settings,
  inputs: Inputs,
  { text, inForce }: { readonly text: string; readonly inForce?: RestartOnly | undefined },
) {
  for (const { at, sentence } of faultsBetween(settings)) inputs.fault(at, sentence)
  const found = (await resolved(settings, inputs)) as Found
  const { refresh, retry, alerts, log, share } = found
  const wanted = { ...directoriesOf(found, inputs), http: found.http || null }
  const { runtimeDirectory, stateDirectory, http } = inForce ?? wanted
  const { service, pair } = describedService(settings)
  return {
    service,
    pair: { ...pair, ...(await pairOf(found, inputs)) },
    request: await requestOf(found, inputs),
    policy: { maxAgeMs: refresh.maxAge, initialDelayMs: retry.initialDelay, maxDelayMs: retry.maxDelay },
    tokenFiles: tokenFilesOf(found, { runtimeDirectory, stateDirectory }, inputs),
    /** `mode` and `group`: of a socket of the daemon's own. `allow`, both lists empty: the mode alone decides. */
    ipc: found.ipc,
    /** Null: it is off. */
    http: http && (wanted.http ?? http),
    alerts: {
      /** Ages of an alert at which it is repeated. */
      remindAfterMs: alerts.remindAfter,
      /** Null: never. */
      noTokenAfterMs: alerts.noTokenAfter,
      contact: alerts.contact,
    },
    log,
    /** Null: this host is by itself. */
    share: share && (await shareOf(share, inputs)),
    /** The daemon's own sockets are in it: `ownSockets` of `host/paths.ts`. */
    runtimeDirectory,
    stateDirectory,
    read: {
      /** The configuration file. */
      file: inputs.configFile,
      /** The document in JSON, to compare: another text, if somebody changed a setting. May hold secrets. */
      document: new Secret(text),
      /** All files that were read: `versionOf` says whether one of them has changed. */
      files: [...new Set([inputs.configFile, ...Object.values(inputs.files)])],
      /** Names of systemd credentials among the secret sources, which systemd loads at the start only. */
      systemdCredentials: inputs.credentials,
      /** Settings that differ from those of the running daemon, and are not in force before a restart. */
      needsRestart: inForce === undefined ? [] : needingRestart(wanted, inForce),
      /** Things that are allowed and unwise, one sentence each, for the log and for `check`. */
      warnings: inputs.warnings,
      /** Settings whose secret only the daemon sees: this configuration lacks them. */
      unseen: inputs.unseen,
    },
  }
}

function needingRestart(wanted: RestartOnly, inForce: RestartOnly): string[] {
  const names = ['runtimeDirectory', 'stateDirectory'] as const
  const isSwitched = (wanted.http === null) !== (inForce.http === null)
  return [...names.filter((name) => wanted[name] !== inForce[name]), ...(isSwitched ? ['http'] : [])]
}

/** The service and the shape of its request: all that needs no file and no secret. */
export function describedService({ baseUrl: given, service }: Pick<Settings, 'baseUrl' | 'service'>) {
  const { tokenUrl, lifetime, refusals, refusedBy, use, send, names, token, assertion } = service
  const baseUrl = new URL(given).href.replace(/\/+$/, '')
  const isPath = tokenUrl.startsWith('/')
  const kind = assertion?.file === null ? ('signed' as const) : ('ready' as const)
  return {
    service: {
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
    },
    pair: { send, names, token, assertion: assertion && { kind, as: assertion.as } },
  }
}

/** The service of the interface description at this base URL. */
export function standardService(baseUrl = 'https://api.example.com') {
  return describedService({ baseUrl, service: v.parse(serviceSchema(), {}) })
}

/** The settings whose files belong to the pair. */
const OF_PAIR = /^(?:credentials|service|request\.clientCertificate)\./
/** RFC 9110, section 5.5: visible characters, blanks and tabs within. */
const HEADER_VALUE = /^(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?$/

async function pairOf({ credentials, request, service }: Found, inputs: Inputs) {
  const { apiKey, apiSecret, expiresAt } = credentials
  const { send, parameters, headers, assertion } = service
  const sent = send === 'headers' ? [apiKey, apiSecret] : []
  for (const value of [...sent, ...Object.values(headers)])
    if (!HEADER_VALUE.test(value instanceof Secret ? value.reveal() : String(value)))
      inputs.fault('service.headers', 'have a value that no HTTP header can have: write visible characters')
  const own = request.clientCertificate
  const clientCertificate = own && (await ownCertificate('request.clientCertificate', own, inputs))
  const files = Object.entries(inputs.files).flatMap(([at, path]) => (OF_PAIR.test(at) ? path : []))
  return {
    /** Null: the account is identified by a ready-made assertion alone. */
    apiKey,
    /** Null: the service takes none. */
    apiSecret,
    /** PEM, with the certificates between it and its authority. */
    clientCertificate,
    parameters,
    headers,
    /** Not null exactly where `send` is `assertion`. */
    assertion: assertion && assertionOf(assertion, inputs),
    /** When it ends, and the life of its certificate, in ms since the epoch; null: not known, none. */
    ends: {
      credentialsMs: expiresAt,
      certificate: clientCertificate && certificateLife(clientCertificate.cert),
    },
    /** Files that it was read from; the configuration file, where no other holds a part of it. */
    files: files.length === 0 ? [inputs.configFile] : files,
  }
}

/** Type, curve and length of a key. */
const KEYS_OF = {
  RS256: /^rsa {2}[2-9]\d{3}/,
  PS256: /^rsa\S* {2}[2-9]\d{3}/,
  ES256: /^ec prime256v1/,
  EdDSA: /^ed25519/,
}

function assertionOf(given: NonNullable<Found['service']['assertion']>, { fault }: Inputs) {
  const { file, type, key, lifetime, as, ...signed } = given
  /** Signed by another program; `source/` reads the file at each request. Its content and path are not the pair's. */
  if (file !== null) return { kind: 'ready' as const, file, as, type }
  const found = privateKeyOf(key?.reveal() ?? '')
  const { namedCurve = '', modulusLength = 0 } = found?.asymmetricKeyDetails ?? {}
  const facts = `${found?.asymmetricKeyType} ${namedCurve} ${modulusLength}`
  if (found !== null && !KEYS_OF[given.algorithm].test(facts)) {
    const sentence = `holds a key (${found.asymmetricKeyType}) that is not for ${given.algorithm} (RSA: 2048 bits or more)`
    fault('service.assertion.key', `${sentence}: set service.assertion.algorithm`)
  }
  /** Signed by the daemon (RFC 7523). `key`: PEM or JWK, fit for the algorithm. */
  return {
    ...signed,
    kind: 'signed' as const,
    key: key ?? new Secret(''),
    lifetimeMs: lifetime,
    as: as === 'grant' ? as : ('client' as const),
  }
}

/** A certificate to be presented, with its key; null: there is none, or not both can be read. */
async function ownCertificate(
  at: string,
  { certFile: cert, key }: { certFile: string | null; key: Secret | null },
  { fault, warn }: Inputs,
) {
  if (!cert || !key?.reveal()) return null
  // Else the first request would end the daemon. TLS takes fewer keys than can be read.
  const context = createSecureContext({ ca: null, isBuiltInTrusted: false }, { cert, key })
  const isTaken = await context.then(() => true, fallbackOnSystemError(false))
  if (!isTaken)
    return fault(`${at}.certFile`, 'is not that of its key, or TLS takes neither: name two that fit')
  const { fromMs, endMs } = certificateLife(cert)!
  if (fromMs > Date.now() || endMs < Date.now()) {
    const [from, end] = [fromMs, endMs].map((ms) => new Date(ms).toISOString().slice(0, 10))
    warn(`${at}.certFile`, `is valid from ${from} to ${end}: have it renewed, or set the clock of this host`)
  }
  return { cert, key }
}

async function requestOf({ request }: Found, inputs: Inputs) {
  const { trust, caFile, proxy, timeout, connectTimeout } = request
  const bundle = inputs.env['SSL_CERT_FILE'] || '/etc/ssl/certs/ca-certificates.crt'
  const system = trust === 'system' ? await inputs.certificates('request.trust', bundle) : null
  const texts = [system, caFile].filter((text) => text !== null)
  return {
    timeoutMs: timeout,
    connectTimeoutMs: connectTimeout,
    /** Further authorities, PEM, as the start or the reload read them; null: none. */
    ca: texts.length === 0 ? null : texts.join('\n'),
    /** Node's own list is trusted, too. */
    isBuiltInTrusted: trust === 'built-in',
    /** Null: that of HTTPS_PROXY and NO_PROXY; false: none. */
    proxy,
  }
}

/** No two settings write to one path, none to a file that is read or the daemon's own, nor where systemd writes. */
function tokenFilesOf({ tokenFiles, service }: Found, of: ReturnType<typeof directoriesOf>, inputs: Inputs) {
  const { configFile, files, fault, warn } = inputs
  const own = (['runtimeDirectory', 'stateDirectory'] as const).flatMap((name) =>
    ['', ...Object.values(OWN_FILES[name])].map((file) => join(of[name], file)),
  )
  const sockets = Object.values(ownSockets(of.runtimeDirectory))
  const taken = new Set([...own, ...sockets, configFile, ...Object.values(files), service.assertion?.file])
  return tokenFiles.map(({ owner, group, ...file }, index) => {
    const at = `tokenFiles[${index}]`
    const path = resolve(of.runtimeDirectory, file.path)
    if (path.startsWith('/run/kyc-tokend/') && !path.startsWith(`${of.runtimeDirectory}/`))
      fault(`${at}.path`, 'is where systemd alone writes: give the name alone, such as "token"')
    if (taken.has(path))
      fault(`${at}.path`, `is ${path}, which is the daemon's own, is read, or is named twice: change it`)
    taken.add(path)
    if ((file.mode & 0o004) !== 0)
      warn(`${at}.mode`, 'lets every user of this host read the token: set "0640" and a group')
    /** `uid` and `gid`: null: as the file is created. */
    return { ...file, path, uid: owner, gid: group }
  })
}

async function shareOf({ timeout, tls, ...share }: NonNullable<Found['share']>, inputs: Inputs) {
  const { key, servers } = share
  const bytes = Buffer.byteLength(key?.reveal() ?? '')
  // A reader of the store must not be able to try all secrets.
  if (bytes > 0 && bytes < 16) inputs.fault('share.key', `is shorter than 16 bytes: ${MAKE_KEY}`)
  const none = { caFile: null, serverName: null, certFile: null, key: null }
  const given = typeof tls === 'object' ? tls : none
  const own = await ownCertificate('share.tls', given, inputs)
  const isPlain = tls === false || servers.some((server) => 'path' in server)
  const { caFile: ca, serverName } = given
  return {
    /**
     * `servers`: one server, all sentinels of one master, nodes of one cluster, or one Unix socket. `sentinel`: not
     * null: the servers are sentinels. `key`: a part of the seal; null: the account's secret alone.
     */
    ...share,
    /** PEM texts; null: without TLS. */
    tls: isPlain ? null : { ca, serverName, cert: own?.cert ?? null, key: own?.key ?? null },
    /** For one command. */
    timeoutMs: timeout,
  }
}

function directoriesOf(
  { runtimeDirectory, stateDirectory }: Pick<Found, 'runtimeDirectory' | 'stateDirectory'>,
  { env, fault }: Inputs,
) {
  if (env['RUNTIME_DIRECTORY'])
    for (const [at, path] of Object.entries({ runtimeDirectory, stateDirectory }))
      if (path !== null) fault(at, 'is for a daemon without systemd, which makes it: leave it out')
  const identity = { env, uid: process.geteuid!() }
  const wanted = runtimeDirectory ?? runtimeDirectoryOf(identity)
  return { runtimeDirectory: wanted, stateDirectory: stateDirectory ?? stateDirectoryOf(identity) }
}
