// Resolves `share`: servers, secrets and certificates of the fleet's store, and the rules between its keys.
import type { Secret } from '../lib/secret.ts'
import { isLoopbackHost } from './base-url.ts'
import type { Inputs } from './inputs.ts'
import type { Diagnostics } from './issues.ts'
import type { ServerAddress } from './schema-share.ts'
import type { Settings } from './schema.ts'

type ShareInput = NonNullable<Settings['share']>

const MIN_KEY_BYTES = 16
/** A reader of the store could find a shorter secret by trying all. */
const MIN_SECRET_LENGTH = 16

/**
 * Resolves `share`. `apiSecret`: null if there is none, or if it cannot be read here. `hasSecret`: the
 * account has a secret, or a key that signs.
 */
export async function resolveShare(
  input: ShareInput,
  { apiSecret, hasSecret, inputs }: { apiSecret: Secret | null; hasSecret: boolean; inputs: Inputs },
) {
  const { timeout, sentinel, ...settings } = input
  /** One server, all sentinels of one master, nodes of one cluster, or one Unix socket (absolute). */
  const servers: readonly ServerAddress[] = input.servers.map((server) =>
    'path' in server ? { path: inputs.pathOf(server.path) } : server,
  )
  const config = {
    ...settings,
    servers,
    /** If set, the servers are sentinels. */
    sentinel: sentinel && {
      ...sentinel,
      password: await inputs.secret('share.sentinel.password', sentinel.password),
    },
    /** Null: without TLS. PEM texts, read when the configuration was. */
    tls: input.tls === true && hasUnixSocket(servers) ? null : await resolveTls(input.tls, inputs),
    password: await inputs.secret('share.password', input.password),
    /** For one command. */
    timeoutMs: timeout,
    /** A part of the key with which records are encrypted. */
    key: await inputs.secret('share.key', input.key),
  }
  checkServers(config, inputs.fault)
  if (input.key !== null) return config
  if (!hasSecret)
    inputs.fault(
      'share.key',
      'is missing, and no secret of the account is in the seal of the shared token: ' +
        'make one with `openssl rand -hex 32`, the same on all hosts',
    )
  const length = apiSecret?.reveal().length ?? MIN_SECRET_LENGTH
  if (length < MIN_SECRET_LENGTH)
    inputs.warn(
      'credentials.apiSecret',
      `has ${length} characters: a reader of the store could try them all. Set share.key`,
    )
  return config
}

function hasUnixSocket(servers: readonly ServerAddress[]): boolean {
  return servers.some((server) => 'path' in server)
}

type TlsSettings = Partial<Exclude<ShareInput['tls'], boolean>>

async function resolveTls(input: ShareInput['tls'], inputs: Inputs) {
  if (input === false) return null
  const settings: TlsSettings = input === true ? {} : input
  const { caFile = null, serverName = null, certFile = null } = settings
  const [keyAt, source] = keySourceOf(settings, inputs)
  if ((certFile === null) !== (source === null))
    inputs.fault(
      certFile === null ? 'share.tls.certFile' : keyAt,
      'is missing beside the other one: a certificate needs its key, so set both or none',
    )
  const ca = await inputs.certificates('share.tls.caFile', caFile)
  /** The certificate that is presented; null: none. */
  const none = { ca, serverName, cert: null, key: null }
  if (certFile === null || source === null) return none
  const presented = await inputs.certificateWithKey(['share.tls.certFile', certFile], [keyAt, source])
  return { ...none, ...presented }
}

/** The source of the key and its key path. `keyFile` says it as versions before 2.0.0 have it. */
function keySourceOf({ key = null, keyFile = null }: TlsSettings, { fault }: Inputs) {
  if (keyFile === null) return ['share.tls.key', key] as const
  if (key !== null) fault('share.tls.keyFile', 'is beside share.tls.key, which says the same: leave it out')
  return ['share.tls.keyFile', { file: keyFile }] as const
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
      'has several servers, which are neither sentinels nor a cluster: ' +
        'name one, or set share.sentinel or share.cluster',
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
      'is false and share.whenAlone is "fetch": such a host would never have a token of its own; ' +
        'set share.whenAlone to "wait"',
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
    `is false and ${away} is not this host: ${exposed} would cross the network in the clear. ` +
      `Set share.tls, or leave ${exposed} out`,
  )
}
