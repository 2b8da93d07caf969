// Keeps one connection to Redis or Valkey, to a Sentinel's master or to a cluster, with options that limit the time
// that a hung server can take. It alone imports the client library.
import { randomUUID } from 'node:crypto'
import type { Cluster, Redis, RedisOptions } from 'iovalkey'
import { createSecureContext } from '../config/secrets.ts'
import type { ShareConfig } from '../config/config.ts'
import { withTimeout, type Clock } from '../lib/clock.ts'

/** These settings say how the store is reached. */
export type StoreSettings = Omit<ShareConfig, 'key' | 'asks' | 'whenAlone'>
/** Each command rejects with a StoreError, after `share.timeout` at the latest. */
export type Store = Awaited<ReturnType<typeof openStore>>
/** Both keys hold these texts; '' is none. */
interface Texts {
  readonly record: string
  readonly lease: string
}
interface Around {
  readonly clock: Pick<Clock, 'sleep'>
  readonly random: () => number
  /** It is called each time that a connection is made. */
  readonly onReady?: () => void
}

/** The store was not reached, is slow or of no use, takes no writes, or denies access. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  /** The password or the rights are wrong. */
  get isDenied(): boolean {
    return /\b(NOAUTH|WRONGPASS|NOPERM)\b|user executing the script can't/.test(this.message)
  }
}

const LONGEST_TEXT = 65_536
/** No host writes these bytes. The library decodes UTF-8, so they would never compare equal. */
const FOREIGN_BYTES = /[^A-Za-z0-9+/=]/

/** Another type, and foreign bytes, count as no text. */
const SWAP = `
local present = redis.pcall('GETRANGE', KEYS[1], 0, ${LONGEST_TEXT - 1})
if type(present) ~= 'string' or string.find(present, '[^%w+/=]') then present = '' end
if present ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1`

/** A connection is made again within this time. */
const RETRY_MS = 5_000
const MAX_MESSAGE_LENGTH = 300

/** Opens the store, waits for a connection for `share.timeout` at most, and goes on trying until it is closed. */
export async function openStore(settings: StoreSettings, { clock, random, onReady = () => {} }: Around) {
  /** It says why there is no connection. */
  let lastError = new StoreError('no connection yet')
  const client = await createClient(settings, () => RETRY_MS * random())
  client.on('ready', onReady)
  client.on('error', (error: Error) => {
    // The library gives commands of a lost connection up: the reason came before.
    if (!error.message.startsWith('Reached the max retries')) lastError = storeErrorOf(error)
  })
  // The library reports errors by that event.
  const connecting = client.connect().catch(() => undefined)
  await withTimeout(settings.timeoutMs, connecting, clock)

  async function send<T>(command: () => Promise<T>): Promise<T> {
    if (client.status !== 'ready') throw lastError
    const reply = await withTimeout(settings.timeoutMs, command(), clock).catch((error: unknown) => {
      throw storeErrorOf(error)
    })
    if (reply === undefined) throw new StoreError('no answer within share.timeout')
    return reply
  }

  return {
    /** Reads the texts of both keys, and the store's clock at that moment. */
    async read({ record, lease }: Texts): Promise<Texts & { readonly nowMs: number }> {
      const texts = [record, lease].map((key) => ['getrange', key, 0, LONGEST_TEXT - 1])
      return repliesOf(await send((): Promise<unknown> => client.multi([['time'], ...texts]).exec()))
    },
    /** Puts `text` in the place of `former`, or removes it (''). False: another text is there by now. */
    async swap(key: string, former: string, text: string, keepMs: number): Promise<boolean> {
      return (await send(() => client.eval(SWAP, 1, key, former, text, Math.max(1, Math.ceil(keepMs))))) === 1
    },
    /** The server describes itself (the command INFO). */
    info: (): Promise<string> => send(() => client.info()),
    close: (): void => client.disconnect(),
  }
}

/** Gives the servers as people read them. */
export function formatServers(servers: StoreSettings['servers']): string {
  return servers.map((one) => ('path' in one ? one.path : `${one.host}:${one.port}`)).join(', ')
}

/** Gives the line of rights: the commands and the keys of this prefix are allowed, and nothing else is. */
export function aclLine({ user, prefix, database, cluster }: StoreSettings): string {
  const commands = '-@all +ping +auth +hello +info +client +multi +exec +time +getrange +eval +set +del'
  const more = `${database === 0 ? '' : ' +select'}${cluster ? ' +cluster|slots +cluster|info' : ''}`
  return `ACL SETUSER ${user ?? 'default'} on >PASSWORD resetkeys ~${prefix}:3:* resetchannels ${commands}${more}`
}

/**
 * Connects, and uses every right that a host needs. Leaves no key behind. Throws no error of the store. The sentence
 * is without its subject, the store.
 */
export async function checkStore(
  settings: StoreSettings,
  around: Around,
): Promise<{ readonly level: 'ok' | 'fault'; readonly sentence: string }> {
  const key = `${settings.prefix}:3:{check-${randomUUID()}}:lease`
  const store = await openStore(settings, around)
  try {
    const info = await store.info()
    // A replica takes no writes.
    await store.swap(key, '', 'check', 1_000)
    const { lease } = await store.read({ record: key, lease: key })
    await store.swap(key, lease, '', 1_000)
    const field = (name: string) => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1]
    const valkey = field('valkey_version')
    const version = valkey === undefined ? `Redis ${field('redis_version')}` : `Valkey ${valkey}`
    return {
      level: 'ok',
      sentence: `is ${version}, role ${field('role')}, and lets this host read and write`,
    }
  } catch (error) {
    if (!(error instanceof StoreError)) throw error
    const reach = 'share.servers, the way from this host, and share.tls: false if the server speaks no TLS'
    const check = error.isDenied ? `share.user and share.password: ${aclLine(settings)}` : reach
    const sentence = `cannot be used at ${formatServers(settings.servers)}: ${error.message}. Check ${check}`
    return { level: 'fault', sentence }
  } finally {
    store.close()
  }
}

async function createClient(settings: StoreSettings, retryMs: () => number): Promise<Redis | Cluster> {
  // Only a daemon that shares loads it. A bundle has the default export of a CommonJS library and none of its names.
  const { default: library } = await import('iovalkey')
  const { servers, sentinel, cluster, database, timeoutMs, user, password } = settings
  const tls = await tlsOptions(settings.tls)
  const options: RedisOptions = {
    ...(tls && { tls }),
    ...(user !== null && { username: user }),
    ...(password !== null && { password: password.reveal() }),
    lazyConnect: true,
    commandTimeout: timeoutMs,
    // A server that owes an answer and has sent nothing for this time hangs.
    socketTimeout: 2_500,
    keepAlive: 5_000,
    // A command that waits for a connection would take a lease that nobody wants any more.
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    // Connects again: another server is the master by now, or this one still loads its data.
    reconnectOnError: ({ message }) => (/^(READONLY|LOADING)/.test(message) ? 1 : false),
  }
  const nodes = servers.flatMap((server) => ('path' in server ? [] : [{ ...server }]))
  if (cluster) {
    const common = { lazyConnect: true, enableOfflineQueue: false, clusterRetryStrategy: retryMs }
    return new library.Cluster(nodes, { ...common, redisOptions: options })
  }
  const throughSentinel = sentinel && {
    sentinels: nodes,
    name: sentinel.name,
    ...(sentinel.user !== null && { sentinelUsername: sentinel.user }),
    ...(sentinel.password !== null && { sentinelPassword: sentinel.password.reveal() }),
    ...(tls && { sentinelTLS: tls, enableTLSForSentinelMode: true }),
    sentinelCommandTimeout: timeoutMs,
    sentinelRetryStrategy: retryMs,
  }
  const place = throughSentinel ?? servers[0]
  return new library.Redis({ ...options, db: database, retryStrategy: retryMs, ...place })
}

async function tlsOptions(settings: StoreSettings['tls']): Promise<RedisOptions['tls'] | null> {
  if (settings === null) return null
  const { ca, serverName, cert, key } = settings
  return {
    // It is said here, so that NODE_TLS_REJECT_UNAUTHORIZED in some environment hands the password to nobody.
    rejectUnauthorized: true,
    secureContext: await createSecureContext({ ca }, cert && key ? { cert, key } : null),
    ...(serverName !== null && { servername: serverName }),
  }
}

/** The server may be another program. Throws a StoreError. */
function repliesOf(replies: unknown): Texts & { readonly nowMs: number } {
  const [time, ...texts] = (Array.isArray(replies) ? replies : []) as (readonly unknown[])[]
  const [seconds, micros] = String(time?.[1]).split(',')
  const nowMs = Number(seconds) * 1_000 + Number(micros) / 1_000
  if (!Number.isFinite(nowMs)) throw new StoreError('The server answers what no Redis does')
  const [record = '', lease = ''] = texts.map(([error, text]) =>
    error === null && typeof text === 'string' && !FOREIGN_BYTES.test(text) ? text : '',
  )
  return { nowMs, record, lease }
}

/** A name with several addresses, a cluster and a transaction have the reason in an error inside. */
function storeErrorOf(error: unknown): StoreError {
  const { errors, lastNodeError, previousErrors } = error as Record<string, unknown>
  const inner = [errors, lastNodeError, previousErrors, error].flat().find((one) => one instanceof Error)
  return new StoreError((inner?.message ?? String(error)).slice(0, MAX_MESSAGE_LENGTH))
}
