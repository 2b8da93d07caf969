// The shared store in Redis or Valkey: one hash, three short-lived keys and one channel for each account.
import { randomHex } from '../lib/crypto.ts'
/** The shortest time between two requests that clients of the fleet cause. */
export const CLIENT_INTERVAL_MS = 30_000
import { connect, type StoreConfig, type Surroundings } from './redis-client.ts'
import { ACQUIRE, PUT, READ, RELEASE, RELEASED, RESTORE } from './scripts.ts'
import { StoreError, type Lease, type RecordHead, type Store, type StoredRecord } from './store.ts'

/** Subscribed connections send nothing by themselves: a ping shows whether the server still answers. */
const PING_EVERY_MS = 1_000
/** Version of the keys: daemons with different versions do not share a token. */
const VERSION = 1

/** Each script gets all keys, in this order. */
const KEY_NAMES = ['record', 'fence', 'lease', 'pace', 'pause'] as const

/** Opens the store of one account. Connects in the background. `host` is how this host is named to the others. */
export async function openRedisStore(
  settings: StoreConfig,
  { accountKey, host, ...surroundings }: { accountKey: string; host: string } & Surroundings,
) {
  // A cluster keeps all keys with the same text in braces in one slot.
  const keyOf = (name: string): string => `${settings.prefix}:${VERSION}:{${accountKey}}:${name}`
  const keys = KEY_NAMES.map(keyOf)
  const channel = keyOf('changed')
  const owner = `${host}/${randomHex(8)}`
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
  const run = async (script: string, ...values: readonly (string | number)[]): Promise<unknown> =>
    send(() => client.eval(script, keys.length, ...keys, ...values))

  const store: Store = {
    server: formatServers(settings.servers),
    async acquireLease({ cause, leaseMs, adoptedFence, highestFence, ignored }) {
      const { record, lease, pause, pace } = ignored
      const fences = [adoptedFence, highestFence, record]
      const reply = await run(ACQUIRE, owner, leaseMs, ...fences, cause, lease, pause, Number(pace))
      return leaseFrom(replyOf(reply))
    },
    async put({ isClientPaced, ttlMs, sealed, ...head }) {
      const paceMs = isClientPaced ? CLIENT_INTERVAL_MS : 0
      const reply = await run(PUT, owner, ...valuesOf(head), ttlMs, sealed, paceMs, channel)
      const { verdict, nowMs, number, rest } = replyOf(reply)
      if (verdict === 'stored') return { verdict, hosts: number }
      if (verdict !== 'stale') throw nonsense()
      return { verdict, record: recordIn(nowMs, rest) }
    },
    async release(pause) {
      const values = pause === null ? [0, 0, 0, 0, ''] : [pause.pauseMs, ...valuesOf(pause), pause.sealed]
      await run(RELEASE, owner, ...values, channel)
    },
    async restore({ ttlMs, sealed, ...head }) {
      await run(RESTORE, ...valuesOf(head), ttlMs, sealed)
    },
    async read({ known, highestFence }) {
      const { verdict, nowMs, number: hosts, rest } = replyOf(await run(READ, known, highestFence))
      if (verdict !== 'read') throw nonsense()
      const [fence, isPlanted] = rest.slice(4)
      const record = recordIn(nowMs, rest)
      return { nowMs, fence: numberIn(fence), isPlanted: isPlanted === '1', record, hosts }
    },
    async watch(listener, signal) {
      client.on('ready', () => listener.onConnected?.())
      // A connection of its own: a subscribed one takes no other commands. The other one reports its errors, too.
      const { client: pushes, understood, close } = await connect(settings, surroundings)
      pushes.on('message', (_channel: string, message: string) => {
        understood()
        if (message === RELEASED) return listener.onReleased()
        const record = messageFrom(message)
        if (record !== null) listener.onRecord(record)
      })
      const subscribe = (): void =>
        void pushes
          .subscribe(channel)
          .then(understood)
          .then(() => listener.onSubscribed(), ignore)
      pushes.on('ready', subscribe)
      if (pushes.status === 'ready') subscribe()
      while (!signal.aborted) {
        await surroundings.clock.sleep(PING_EVERY_MS, signal)
        if (pushes.status === 'ready') pushes.ping().then(understood, ignore)
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

function valuesOf({ fence, atMs, notBeforeMs }: RecordHead): readonly number[] {
  return [fence, atMs, notBeforeMs]
}

type Texts = readonly (string | null | undefined)[]

/** Checks an answer: the server may be another program, or controlled by an attacker. Throws StoreError. */
function replyOf(value: unknown) {
  const isReply = Array.isArray(value) && value.every((text) => text === null || typeof text === 'string')
  const [verdict, now, number, ...rest] = isReply ? (value as Texts) : []
  return { verdict, nowMs: numberIn(now), number: numberIn(number), rest }
}

function numberIn(text: Texts[number]): number {
  const number = Number(text ?? undefined)
  if (!Number.isFinite(number)) throw nonsense()
  return number
}
function nonsense(): StoreError {
  return new StoreError('lost', 'The server answers what no script does')
}

function leaseFrom({ verdict, nowMs, number, rest }: ReturnType<typeof replyOf>): Lease {
  const waitMs = Math.max(0, number)
  if (verdict === 'yours') return { verdict, nowMs, fence: number }
  if (verdict === 'paced') return { verdict, waitMs }
  if (verdict === 'taken') return { verdict, waitMs, holder: rest[0] ?? '' }
  const record = recordIn(nowMs, rest)
  if (record === null || (verdict !== 'newer' && verdict !== 'held' && verdict !== 'paused')) throw nonsense()
  return { verdict, waitMs, record }
}

function recordIn(nowMs: number, [fence, at, notBefore, sealed]: Texts): StoredRecord | null {
  if (!fence) return null
  const head = { fence: Number(fence), atMs: Number(at), notBeforeMs: Number(notBefore) }
  return { ...head, sealed: sealed ?? '', nowMs }
}

/** Anybody who may publish can send anything; null: not a record. */
function messageFrom(message: string): StoredRecord | null {
  // Limited, because a message of spaces alone would become an array that fills the memory.
  const [fence, now, ...rest] = message.split(' ', 5)
  const record = recordIn(Number(now), [fence, ...rest])
  return record !== null && Number.isFinite(record.fence) && Number.isFinite(record.nowMs) ? record : null
}
