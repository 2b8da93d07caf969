// A connection to Redis, a Sentinel's master or a cluster, with options that limit the time a hung server can
// take. The only importer of the client library.
//
// A bundle has the default export of a CommonJS library and none of its names.
import library, { type Cluster, type Redis, type RedisOptions } from 'iovalkey'
import type { ShareConfig } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import { createSecureContext } from '../lib/crypto.ts'
import { StoreError, type StoreErrorKind } from './store.ts'

/** The settings that say how the store is reached. */
export type StoreConfig = Omit<ShareConfig, 'key' | 'host' | 'asks' | 'whenAlone'>

/** Time and chance. */
export interface Surroundings {
  readonly clock: Pick<Clock, 'sleep'>
  readonly random: () => number
}

/** A server that owes an answer and has sent nothing for this time hangs; its socket is closed. */
const SOCKET_TIMEOUT_MS = 2_500
const KEEP_ALIVE_MS = 5_000
const RETRY = { fromMs: 100, toMs: 5_000, deniedMs: 60_000 }
const MAX_MESSAGE_LENGTH = 300

/** Connects, and reconnects until it is closed. Commands fail at once while there is no connection. */
export async function connect(settings: StoreConfig, { clock, random }: Surroundings) {
  /** Why there is no connection; a refused password stays the reason until a connection is made. */
  let lastError: StoreError | null = null
  /**
   * Connections since the last valid answer of the server: the library does not count those that were made.
   */
  let useless = 0
  const retryMs = (attempts: number): number => {
    useless += 1
    if (lastError?.kind === 'denied') return RETRY.deniedMs
    return Math.min(RETRY.toMs, RETRY.fromMs * 2 ** Math.max(attempts, useless)) * (0.5 + random() / 2)
  }
  const common = await commonOptions(settings)
  const client: Redis | Cluster = settings.cluster
    ? new library.Cluster(nodesOf(settings), {
        redisOptions: common,
        enableOfflineQueue: false,
        clusterRetryStrategy: retryMs,
        maxRedirections: 3,
      })
    : new library.Redis({
        ...common,
        ...targetOf(settings, common),
        db: settings.database,
        retryStrategy: retryMs,
        sentinelRetryStrategy: retryMs,
      })
  const contact = new AbortController()
  const firstContact = clock.sleep(settings.timeoutMs, contact.signal)
  client.on('error', (error: unknown) => {
    const found = storeErrorOf(error, settings)
    if (lastError?.kind !== 'denied' || found.kind === 'denied') lastError = found
    contact.abort()
  })
  client.on('ready', () => {
    lastError = null
    contact.abort()
  })
  return {
    client,
    /**
     * Resolves when the connection was first made or first failed, and no later than after `share.timeout`.
     */
    firstContact,
    /**
     * An error of a command as a StoreError; names the reason why there is no connection, if that is known.
     */
    errorOf(error: unknown): StoreError {
      if (client.status === 'ready') return storeErrorOf(error, settings)
      return lastError ?? storeErrorOf(new Error(NO_CONNECTION), settings)
    },
    /**
     * Call it when the server has answered correctly: if the connection is lost, the next one is made soon.
     */
    understood: (): void => {
      useless = 0
    },
    close: () => client.disconnect(),
  }
}

/** The options of every connection, also of those to the nodes of a cluster. */
async function commonOptions({ user, password, tls, timeoutMs }: StoreConfig): Promise<RedisOptions> {
  return {
    ...(tls !== null && { tls: await tlsOptions(tls) }),
    ...(user !== null && { username: user }),
    ...(password !== null && { password: password.reveal() }),
    connectionName: 'kyc-tokend',
    connectTimeout: Math.max(timeoutMs, SOCKET_TIMEOUT_MS),
    commandTimeout: timeoutMs,
    socketTimeout: SOCKET_TIMEOUT_MS,
    keepAlive: KEEP_ALIVE_MS,
    // A command that waits for a connection would ask for a lease that is no longer wanted.
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    // Reconnects without sending the command again: another server is the master now, or this one still loads
    // its data.
    reconnectOnError: ({ message }) => (/^(READONLY|LOADING)/.test(message) ? 1 : false),
  }
}

function targetOf(settings: StoreConfig, { tls }: RedisOptions): RedisOptions {
  const { servers, sentinel, timeoutMs } = settings
  if (sentinel === null) return { ...servers[0] }
  return {
    sentinels: nodesOf(settings),
    name: sentinel.name,
    ...(sentinel.user !== null && { sentinelUsername: sentinel.user }),
    ...(sentinel.password !== null && { sentinelPassword: sentinel.password.reveal() }),
    ...(tls !== undefined && { sentinelTLS: tls, enableTLSForSentinelMode: true }),
    sentinelCommandTimeout: timeoutMs,
  }
}

function nodesOf({ servers }: StoreConfig): { host: string; port: number }[] {
  return servers.flatMap((server) => ('path' in server ? [] : [{ host: server.host, port: server.port }]))
}

async function tlsOptions(tls: NonNullable<StoreConfig['tls']>): Promise<NonNullable<RedisOptions['tls']>> {
  const { ca, serverName, cert, key } = tls
  return {
    // Said here, so that NODE_TLS_REJECT_UNAUTHORIZED of some environment does not hand the password to
    // anybody.
    rejectUnauthorized: true,
    secureContext: await createSecureContext({ ca }, cert && key ? { cert, key: key.reveal() } : null),
    ...(serverName !== null && { servername: serverName }),
  }
}

function storeErrorOf(error: unknown, { tls }: Pick<StoreConfig, 'tls'>): StoreError {
  const message = innermostMessage(error).slice(0, MAX_MESSAGE_LENGTH)
  const [, hint] =
    HINTS.find(([pattern, , isWithTls]) => isWithTls === (tls !== null) && pattern.test(message)) ?? []
  return new StoreError(kindOf(message), hint === undefined ? message : `${message}: ${hint}`)
}

const NO_CONNECTION = 'no connection yet'
/** Messages of the library and of OpenSSL, and what to do about each; with or without TLS. */
const HINTS: readonly (readonly [RegExp, string, boolean])[] = [
  [
    /wrong version number|packet length too long|before secure TLS|no connection yet|ETIMEDOUT/,
    'if the server speaks no TLS, set share.tls to false; else name its TLS port in share.servers',
    true,
  ],
  [/unable to (get|verify)|self.signed/, 'name the file of its authority in share.tls.caFile', true],
  [/does not match certificate/, 'set share.tls.serverName to a name in its certificate', true],
  [/alert/, 'it refuses the certificate of this host: check share.tls.certFile and share.tls.key', true],
  // The reset that follows such an alert may come before it is read.
  [
    /ECONNRESET|EPIPE/,
    'if it lasts, the server may want a certificate of this host: share.tls.certFile and share.tls.key',
    true,
  ],
  [/Protocol error|RESP type/, 'if the server speaks TLS, set share.tls to true', false],
]

function kindOf(message: string): StoreErrorKind {
  return /\b(NOAUTH|WRONGPASS|NOPERM)\b|user executing the script can't/.test(message) ? 'denied' : 'lost'
}

/** A cluster reports that no node can be reached, and why as a further error inside. */
function innermostMessage(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  if (error instanceof AggregateError && error.message === '') return innermostMessage(error.errors[0])
  const { lastNodeError } = error as { lastNodeError?: unknown }
  return lastNodeError instanceof Error ? lastNodeError.message : error.message
}
