// Resolves `share`: servers, secrets and certificates of the fleet's store, and the rules across its settings.
import { resolve } from 'node:path'
import { certificateProblem } from '../lib/crypto.ts'
import type { Secret } from '../lib/secret.ts'
import { isLoopbackHost } from './base-url.ts'
import type { Inputs } from './inputs.ts'
import type { Diagnostics } from './issues.ts'
import type { ServerAddress } from './schema-parts.ts'
import type { Settings } from './schema.ts'

type ShareInput = NonNullable<Settings['share']>

interface ShareContext {
  readonly directory: string
  /** Null: there is none, or it cannot be read here. */
  readonly apiSecret: Secret | null
  /** The account has a secret, or a key that signs. */
  readonly hasSecret: boolean
  readonly inputs: Inputs
  readonly diagnostics: Diagnostics
}

const MIN_KEY_BYTES = 16
/** A reader of the store could find a shorter secret by trying all. */
const MIN_SECRET_LENGTH = 16

/** Resolves `share`. */
export async function resolveShare(input: ShareInput, context: ShareContext) {
  const { directory, inputs, apiSecret, hasSecret, diagnostics } = context
  const { timeout, sentinel, ...settings } = input
  /** One server, all sentinels of one master, nodes of one cluster, or one Unix socket (absolute). */
  const servers: readonly ServerAddress[] = input.servers.map((server) =>
    'path' in server ? { path: resolve(directory, server.path) } : server,
  )
  const config = {
    ...settings,
    servers,
    /** If set, the servers are sentinels. */
    sentinel: sentinel && {
      ...sentinel,
      password: (await inputs.secret('share.sentinel.password', sentinel.password)) ?? null,
    },
    /** Null: without TLS. PEM texts, read when the configuration was. */
    tls: await resolveTls(input.tls ?? !hasUnixSocket(servers), context),
    password: (await inputs.secret('share.password', input.password)) ?? null,
    /** For one command. */
    timeoutMs: timeout,
    /** A part of the key with which records are encrypted. */
    key: (await inputs.secret('share.key', input.key)) ?? null,
  }
  checkServers(config, diagnostics.fault)
  if (!hasSecret && input.key === null)
    diagnostics.fault(
      'share.key',
      'is missing, and the account has no secret with which the shared token could be encrypted: make one with `openssl rand -hex 32`',
    )
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

type TlsInput = Exclude<NonNullable<ShareInput['tls']>, boolean>

async function resolveTls(input: NonNullable<ShareInput['tls']>, context: ShareContext) {
  if (input === false) return null
  const { caFile = null, serverName = null, ...own }: Partial<TlsInput> = input === true ? {} : input
  const ca = await context.inputs.certificates('share.tls.caFile', caFile)
  return { ca, serverName, ...(await resolveCertificate(own, context)) }
}

/** The certificate that is presented, and its key; null: none. */
async function resolveCertificate(
  { certFile = null, key: source = null, keyFile = null }: Partial<TlsInput>,
  { inputs, diagnostics }: ShareContext,
): Promise<{ cert: string | null; key: Secret | null }> {
  if (source !== null && keyFile !== null)
    diagnostics.fault('share.tls.keyFile', 'is beside share.tls.key, which says the same: leave it out')
  const [keyAt, keySource] =
    source === null && keyFile !== null ? ['share.tls.keyFile', { file: keyFile }] : ['share.tls.key', source]
  if ((certFile === null) !== (keySource === null))
    diagnostics.fault(
      certFile === null ? 'share.tls.certFile' : keyAt,
      'is missing beside the other one: a certificate needs its key, so set both or none',
    )
  const cert = await inputs.certificates('share.tls.certFile', certFile)
  if (cert === null || keySource === null) return { cert, key: null }
  const key = await inputs.privateKey(keyAt, keySource, () => undefined)
  if (key === undefined) return { cert, key: null }
  const problem = certificateProblem(cert, key.reveal(), Date.now())
  if (problem !== undefined) diagnostics.fault('share.tls.certFile', `the file ${certFile} ${problem}`)
  return { cert, key }
}

type ShareConfig = Awaited<ReturnType<typeof resolveShare>>

/** The rules across the settings. */
function checkServers(config: ShareConfig, fault: Diagnostics['fault']): void {
  const { servers, sentinel, cluster, database, key, asks, whenAlone } = config
  const isSeveral = sentinel !== null || cluster
  if (hasUnixSocket(servers) && (servers.length > 1 || isSeveral))
    fault('share.servers', 'has a Unix socket beside other servers, a sentinel or a cluster: name it alone')
  else if (servers.length > 1 && !isSeveral)
    fault(
      'share.servers',
      'has several servers, which are neither sentinels nor a cluster: name one, or set share.sentinel or share.cluster',
    )
  checkTls(config, fault)
  if (sentinel !== null && cluster)
    fault(
      'share.cluster',
      'is true beside share.sentinel: servers are either nodes or sentinels; leave one out',
    )
  if (cluster && database !== 0) fault('share.database', 'is not 0, and a cluster has no other: leave it out')
  if (key !== null && Buffer.byteLength(key.reveal()) < MIN_KEY_BYTES)
    fault('share.key', `is shorter than ${MIN_KEY_BYTES} bytes: make one with \`openssl rand -hex 32\``)
  if (!asks && whenAlone === 'fetch')
    fault(
      'share.asks',
      'is false and share.whenAlone is "fetch": such a host would never have a token of its own; set share.whenAlone to "wait"',
    )
}

/** A password must not cross the network in the clear. */
function checkTls({ servers, tls, password, sentinel }: ShareConfig, fault: Diagnostics['fault']): void {
  if (hasUnixSocket(servers)) {
    if (tls !== null) fault('share.tls', 'is set, and a Unix socket has no TLS: leave it out')
    return
  }
  const hosts = servers.flatMap((server) => ('host' in server ? server.host : []))
  const away = hosts.find((host) => !isLoopbackHost(host))
  if (tls !== null || away === undefined || !(password ?? sentinel?.password)) return
  const exposed = password === null ? 'share.sentinel.password' : 'share.password'
  fault(
    'share.tls',
    `is false and ${away} is not this host: ${exposed} would cross the network in the clear. Set share.tls, or leave ${exposed} out`,
  )
}
