// The shared store in Redis or Valkey: one hash, three short-lived keys and one channel for each account.
import { randomHex } from '../lib/crypto.ts'
import { CLIENT_INTERVAL_MS } from '../token/rejections.ts'
import { connect, type Connection, type StoreConfig, type Surroundings } from './redis-client.ts'
import { ACQUIRE, FORGET, PUT, READ, RELEASE, RELEASED, RESTORE } from './scripts.ts'
import {
  StoreError,
  type Lease,
  type RecordHead,
  type Store,
  type StoredRecord,
  type StoreListener,
} from './store.ts'

/** Subscribed connections send nothing by themselves: a ping shows whether the server still answers. */
const PING_EVERY_MS = 1_000
/** Version of the keys: daemons with another one do not meet. */
const VERSION = 1

type Reply = readonly (string | null | undefined)[]
/** By name, each script and the verdicts that it may answer; null: what it answers is not read. */
const SCRIPTS = {
  shareAcquire: { lua: ACQUIRE, verdicts: ['newer', 'taken', 'held', 'paused', 'paced', 'yours'] },
  sharePut: { lua: PUT, verdicts: ['stored', 'stale'] },
  shareRelease: { lua: RELEASE, verdicts: null },
  shareRestore: { lua: RESTORE, verdicts: null },
  shareRead: { lua: READ, verdicts: ['read'] },
  shareForget: { lua: FORGET, verdicts: null },
} as const
type Name = keyof typeof SCRIPTS
type Scripts = Readonly<Record<Name, (...values: readonly (string | number)[]) => Promise<unknown>>>
/** The scripts get them all, in this order. */
const KEY_NAMES = ['record', 'fence', 'lease', 'pace', 'pause'] as const

/** Opens the store of one account. Connects in the background. `host` is how this host is named to the others. */
export async function openRedisStore(
  settings: StoreConfig,
  { accountKey, host, ...surroundings }: { accountKey: string; host: string } & Surroundings,
): Promise<Store> {
  // A cluster keeps all keys with the same text in braces in one slot.
  const keyOf = (name: string): string => `${settings.prefix}:${VERSION}:{${accountKey}}:${name}`
  const keys = KEY_NAMES.map(keyOf)
  const channel = keyOf('changed')
  const owner = `${host}/${randomHex(8)}`
  const connection = await connect(settings, surroundings)
  const { client } = connection
  for (const [name, { lua }] of Object.entries(SCRIPTS))
    client.defineCommand(name, { lua, numberOfKeys: KEY_NAMES.length })
  const scripts = client as unknown as Scripts

  async function run(name: Name, ...values: readonly (string | number)[]): Promise<Reply> {
    await connection.firstContact
    try {
      const reply = replyOf(name, await scripts[name](...keys, ...values))
      connection.understood()
      return reply
    } catch (error) {
      throw error instanceof StoreError ? error : connection.errorOf(error)
    }
  }

  return {
    server: formatServers(settings.servers),
    async acquireLease({ cause, leaseMs, adoptedFence, highestFence, ignored }) {
      const { record, lease, pause, pace } = ignored
      const fences = [adoptedFence, highestFence, record]
      return leaseFrom(
        await run('shareAcquire', owner, leaseMs, ...fences, cause, lease, pause, Number(pace)),
      )
    },
    async put({ isClientPaced, ttlMs, sealed, ...head }) {
      const paceMs = isClientPaced ? CLIENT_INTERVAL_MS : 0
      const reply = await run('sharePut', owner, ...valuesOf(head), ttlMs, sealed, paceMs, channel)
      if (reply[0] === 'stored') return { verdict: 'stored', hosts: Number(reply[2]) }
      return { verdict: 'stale', record: recordIn(reply) }
    },
    async release(pause) {
      const values = pause === null ? [0, 0, 0, 0, ''] : [pause.pauseMs, ...valuesOf(pause), pause.sealed]
      await run('shareRelease', owner, ...values, channel)
    },
    async restore({ ttlMs, sealed, ...head }) {
      await run('shareRestore', ...valuesOf(head), ttlMs, sealed)
    },
    async read({ known, highestFence }) {
      const reply = await run('shareRead', known, highestFence)
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
      client.on('ready', onReady)
      const pushes = await connect(settings, surroundings)
      await watch(pushes, channel, { ...surroundings, listener, signal })
      client.off('ready', onReady)
    },
    async forget() {
      await run('shareForget')
    },
    close: () => connection.close(),
  }
}

/** The servers as people read them. */
export function formatServers(servers: StoreConfig['servers']): string {
  return servers
    .map((server) => ('path' in server ? server.path : `${server.host}:${server.port}`))
    .join(', ')
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

function valuesOf({ fence, atMs, notBeforeMs }: RecordHead): readonly number[] {
  return [fence, atMs, notBeforeMs]
}

/** The server may be another program, or in the hands of another: what it answers is checked. Throws StoreError. */
function replyOf(name: Name, value: unknown): Reply {
  const verdicts: readonly unknown[] | null = SCRIPTS[name].verdicts
  if (verdicts === null) return []
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
  const [fence, now, at, notBefore, box] = message.split(' ', 5)
  const record = recordIn([null, now, null, fence, at, notBefore, box])
  return record !== null && Number.isFinite(record.fence) && Number.isFinite(record.nowMs) ? record : null
}
