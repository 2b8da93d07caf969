// The settings of `share`: servers, TLS, secrets, and the rules across them.
import { resolve } from 'node:path'

import { isLoopbackHost } from './base-url.ts'
import { isKeyOf } from '../lib/crypto.ts'
import { Secret } from '../lib/secret.ts'
import type { ShareConfig } from './config.ts'
import { readCertificates, readInput, type InputContext } from './read-file.ts'
import { readSecret } from './secrets.ts'
import type { ServerAddress } from './schema-parts.ts'
import type { ValidPart } from './validate.ts'

type ShareInput = NonNullable<ValidPart['share']>

const MIN_KEY_BYTES = 16
/** A shorter one can be found by trying, by a reader of the store. */
const MIN_SECRET_LENGTH = 16

export function resolveShare(
  input: ValidPart['share'],
  { apiSecret, context }: { apiSecret: Secret | undefined; context: InputContext },
): ShareConfig | null {
  if (input === null) return null
  const { timeout, ...settings } = input
  const secret = (name: 'password' | 'key'): Secret | null =>
    secretOrNull(input[name], `share.${name}`, context)
  const servers = (input.servers ?? []).flatMap((server): ServerAddress | [] => {
    if (server === undefined) return []
    return 'path' in server ? { path: resolve(context.directory, server.path) } : server
  })
  const config: ShareConfig = {
    ...settings,
    servers,
    sentinel: resolveSentinel(input.sentinel, context),
    tls: resolveTls(input.tls ?? !hasUnixSocket(servers), context),
    password: secret('password'),
    timeoutMs: timeout,
    key: secret('key'),
  }
  checkServers(config, context)
  checkSecrets(config, { input, apiSecret, context })
  if (!config.asks && config.whenAlone === 'fetch')
    context.diagnostics.fault(
      'share.asks',
      'is false and share.whenAlone is "fetch": such a host would never have a token of its own; set share.whenAlone to "wait"',
    )
  return config
}

function hasUnixSocket(servers: readonly ServerAddress[]): boolean {
  return servers.some((server) => 'path' in server)
}

function secretOrNull(source: ShareInput['password'], at: string, context: InputContext): Secret | null {
  return source === null ? null : (readSecret(source, { at, context }) ?? null)
}

function resolveSentinel(input: ShareInput['sentinel'], context: InputContext): ShareConfig['sentinel'] {
  if (input?.name === undefined) return null
  return {
    name: input.name,
    user: input.user,
    password: secretOrNull(input.password, 'share.sentinel.password', context),
  }
}

function resolveTls(input: NonNullable<ShareInput['tls']>, context: InputContext): ShareConfig['tls'] {
  if (input === false) return null
  const { caFile = null, serverName = null, certFile = null, keyFile = null } = input === true ? {} : input
  if ((certFile === null) !== (keyFile === null))
    context.diagnostics.fault(
      `share.tls.${certFile === null ? 'certFile' : 'keyFile'}`,
      'is missing beside the other one: a certificate needs its key, so set both or none',
    )
  const cert = readCertificates(certFile, { at: 'share.tls.certFile', context })
  const key = keyFile === null ? null : readKey(keyFile, { cert, context })
  return { ca: readCertificates(caFile, { at: 'share.tls.caFile', context }), serverName, cert, key }
}

function readKey(
  path: string,
  { cert, context }: { cert: string | null; context: InputContext },
): Secret | null {
  const at = 'share.tls.keyFile'
  const remedy = 'name a PEM file with the key of share.tls.certFile'
  const pem = readInput(path, { at, holdsSecret: true, remedy, context })?.toString('utf8')
  if (pem === undefined) return null
  if (!/-----BEGIN [A-Z ]*PRIVATE KEY-----/.test(pem))
    context.diagnostics.fault(at, `holds no private key: ${remedy}`)
  else if (cert !== null && !isKeyOf(pem, cert))
    context.diagnostics.fault(at, `holds another key, or one that a passphrase protects: ${remedy}`)
  return new Secret(pem)
}

function checkServers(
  { servers, sentinel, cluster, tls, database }: ShareConfig,
  { diagnostics }: InputContext,
): void {
  if (hasUnixSocket(servers)) {
    if (servers.length > 1 || sentinel !== null || cluster)
      diagnostics.fault(
        'share.servers',
        'has a Unix socket beside other servers, a sentinel or a cluster: name it alone',
      )
    if (tls !== null) diagnostics.fault('share.tls', 'is set, and a Unix socket has no TLS: leave it out')
  } else if (servers.length > 1 && sentinel === null && !cluster)
    diagnostics.fault(
      'share.servers',
      'has several servers, which are neither sentinels nor a cluster: name one, or set share.sentinel or share.cluster',
    )
  if (sentinel !== null && cluster)
    diagnostics.fault(
      'share.cluster',
      'is true beside share.sentinel: servers are either nodes or sentinels; leave one out',
    )
  if (cluster && database !== 0)
    diagnostics.fault('share.database', 'is not 0, and a cluster has no other: leave it out')
}

function checkSecrets(
  config: ShareConfig,
  options: { input: ShareInput; apiSecret: Secret | undefined; context: InputContext },
): void {
  const { input, apiSecret, context } = options
  const { servers, tls, password, sentinel, key } = config
  const exposed = password === null ? sentinel?.password && 'share.sentinel.password' : 'share.password'
  const away = servers.flatMap((server) =>
    'host' in server && !isLoopbackHost(server.host) ? server.host : [],
  )
  if (tls === null && away[0] !== undefined && typeof exposed === 'string')
    context.diagnostics.fault(
      'share.tls',
      `is false and ${away[0]} is not this host: ${exposed} would cross the network in the clear. Set share.tls, or leave ${exposed} out`,
    )
  if (key !== null && Buffer.byteLength(key.reveal()) < MIN_KEY_BYTES)
    context.diagnostics.fault(
      'share.key',
      `is shorter than ${MIN_KEY_BYTES} bytes: make one with \`openssl rand -hex 32\``,
    )
  const length = apiSecret?.reveal().length ?? MIN_SECRET_LENGTH
  if (length < MIN_SECRET_LENGTH && !input.key)
    context.diagnostics.warn(
      'credentials.apiSecret',
      `has ${length} characters: a reader of the store could try them all. Set share.key`,
    )
}
