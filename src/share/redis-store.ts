// The shared store in Redis or Valkey: one hash, three short-lived keys and one channel for each account.
import { randomHex } from '../lib/hash.ts'
import {
  connect,
  type Connection,
  type RedisClient,
  type StoreConfig,
  type Surroundings,
} from './redis-client.ts'
import { ACQUIRE, FORGET, PUT, READ, RELEASE, RELEASED, RESTORE } from './scripts.ts'
import {
  StoreError,
  type Lease,
  type LeaseRequest,
  type Put,
  type PutRequest,
  type RecordHead,
  type Store,
  type StoredRecord,
  type StoreListener,
} from './store.ts'

/** Between two requests that clients caused. */
const CLIENT_PACE_MS = 30_000
/** Subscribed connections send nothing by themselves: a ping shows whether the server still answers. */
const PING_EVERY_MS = 1_000
/** Version of the keys: daemons with another one do not meet. */
const VERSION = 1

type Reply = readonly (string | null | undefined)[]
type Script = (...values: readonly (string | number)[]) => Promise<unknown>
const SCRIPTS = {
  shareAcquire: { lua: ACQUIRE, numberOfKeys: 5 },
  sharePut: { lua: PUT, numberOfKeys: 4 },
  shareRelease: { lua: RELEASE, numberOfKeys: 2 },
  shareRestore: { lua: RESTORE, numberOfKeys: 2 },
  shareRead: { lua: READ, numberOfKeys: 2 },
  shareForget: { lua: FORGET, numberOfKeys: 5 },
}
type Scripts = Readonly<Record<keyof typeof SCRIPTS, Script>>

/** The keys and the channel of an account. A cluster keeps them all in one slot. */
function keysOf(prefix: string, accountKey: string): Readonly<Record<KeyName, string>> {
  const begin = `${prefix}:${VERSION}:{${accountKey}}:`
  return Object.fromEntries(KEY_NAMES.map((name) => [name, `${begin}${name}`])) as Record<KeyName, string>
}
const KEY_NAMES = ['record', 'fence', 'lease', 'pace', 'pause', 'changed'] as const
type KeyName = (typeof KEY_NAMES)[number]

/** Opens the store of one account. Connects in the background. `host` is how this host is named to the others. */
export async function openRedisStore(
  settings: StoreConfig,
  { accountKey, host, ...surroundings }: { accountKey: string; host: string } & Surroundings,
): Promise<Store> {
  const keys = keysOf(settings.prefix, accountKey)
  const owner = `${host}/${randomHex(8)}`
  const connection = await connect(settings, surroundings)
  const scripts = defineScripts(connection.client)

  async function run(name: keyof Scripts, ...values: readonly (string | number)[]): Promise<Reply> {
    await connection.firstContact
    try {
      const reply = replyOf(name, await scripts[name](...values))
      connection.understood()
      return reply
    } catch (error) {
      throw error instanceof StoreError ? error : connection.errorOf(error)
    }
  }

  return {
    server: formatServers(settings.servers),

    async acquireLease({
      cause,
      leaseMs,
      adoptedFence,
      highestFence,
      ignored,
    }: LeaseRequest): Promise<Lease> {
      const { record, fence, lease, pace, pause } = keys
      const fences = [adoptedFence, highestFence, ignored.record] as const
      const values = [owner, leaseMs, ...fences, cause, ignored.lease, ignored.pause, Number(ignored.pace)]
      return leaseFrom(await run('shareAcquire', record, fence, lease, pace, pause, ...values))
    },

    async put({ isClientPaced, ...request }): Promise<Put> {
      const { record, fence, lease, pace, changed } = keys
      const paceMs = isClientPaced ? CLIENT_PACE_MS : 0
      const values = [request.ttlMs, request.sealed, paceMs, changed] as const
      const reply = await run('sharePut', record, fence, lease, pace, owner, ...headOf(request), ...values)
      if (reply[0] === 'stored') return { verdict: 'stored', hosts: Number(reply[2]) }
      return { verdict: 'stale', record: recordIn(reply) }
    },

    async release(pause): Promise<void> {
      const values = pause === null ? [0, 0, 0, 0, ''] : [pause.pauseMs, ...headOf(pause), pause.sealed]
      await run('shareRelease', keys.lease, keys.pause, owner, ...values, keys.changed)
    },

    async restore(request: PutRequest): Promise<void> {
      await run('shareRestore', keys.record, keys.fence, ...headOf(request), request.ttlMs, request.sealed)
    },

    async read({ known, highestFence }) {
      const reply = await run('shareRead', keys.record, keys.fence, known, highestFence)
      return {
        nowMs: Number(reply[1]),
        fence: numberIn(reply[7]),
        isPlanted: reply[8] === '1',
        record: recordIn(reply),
        hosts: Number(reply[2]),
      }
    },

    async watch(listener, signal) {
      const onReady = (): void => listener.onConnected?.()
      connection.client.on('ready', onReady)
      await watch(await connect(settings, surroundings), keys.changed, {
        ...surroundings,
        listener,
        signal,
      })
      connection.client.off('ready', onReady)
    },

    async forget() {
      const { record, fence, lease, pace, pause } = keys
      await run('shareForget', record, fence, lease, pace, pause)
    },

    close() {
      connection.close()
    },
  }
}

/** The servers as people read them. */
export function formatServers(servers: StoreConfig['servers']): string {
  return servers
    .map((server) => ('path' in server ? server.path : `${server.host}:${server.port}`))
    .join(', ')
}

function defineScripts(client: RedisClient): Scripts {
  for (const [name, definition] of Object.entries(SCRIPTS)) client.defineCommand(name, definition)
  return client as unknown as Scripts
}

/** A connection of its own: a subscribed one takes no other commands. */
async function watch(
  connection: Connection,
  channel: string,
  { listener, signal, clock }: { listener: StoreListener; signal: AbortSignal } & Surroundings,
): Promise<void> {
  const { client } = connection
  // Errors of this connection are those of the other one, too, which reports them.
  const ignore = (): void => undefined
  client.on('message', (_channel: string, message: string) => {
    connection.understood()
    if (message === RELEASED) return listener.onReleased()
    const record = messageFrom(message)
    if (record !== null) listener.onRecord(record)
  })
  const subscribed = (): void => {
    connection.understood()
    listener.onSubscribed()
  }
  const subscribe = (): void => void client.subscribe(channel).then(subscribed, ignore)
  client.on('ready', subscribe)
  if (client.status === 'ready') subscribe()
  while (!signal.aborted) {
    await clock.sleep(PING_EVERY_MS, signal)
    if (client.status === 'ready') client.ping().then(() => connection.understood(), ignore)
  }
  connection.close()
}

function headOf({ fence, atMs, notBeforeMs }: RecordHead): readonly number[] {
  return [fence, atMs, notBeforeMs]
}

/** The answers of each script; a script that is not here answers nothing that is read. */
const VERDICTS: Partial<Record<keyof Scripts, readonly unknown[]>> = {
  shareAcquire: ['newer', 'taken', 'held', 'paused', 'paced', 'yours'],
  sharePut: ['stored', 'stale'],
  shareRead: ['read'],
}

/** The server may be another program, or in the hands of another: what it answers is checked. Throws StoreError. */
function replyOf(name: keyof Scripts, value: unknown): Reply {
  const verdicts = VERDICTS[name]
  if (verdicts === undefined) return []
  if (!Array.isArray(value) || !verdicts.includes(value[0]) || !value.every(isTextOrNull)) throw nonsense()
  numberIn(value[1])
  numberIn(value[2])
  return value
}
const isTextOrNull = (value: unknown): value is string | null => value === null || typeof value === 'string'

function numberIn(text: string | null | undefined): number {
  const number = Number(text ?? undefined)
  if (!Number.isFinite(number)) throw nonsense()
  return number
}
function nonsense(): StoreError {
  return new StoreError('lost', 'The server answers what no script does')
}

function leaseFrom(reply: Reply): Lease {
  const [verdict, now, number, holder] = reply
  const waitMs = Math.max(0, Number(number))
  if (verdict === 'yours') return { verdict, nowMs: Number(now), fence: Number(number) }
  if (verdict === 'paced') return { verdict, waitMs }
  if (verdict === 'taken') return { verdict, waitMs, holder: holder ?? '' }
  const record = recordIn(reply)
  if (record === null) throw nonsense()
  return verdict === 'paused'
    ? { verdict, waitMs, record }
    : { verdict: verdict === 'held' ? 'held' : 'newer', record }
}

function recordIn([, now, , fence, at, notBefore, box]: Reply): StoredRecord | null {
  if (!fence) return null
  return {
    fence: Number(fence),
    atMs: Number(at),
    notBeforeMs: Number(notBefore),
    sealed: box ?? '',
    nowMs: Number(now),
  }
}

/** Anybody who may publish can send anything; null: not a record. */
function messageFrom(message: string): StoredRecord | null {
  const [fence, now, at, notBefore, box] = message.split(' ')
  const record = recordIn([null, now, null, fence, at, notBefore, box])
  return record !== null && Number.isFinite(record.fence) && Number.isFinite(record.nowMs) ? record : null
}
