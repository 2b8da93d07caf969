// The shared store in Redis or Valkey: three short-lived keys and one channel for each account.
import { createHash } from 'node:crypto'
import { connect, type StoreConfig, type Surroundings } from './redis-client.ts'
import { ACQUIRE, LOOK, WRITE } from './scripts.ts'
import { StoreError, type Expiring, type Pair, type Store } from './store.ts'

/** Subscribed connections send nothing by themselves: a ping shows whether the server still answers. */
const PING_EVERY_MS = 1_000
/** Version of the keys: daemons with different versions do not share a token. */
export const KEY_VERSION = 2

/** Fences follow from the store's clock: one of the year 5138 or later would leave no room for others. */
const MAX_MS = 1e14

/** Opens the store of one account. Connects in the background. */
export async function openRedisStore(
  settings: StoreConfig,
  { accountKey, ...surroundings }: { accountKey: string } & Surroundings,
) {
  // A cluster keeps all keys with the same text in braces in one slot.
  const keyOf = (name: string): string => `${settings.prefix}:${KEY_VERSION}:{${accountKey}}:${name}`
  /** Each script gets all keys, in this order. */
  const keys = ['record', 'lease', 'seen'].map(keyOf)
  const channel = keyOf('changed')
  const connection = await connect(settings, surroundings)
  const { client } = connection

  async function send<T>(command: () => Promise<T>): Promise<T> {
    await connection.firstContact
    try {
      const reply = await command()
      connection.understood()
      return reply
    } catch (error) {
      throw connection.errorOf(error)
    }
  }
  const run = async (script: string, drop: string | null, ...values: readonly (string | number)[]) =>
    send(async () => replyOf(await client.eval(script, keys.length, ...keys, sha1Of(drop), ...values)))

  const store: Store = {
    server: formatServers(settings.servers),
    contact: connection.firstContact,
    async look({ known, drop }) {
      const { nowMs, verdict, text, number } = await run(LOOK, drop, formatPair(known), channel)
      if (verdict !== 'known' && verdict !== 'other') throw nonsense()
      return { nowMs, hosts: number, isKnown: verdict === 'known', record: text }
    },
    async acquire({ known, id, leaseMs, drop }) {
      const { nowMs, verdict, text, number } = await run(ACQUIRE, drop, formatPair(known), id, leaseMs)
      if (verdict === 'yours') return { nowMs, verdict }
      if (verdict === 'newer' && text !== null) return { nowMs, verdict, record: text }
      if (verdict === 'taken' && text !== null) return { nowMs, verdict, lease: text, leftMs: number }
      throw nonsense()
    },
    async write({ id, record, kept, drop }) {
      const { nowMs, verdict, text } = await run(
        WRITE,
        drop,
        ...valuesOf(record),
        id,
        ...valuesOf(kept),
        channel,
      )
      if (verdict !== 'written') throw nonsense()
      return { nowMs, record: text }
    },
    async watch(listener, signal) {
      // A connection of its own: a subscribed one takes no other commands. The other one reports its errors,
      // too.
      const { client: messages, understood, close } = await connect(settings, surroundings)
      messages.on('message', () => {
        understood()
        listener.onMessage()
      })
      const subscribe = (): void =>
        void messages
          .subscribe(channel)
          .then(understood)
          .then(() => listener.onConnection(), ignore)
      messages.on('ready', subscribe)
      messages.on('close', () => listener.onConnection())
      client.on('ready', () => listener.onConnection())
      if (messages.status === 'ready') subscribe()
      while (!signal.aborted) {
        await surroundings.clock.sleep(PING_EVERY_MS, signal)
        if (messages.status === 'ready') messages.ping().then(understood, ignore)
      }
      close()
    },
    close: () => connection.close(),
  }
  return {
    ...store,
    /** The server's description of itself (the command INFO). */
    info: async () => send(() => client.info()),
    /** Deletes every key of the account. */
    forget: async () => send(() => client.del(...keys)),
  }
}

/** The servers as people read them. */
export function formatServers(servers: StoreConfig['servers']): string {
  return servers
    .map((server) => ('path' in server ? server.path : `${server.host}:${server.port}`))
    .join(', ')
}

const ignore = (): void => undefined

const formatPair = ({ fence, id }: Pair): string => `${fence} ${id}`
const valuesOf = (given: Expiring | null): [string, number] => [given?.text ?? '', given?.keepMs ?? 0]
const sha1Of = (text: string | null): string =>
  text === null ? '' : createHash('sha1').update(text).digest('hex')

/** Checks an answer: the server may be another program, or controlled by an attacker. Throws StoreError. */
function replyOf(value: unknown) {
  const isReply = Array.isArray(value) && value.every((part) => part === null || typeof part === 'string')
  const [seconds, micros, verdict, text = null, number] = isReply ? (value as (string | null)[]) : []
  const nowMs = Number(seconds ?? undefined) * 1_000 + Number(micros ?? undefined) / 1_000
  const reply = { nowMs, verdict, text, number: Number(number ?? undefined) }
  const isSane = nowMs >= 0 && nowMs <= MAX_MS && Number.isSafeInteger(reply.number) && reply.number >= 0
  if (!isSane) throw nonsense()
  return reply
}

function nonsense(): StoreError {
  return new StoreError('lost', 'The server answers what no script does')
}
