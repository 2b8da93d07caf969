// The settings of `share`: servers, TLS, secrets, and the rules across them.
import { resolve } from 'node:path'

import { isLoopbackHost } from './base-url.ts'
import { isKeyOf } from '../lib/crypto.ts'
import { Secret } from '../lib/secret.ts'
import type { ShareConfig } from './config.ts'
import type { Inputs } from './inputs.ts'
import { reportEach, type Diagnostics } from './issues.ts'
import type { ServerAddress } from './schema-parts.ts'
import type { ValidPart } from './validate.ts'

type ShareInput = NonNullable<ValidPart['share']>

interface ShareContext {
  readonly directory: string
  readonly apiSecret: Secret | undefined
  readonly inputs: Inputs
  readonly diagnostics: Diagnostics
}

const MIN_KEY_BYTES = 16
/** A shorter one can be found by trying, by a reader of the store. */
const MIN_SECRET_LENGTH = 16

/** One token for all hosts of the account, through Redis. */
export function resolveShare(input: ShareInput, context: ShareContext) {
  const { directory, inputs, apiSecret, diagnostics } = context
  const { timeout, sentinel, ...settings } = input
  /** One server, all sentinels of one master, nodes of one cluster, or one Unix socket (absolute). */
  const servers: readonly ServerAddress[] = (input.servers ?? [])
    .filter((server) => server !== undefined)
    .map((server) => ('path' in server ? { path: resolve(directory, server.path) } : server))
  const config = {
    ...settings,
    servers,
    /** The servers are sentinels then. */
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
    /** Mixed into the key of the seal. */
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
