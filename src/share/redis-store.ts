// The shared store in Redis or Valkey: three short-lived keys and one channel for each account.
import { createHash } from 'node:crypto'
import * as v from 'valibot'
import type { ShareConfig } from '../config/config.ts'
import { withTimeout, type Clock } from '../lib/clock.ts'
import { createConnection, type StoreConfig } from './redis-client.ts'
import { ACQUIRE, POLL, WRITE } from './scripts.ts'
import { StoreError, type Expiring, type Held, type Store } from './store.ts'

/** Version of the keys: daemons with different versions do not share a token. */
const KEY_VERSION = 2
/** Subscribed connections send nothing by themselves: a ping shows whether the server still answers. */
const PING_EVERY_MS = 1_000

interface RedisStore extends Store {
  /** The server's description of itself (the command INFO). */
  info(): Promise<string>
  /** Deletes every key of the account. */
  forget(): Promise<unknown>
}

/** Opens the store of one account, waits for a connection for `share.timeout` at most, and goes on trying. */
export async function openRedisStore(
  settings: StoreConfig,
  { accountKey, clock, random }: { accountKey: string; clock: Clock; random: () => number },
): Promise<RedisStore> {
  // A cluster keeps all keys with the same text in braces in one slot.
  const keyOf = (name: string): string => `${settings.prefix}:${KEY_VERSION}:{${accountKey}}:${name}`
  /** Each script gets all keys, in this order. */
  const keys = ['record', 'lease', 'seen'].map(keyOf)
  const channel = keyOf('changed')
  const { client, errorOf } = await createConnection(settings, random)
  const closed = new AbortController()
  // The client reports errors by an event.
  await withTimeout(settings.timeoutMs, client.connect().catch(ignore), clock)

  async function send<T>(command: () => Promise<T>): Promise<T> {
    try {
      return await command()
    } catch (error) {
      throw errorOf(error)
    }
  }
  async function run(script: string, drop: string | null, ...values: readonly (string | number)[]) {
    const sha1 = drop === null ? '' : createHash('sha1').update(drop).digest('hex')
    return heldOf(await send(() => client.eval(script, keys.length, ...keys, sha1, channel, ...values)))
  }

  /** On a connection of its own: a subscribed one takes no other commands. */
  async function listen(call: Parameters<Store['listen']>[0]): Promise<void> {
    const { client: messages } = await createConnection(settings, random)
    const reconnected = (): void => call('connection')
    messages.on('message', () => call('message'))
    messages.on('ready', () => void messages.subscribe(channel).then(reconnected, ignore))
    messages.on('close', reconnected)
    client.on('ready', reconnected)
    messages.connect().catch(ignore)
    while (!closed.signal.aborted) {
      await clock.sleep(PING_EVERY_MS, closed.signal)
      if (messages.status === 'ready') messages.ping().catch(ignore)
    }
    messages.disconnect()
  }

  return {
    server: formatServers(settings.servers),
    poll: ({ drop }) => run(POLL, drop),
    acquire: ({ known: { fence, id: knownId }, id, leaseMs, drop }) =>
      run(ACQUIRE, drop, `${fence} ${knownId}`, id, leaseMs),
    write: ({ id, record, kept, drop }) => run(WRITE, drop, ...valuesOf(record), id, ...valuesOf(kept)),
    listen: (call) => void listen(call),
    close() {
      closed.abort()
      client.disconnect()
    },
    info: () => send(() => client.info()),
    forget: () => send(() => client.del(...keys)),
  }
}

/** The servers as people read them. */
export function formatServers(servers: StoreConfig['servers']): string {
  return servers
    .map((server) => ('path' in server ? server.path : `${server.host}:${server.port}`))
    .join(', ')
}

/** Settings that decide which rights are needed. */
export type AclSettings = Pick<ShareConfig, 'user' | 'prefix' | 'database' | 'cluster'>

/** For `ACL SETUSER`: the commands, keys and channels of this prefix, and nothing else. */
export function aclLine({ user, prefix, database, cluster }: AclSettings): string {
  const commands =
    '-@all +ping +auth +hello +info +client +eval +evalsha +script +time +get +set +del +pttl ' +
    '+publish +subscribe +unsubscribe +pubsub|numsub'
  const select = database === 0 ? '' : ' +select'
  const slots = cluster ? ' +cluster|slots +cluster|info' : ''
  const all = `${prefix}:${KEY_VERSION}:*`
  const keys = `resetkeys ~${all} resetchannels &${all}`
  return `ACL SETUSER ${user ?? 'default'} on >PASSWORD ${keys} ${commands}${select}${slots}`
}

const ignore = (): void => undefined

const valuesOf = (entry: Expiring | null): [string, number] => [entry?.text ?? '', entry?.keepMs ?? 0]

/** Fences follow from this clock: one of the year 5138 or later, with more digits, would leave no room. */
const digits = v.pipe(v.string(), v.regex(/^\d{1,11}$/))
const text = v.nullable(v.string())
const count = v.pipe(v.number(), v.minValue(0))
/** The server may be another program, or controlled by an attacker. */
const reply = v.tuple([digits, digits, text, text, count, count])

/** Throws a StoreError if the answer is none of a script. */
function heldOf(answer: unknown): Held {
  const { success, output } = v.safeParse(reply, answer)
  if (!success) throw new StoreError('lost', 'The server answers what no script does')
  const [seconds, micros, record, lease, leaseLeftMs, hosts] = output
  return { nowMs: Number(seconds) * 1_000 + Number(micros) / 1_000, record, lease, leaseLeftMs, hosts }
}
