// One connection to Redis or Valkey, to a Sentinel's master or to a cluster, with options that limit the time
// that a hung server can take. The only importer of the client library.
import type { Cluster, Redis, RedisOptions } from 'iovalkey'
import { createSecureContext } from '../config/secrets.ts'
import type { ShareConfig } from '../config/config.ts'
import { withTimeout, type Clock } from '../lib/clock.ts'

/** The settings that say how the store is reached. */
export type StoreSettings = Omit<ShareConfig, 'key' | 'asks' | 'whenAlone'>
/** Each command rejects with a StoreError, after `share.timeout` at the latest. */
export type Store = Awaited<ReturnType<typeof openStore>>
/** The texts of both keys; '' is none. */
interface Texts {
  readonly record: string
  readonly lease: string
}

/** `lost`: not reached, slow, of no use, or takes no writes; `denied`: wrong password or rights. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  readonly kind: 'lost' | 'denied'
  constructor(kind: StoreError['kind'], message: string) {
    super(message)
    this.kind = kind
  }
}

const LONGEST_TEXT = 65_536
/** Bytes that no host writes. The library decodes UTF-8, so they would never compare equal. */
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
export async function openStore(
  settings: StoreSettings,
  { clock, random }: { clock: Pick<Clock, 'sleep'>; random: () => number },
) {
  /** Why there is no connection. */
  let lastError = new StoreError('lost', 'no connection yet')
  const client = await createClient(settings, () => RETRY_MS * random())
  client.on('error', (error: Error) => {
    // The library gives commands of a lost connection up: the reason came before.
    if (!error.message.startsWith('Reached the max retries')) lastError = storeErrorOf(error)
  })
  // The library reports errors by that event.
  await withTimeout(
    settings.timeoutMs,
    client.connect().catch(() => undefined),
    clock,
  )

  async function send<T>(command: () => Promise<T>): Promise<T> {
    if (client.status !== 'ready') throw lastError
    try {
      const reply = await withTimeout(settings.timeoutMs, command(), clock)
      if (reply !== undefined) return reply
    } catch (error) {
      throw storeErrorOf(error)
    }
    throw new StoreError('lost', 'no answer within share.timeout')
  }

  return {
    /** The texts of both keys, and the store's clock at that moment. */
    async read({ record, lease }: Texts): Promise<Texts & { readonly nowMs: number }> {
      const texts = [record, lease].map((key) => ['getrange', key, 0, LONGEST_TEXT - 1])
      return repliesOf(await send((): Promise<unknown> => client.multi([['time'], ...texts]).exec()))
    },
    /** Puts `text` in the place of `former`, or removes it (''). False: another text is there by now. */
    async swap(key: string, former: string, text: string, keepMs: number): Promise<boolean> {
      return (await send(() => client.eval(SWAP, 1, key, former, text, Math.max(1, Math.ceil(keepMs))))) === 1
    },
    /** The server's description of itself (the command INFO). */
    info: (): Promise<string> => send(() => client.info()),
    /** Calls the function each time that a connection is made. */
    onReady: (call: () => void): void => void client.on('ready', call),
    close: (): void => client.disconnect(),
  }
}

/** The servers as people read them. */
export function formatServers(servers: StoreSettings['servers']): string {
  return servers.map((one) => ('path' in one ? one.path : `${one.host}:${one.port}`)).join(', ')
}

/** For `ACL SETUSER`: the commands and the keys of this prefix, and nothing else. */
export function aclLine({ user, prefix, database, cluster }: StoreSettings): string {
  const commands = '-@all +ping +auth +hello +info +client +multi +exec +time +getrange +eval +set +del'
  const more = `${database === 0 ? '' : ' +select'}${cluster ? ' +cluster|slots +cluster|info' : ''}`
  return `ACL SETUSER ${user ?? 'default'} on >PASSWORD resetkeys ~${prefix}:3:* resetchannels ${commands}${more}`
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
  const own = { ...options, db: database, retryStrategy: retryMs }
  if (sentinel === null) return new library.Redis({ ...own, ...servers[0] })
  return new library.Redis({
    ...own,
    sentinels: nodes,
    name: sentinel.name,
    ...(sentinel.user !== null && { sentinelUsername: sentinel.user }),
    ...(sentinel.password !== null && { sentinelPassword: sentinel.password.reveal() }),
    ...(tls && { sentinelTLS: tls, enableTLSForSentinelMode: true }),
    sentinelCommandTimeout: timeoutMs,
    sentinelRetryStrategy: retryMs,
  })
}

async function tlsOptions(settings: StoreSettings['tls']): Promise<RedisOptions['tls'] | null> {
  if (settings === null) return null
  const { ca, serverName, cert, key } = settings
  return {
    // Said here, so that NODE_TLS_REJECT_UNAUTHORIZED in some environment hands the password to nobody.
    rejectUnauthorized: true,
    secureContext: await createSecureContext({ ca }, cert && key ? { cert, key: key.reveal() } : null),
    ...(serverName !== null && { servername: serverName }),
  }
}

/** The server may be another program. Throws a StoreError. */
function repliesOf(replies: unknown): Texts & { readonly nowMs: number } {
  const [time, record, lease] = (Array.isArray(replies) ? replies : []) as (readonly unknown[] | null)[]
  const [seconds, micros] = Array.isArray(time?.[1]) ? (time[1] as unknown[]) : []
  const nowMs = Number(seconds) * 1_000 + Number(micros) / 1_000
  if (!Number.isFinite(nowMs)) throw new StoreError('lost', 'The server answers what no Redis does')
  const text = (reply: typeof record): string => {
    const [error, value] = Array.isArray(reply) ? (reply as unknown[]) : []
    return error === null && typeof value === 'string' && !FOREIGN_BYTES.test(value) ? value : ''
  }
  return { nowMs, record: text(record), lease: text(lease) }
}

/** A name with several addresses, a cluster and a transaction have the reason in an error inside. */
function storeErrorOf(error: unknown): StoreError {
  const { errors, lastNodeError, previousErrors } = error as Record<string, unknown>
  const inner = [errors, lastNodeError, previousErrors, error].flat().find((one) => one instanceof Error)
  const message = (inner?.message ?? String(error)).slice(0, MAX_MESSAGE_LENGTH)
  const isDenied = /\b(NOAUTH|WRONGPASS|NOPERM)\b|user executing the script can't/.test(message)
  return new StoreError(isDenied ? 'denied' : 'lost', message)
}
