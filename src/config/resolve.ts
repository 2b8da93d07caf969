// Makes the configuration of a document whose shape was judged: defaults, durations, paths, ids, secrets. Plain code, run at every load.
import type { Stats } from 'node:fs'
import { dirname, join, resolve } from 'node:path'

import { parseDuration } from '../lib/duration.ts'
import { certificatesIn } from '../lib/pem.ts'
import { runtimeDirectoryOf, stateDirectoryOf } from '../lib/places.ts'
import type { Secret } from '../lib/secret.ts'
import { idOf, type AccountKind } from './accounts.ts'
import { normaliseBaseUrl } from './base-url.ts'
import type { Config, SocketConfig, TokenFileConfig } from './config.ts'
import { defaults } from './defaults.ts'
import type { Verdicts } from './faults.ts'
import { permissionFaults, readFile } from './read-file.ts'
import type { ConfigInput } from './schema.ts'
import { readSecret, type SecretContext, type SecretSource } from './secrets.ts'

type Part<T> = T extends readonly (infer Element)[]
  ? readonly (Part<Element> | undefined)[]
  : T extends object
    ? { readonly [Key in keyof T]?: Part<T[Key]> | undefined }
    : T
/** A document without the values that were found faulty. */
export type SoundPart = Omit<Part<ConfigInput>, 'credentials'> & {
  readonly credentials?: { readonly apiKey?: SecretSource; readonly apiSecret?: SecretSource } | undefined
}
type SocketInput = Part<NonNullable<ConfigInput['ipc']>>

export interface ResolveContext extends Omit<SecretContext, 'directory'> {
  /** The configuration file, absolute, and what its descriptor told. */
  readonly file: string
  readonly stats: Stats
  readonly verdicts: Verdicts
  /** In place of what is configured. */
  readonly runtimeDirectory?: string | undefined
}

/** Longest path of a Unix socket, in bytes (unix(7): 108 with the NUL at its end). */
const MAX_SOCKET_PATH_BYTES = 107

/**
 * The configuration, its `warnings` still empty. Faults go to `verdicts`; where there are any, here or before, what
 * is returned is not to be used.
 */
export async function resolveConfig(input: SoundPart, context: ResolveContext): Promise<Config> {
  const { file, verdicts } = context
  const directory = dirname(file)
  const runtimeDirectory =
    context.runtimeDirectory ??
    directoryOr(input.runtimeDirectory, { directory, otherwise: runtimeDirectoryOf(context) })
  const stateDirectory = directoryOr(input.stateDirectory, {
    directory,
    otherwise: stateDirectoryOf(context),
  })
  const outputs = { runtimeDirectory, verdicts, claims: [] }
  const credentials = resolveCredentials(input, { ...context, directory })
  judgeConfigFile(input, context)
  const config: Config = {
    file,
    baseUrl: input.baseUrl === undefined ? '' : normaliseBaseUrl(input.baseUrl),
    credentials: credentials as { apiKey: Secret; apiSecret: Secret },
    systemdCredentials: systemdCredentialsOf(input),
    request: resolveRequest(input.request, { ...context, directory }),
    refresh: { maxAgeMs: durationMs(input.refresh?.maxAge ?? defaults.refresh.maxAge) },
    retry: resolveRetry(input.retry, verdicts),
    tokenFiles: await resolveTokenFiles(input.tokenFiles ?? defaults.tokenFiles, outputs),
    ipc: await resolveSocket('ipc', input.ipc ?? {}, outputs),
    http: input.http === false ? null : await resolveSocket('http', input.http ?? {}, outputs),
    alerts: { remindAfterMs: remindersMs(input.alerts?.remindAfter ?? defaults.alerts.remindAfter) },
    log: resolveLog(input.log),
    runtimeDirectory,
    stateDirectory,
    warnings: [],
  }
  judgePaths(config, { ...outputs, input, directory })
  return config
}

function directoryOr(
  path: string | null | undefined,
  { directory, otherwise }: { directory: string; otherwise: string },
): string {
  return path === undefined || path === null ? otherwise : resolve(directory, path)
}

function resolveLog(input: SoundPart['log']): Config['log'] {
  return { level: input?.level ?? defaults.log.level, format: input?.format ?? defaults.log.format }
}

function durationMs(text: string): number {
  const ms = parseDuration(text)
  if (ms === undefined) throw new Error('a duration that was judged good is none')
  return ms
}

function remindersMs(texts: readonly (string | undefined)[]): number[] {
  const ms = texts.filter((text) => text !== undefined).map(durationMs)
  return [...new Set(ms)].toSorted((a, b) => a - b)
}

function resolveRetry(input: SoundPart['retry'], verdicts: Verdicts): Config['retry'] {
  const maxDelayMs = durationMs(input?.maxDelay ?? defaults.retry.maxDelay)
  const initialDelayMs = durationMs(input?.initialDelay ?? defaults.retry.initialDelay)
  if (input?.initialDelay !== undefined && initialDelayMs > maxDelayMs)
    verdicts.fault('retry.initialDelay', 'must not be longer than retry.maxDelay: lower it or raise that')
  return { initialDelayMs: Math.min(initialDelayMs, maxDelayMs), maxDelayMs }
}

function resolveRequest(
  input: SoundPart['request'],
  context: ResolveContext & { directory: string },
): Config['request'] {
  const timeoutMs = durationMs(input?.timeout ?? defaults.request.timeout)
  const connectTimeoutMs = durationMs(input?.connectTimeout ?? defaults.request.connectTimeout)
  const caFile = input?.caFile ?? null
  const ca = caFile === null ? null : readCertificates(resolve(context.directory, caFile), context)
  return { timeoutMs, connectTimeoutMs: Math.min(connectTimeoutMs, timeoutMs), ca }
}

function readCertificates(path: string, { verdicts, uid }: ResolveContext): string | null {
  const refuse = (sentence: string): null => {
    verdicts.fault('request.caFile', `${path} ${sentence}`)
    return null
  }
  const reading = readFile(path)
  if (reading.kind === 'absent') return refuse('is not there: name a PEM file of certificates, or null')
  if (reading.kind === 'unreadable') return refuse(reading.sentence)
  for (const sentence of permissionFaults(path, reading.stats, { uid, holdsSecret: false })) refuse(sentence)
  const pem = reading.bytes.toString('utf8')
  if (certificatesIn(pem).length > 0) return pem
  return refuse(
    'holds no certificate that can be read: name a PEM file with "-----BEGIN CERTIFICATE-----" in it',
  )
}

function resolveCredentials(
  input: SoundPart,
  context: ResolveContext & { directory: string },
): { apiKey: Secret | undefined; apiSecret: Secret | undefined } {
  const read = (name: 'apiKey' | 'apiSecret'): Secret | undefined => {
    const source = input.credentials?.[name]
    if (source === undefined) return undefined
    return readSecret(source, { at: `credentials.${name}`, verdicts: context.verdicts, context })
  }
  return { apiKey: read('apiKey'), apiSecret: read('apiSecret') }
}

function sourcesOf(input: SoundPart): SecretSource[] {
  return [input.credentials?.apiKey, input.credentials?.apiSecret].filter((source) => source !== undefined)
}

function systemdCredentialsOf(input: SoundPart): string[] {
  return sourcesOf(input).flatMap((source) =>
    typeof source === 'object' && 'credential' in source ? [source.credential] : [],
  )
}

function isFileSource(source: SecretSource): source is { file: string } {
  return typeof source === 'object' && 'file' in source
}

function judgeConfigFile(input: SoundPart, { file, stats, uid, verdicts }: ResolveContext): void {
  const holdsSecret = sourcesOf(input).some((source) => typeof source === 'string')
  for (const sentence of permissionFaults(file, stats, { uid, holdsSecret }))
    verdicts.fault('', `the configuration file ${sentence}`)
}

/** A path that something is written to, and the setting that says so. */
interface Claim {
  readonly at: string
  readonly path: string
}
interface OutputContext {
  readonly runtimeDirectory: string
  readonly claims: Claim[]
  readonly verdicts: Verdicts
}

async function resolveTokenFiles(
  inputs: NonNullable<SoundPart['tokenFiles']>,
  { runtimeDirectory, verdicts, claims }: OutputContext,
): Promise<TokenFileConfig[]> {
  const files: TokenFileConfig[] = []
  for (const [index, input] of inputs.entries()) {
    if (input?.path === undefined) continue
    const at = `tokenFiles[${index}]`
    const mode = Number.parseInt(input.mode ?? defaults.tokenFile.mode, 8)
    if ((mode & 0o004) !== 0)
      verdicts.warn(
        `${at}.mode`,
        'lets every user of this host read the token: "0640" with a group lets only its members',
      )
    if ((mode & 0o020) !== 0)
      verdicts.warn(
        `${at}.mode`,
        'lets the group write the file, which is restored then: "0640" lets it read',
      )
    const path = resolve(runtimeDirectory, input.path)
    claims.push({ at: `${at}.path`, path })
    files.push({
      path,
      format: input.format ?? defaults.tokenFile.format,
      mode,
      uid: await idOrNull('user', input.owner ?? null, { at: `${at}.owner`, verdicts }),
      gid: await idOrNull('group', input.group ?? null, { at: `${at}.group`, verdicts }),
    })
  }
  return files
}

async function resolveSocket(
  at: 'ipc' | 'http',
  input: SocketInput,
  { runtimeDirectory, verdicts, claims }: OutputContext,
): Promise<SocketConfig> {
  const path = resolve(runtimeDirectory, input.path ?? defaults[at].path)
  claims.push({ at: `${at}.path`, path })
  const bytes = Buffer.byteLength(path)
  if (bytes > MAX_SOCKET_PATH_BYTES)
    verdicts.fault(
      `${at}.path`,
      `is ${bytes} bytes long with its directory, and a socket's path has at most ${MAX_SOCKET_PATH_BYTES}: choose a shorter one, or a shorter runtimeDirectory`,
    )
  const mode = Number.parseInt(input.mode ?? defaults.socket.mode, 8)
  const allow = {
    uids: await idsOf('user', input.allow?.users ?? [], { at: `${at}.allow.users`, verdicts }),
    gids: await idsOf('group', input.allow?.groups ?? [], { at: `${at}.allow.groups`, verdicts }),
  }
  if ((mode & 0o002) !== 0 && allow.uids.length + allow.gids.length === 0)
    verdicts.warn(
      `${at}.mode`,
      'lets every user of this host take the token: set "0660" and a group, or allow',
    )
  const maxConnections = input.maxConnections ?? defaults.socket.maxConnections
  return {
    path,
    mode,
    gid: await idOrNull('group', input.group ?? null, { at: `${at}.group`, verdicts }),
    allow,
    maxConnections,
    maxConnectionsPerUser: Math.min(
      input.maxConnectionsPerUser ?? defaults.socket.maxConnectionsPerUser,
      maxConnections,
    ),
    maxRequestsPerSecond: input.maxRequestsPerSecond ?? defaults.socket.maxRequestsPerSecond,
  }
}

async function idsOf(
  kind: AccountKind,
  accounts: readonly (string | number | undefined)[],
  options: { at: string; verdicts: Verdicts },
): Promise<number[]> {
  const ids = new Set<number>()
  for (const [index, account] of accounts.entries()) {
    const id = await idOrNull(kind, account ?? null, { ...options, at: `${options.at}[${index}]` })
    if (id !== null) ids.add(id)
  }
  return [...ids]
}

async function idOrNull(
  kind: AccountKind,
  account: string | number | null,
  { at, verdicts }: { at: string; verdicts: Verdicts },
): Promise<number | null> {
  if (account === null) return null
  const id = await idOf(kind, account)
  if (id !== undefined) return id
  const make = kind === 'user' ? 'useradd' : 'groupadd'
  verdicts.fault(
    at,
    `there is no ${kind} ${String(account)} on this host: make it (${make} --system ${String(account)}), or write its number if only a directory service knows it`,
  )
  return null
}

/** What the daemon itself writes into its directories. */
const OWN_FILES = {
  runtimeDirectory: ['alert.json', 'judged', 'kept.json', 'lock', 'token.front'],
  stateDirectory: ['key', 'lock', 'memory.json'],
} as const

/** No two things may be written to one path, and nothing over what is read. */
function judgePaths(
  config: Config,
  { input, directory, claims, verdicts }: OutputContext & { input: SoundPart; directory: string },
): void {
  const taken = new Map<string, string>()
  const reads = sourcesOf(input).flatMap((source) => (isFileSource(source) ? [source.file] : []))
  if (typeof input.request?.caFile === 'string') reads.push(input.request.caFile)
  for (const path of reads) taken.set(resolve(directory, path), 'a file that the configuration is read from')
  taken.set(config.file, 'the configuration itself')
  for (const own of ['runtimeDirectory', 'stateDirectory'] as const)
    for (const name of OWN_FILES[own]) taken.set(join(config[own], name), 'a file of the daemon itself')
  taken.set(config.runtimeDirectory, 'the runtime directory')
  taken.set(config.stateDirectory, 'the state directory')
  for (const { at, path } of claims) {
    const holder = taken.get(path)
    if (holder !== undefined) verdicts.fault(at, `is ${path}, and that is ${holder}: choose another path`)
    else taken.set(path, `${at} too`)
  }
}
