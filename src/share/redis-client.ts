// A connection to Redis, a Sentinel's master or a cluster, with options that limit the time a hung server can
// take. The only importer of the client library.
import { setDefaultAutoSelectFamilyAttemptTimeout } from 'node:net'
// A bundle has the default export of a CommonJS library and none of its names.
import library, { type Cluster, type Redis, type RedisOptions } from 'iovalkey'
import type { ShareConfig } from '../config/config.ts'
import { createSecureContext } from '../config/certificates.ts'
import { StoreError } from './store.ts'

/** The settings that say how the store is reached. */
export type StoreConfig = Omit<ShareConfig, 'key' | 'host' | 'asks' | 'whenAlone'>

/** A server that owes an answer and has sent nothing for this time hangs; its socket is closed. */
const SOCKET_TIMEOUT_MS = 2_500
/** A connection is made again after half of this time or more. */
const RETRY_MS = { lost: 1_500, denied: 60_000 }
const MAX_MESSAGE_LENGTH = 300

/**
 * A connection, once `client.connect()` is called; it is made again until it is closed. Commands fail at once
 * while there is none.
 */
export async function createConnection(settings: StoreConfig, random: () => number) {
  /** Why there is no connection; a refused password stays the reason until a connection is made. */
  let lastError: StoreError | null = null
  const retryMs = (): number => (RETRY_MS[lastError?.kind ?? 'lost'] * (1 + random())) / 2
  const common = await commonOptions(settings)
  const client: Redis | Cluster = settings.cluster
    ? new library.Cluster(nodesOf(settings), {
        redisOptions: common,
        lazyConnect: true,
        enableOfflineQueue: false,
        clusterRetryStrategy: retryMs,
      })
    : new library.Redis({
        ...common,
        ...targetOf(settings, common),
        db: settings.database,
        retryStrategy: retryMs,
        sentinelRetryStrategy: retryMs,
      })
  client.on('error', (error: Error) => {
    // Commands of the lost connection are given up: the reason came before.
    if (error.message.startsWith('Reached the max retries')) return
    const found = storeErrorOf(error)
    if (lastError?.kind !== 'denied' || found.kind === 'denied') lastError = found
  })
  client.on('ready', () => (lastError = null))
  return {
    client,
    /** An error of a command as a StoreError; without a connection, the reason for that. */
    errorOf: (error: unknown): StoreError =>
      client.status === 'ready'
        ? storeErrorOf(error)
        : (lastError ?? new StoreError('lost', 'no connection yet')),
  }
}

/** The options of every connection, also of those to the nodes of a cluster. */
async function commonOptions({ user, password, tls, timeoutMs }: StoreConfig): Promise<RedisOptions> {
  const connectTimeout = Math.max(timeoutMs, SOCKET_TIMEOUT_MS)
  // Each address of a name but the last has a third of it. The library cannot say it for one connection.
  setDefaultAutoSelectFamilyAttemptTimeout(Math.floor(connectTimeout / 3))
  return {
    family: 0,
    ...(tls !== null && { tls: await tlsOptions(tls) }),
    ...(user !== null && { username: user }),
    ...(password !== null && { password: password.reveal() }),
    connectionName: 'kyc-tokend',
    connectTimeout,
    commandTimeout: timeoutMs,
    socketTimeout: SOCKET_TIMEOUT_MS,
    lazyConnect: true,
    // A command that waits for a connection would ask for a lease that is no longer wanted.
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    // Connects again, and does not repeat the command: another server is the master now, or this one still
    // loads its data.
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
    // Said here, so that NODE_TLS_REJECT_UNAUTHORIZED in some environment hands the password to nobody.
    rejectUnauthorized: true,
    secureContext: await createSecureContext({ ca }, cert && key ? { cert, key: key.reveal() } : null),
    ...(serverName !== null && { servername: serverName }),
  }
}

function storeErrorOf(error: unknown): StoreError {
  const message = innermostMessage(error).slice(0, MAX_MESSAGE_LENGTH)
  const isDenied = /\b(NOAUTH|WRONGPASS|NOPERM)\b|user executing the script can't/.test(message)
  return new StoreError(isDenied ? 'denied' : 'lost', message)
}

/** A name with several addresses, and a cluster, have the reason in an error inside. */
function innermostMessage(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  if (error instanceof AggregateError && error.message === '') return innermostMessage(error.errors[0])
  const { lastNodeError } = error as { lastNodeError?: unknown }
  return lastNodeError instanceof Error ? lastNodeError.message : error.message
}
