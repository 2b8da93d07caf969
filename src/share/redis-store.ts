// The shared store in Redis or Valkey: one hash, three short-lived keys and one channel for each account.
import { untilAborted } from '../lib/abort.ts'
import { randomHex } from '../lib/hash.ts'
import { connect, type Connection, type RedisClient, type StoreConfig } from './redis-client.ts'
import { FORGET, LOOK, PUT, RELEASE, RELEASED, RESTORE, TAKE } from './scripts.ts'
import {
  StoreError,
  type BoxHead,
  type Put,
  type PutRequest,
  type Store,
  type StoredBox,
  type StoreListener,
  type Taken,
  type TakeRequest,
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
  shareTake: { lua: TAKE, numberOfKeys: 5 },
  sharePut: { lua: PUT, numberOfKeys: 4 },
  shareRelease: { lua: RELEASE, numberOfKeys: 2 },
  shareRestore: { lua: RESTORE, numberOfKeys: 2 },
  shareLook: { lua: LOOK, numberOfKeys: 2 },
  shareForget: { lua: FORGET, numberOfKeys: 5 },
}
type Scripts = Readonly<Record<keyof typeof SCRIPTS, Script>>

/** The keys and the channel of an account. A cluster keeps them all in the slot of the subject. */
function keysOf(prefix: string, subject: string): Readonly<Record<KeyName, string>> {
  const begin = `${prefix}:${VERSION}:{${subject}}:`
  return Object.fromEntries(KEY_NAMES.map((name) => [name, `${begin}${name}`])) as Record<KeyName, string>
}
const KEY_NAMES = ['record', 'fence', 'lease', 'pace', 'pause', 'changed'] as const
type KeyName = (typeof KEY_NAMES)[number]

/** Opens the store of one account. Connects in the background. `host` is how this host is named to the others. */
export async function openRedisStore(
  settings: StoreConfig,
  { subject, host }: { subject: string; host: string },
): Promise<Store> {
  const keys = keysOf(settings.prefix, subject)
  const owner = `${host}/${randomHex(8)}`
  const connection = await connect(settings)
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

    async take({ cause, leaseMs, seen, floor, ignored }: TakeRequest): Promise<Taken> {
      const { record, fence, lease, pace, pause } = keys
      const values = [owner, leaseMs, seen, floor, ignored, cause] as const
      return takenFrom(await run('shareTake', record, fence, lease, pace, pause, ...values))
    },

    async put({ isClientPaced, ...request }): Promise<Put> {
      const { record, fence, lease, pace, changed } = keys
      const paceMs = isClientPaced ? CLIENT_PACE_MS : 0
      const values = [request.ttlMs, request.box, paceMs, changed] as const
      const reply = await run('sharePut', record, fence, lease, pace, owner, ...headOf(request), ...values)
      if (reply[0] === 'stored') return { verdict: 'stored', hosts: Number(reply[2]) }
      return { verdict: 'stale', record: recordIn(reply) }
    },

    async release(pause): Promise<void> {
      const values = pause === null ? [0, 0, 0, 0, ''] : [pause.pauseMs, ...headOf(pause), pause.box]
      await run('shareRelease', keys.lease, keys.pause, owner, ...values, keys.changed)
    },

    async restore(request: PutRequest): Promise<void> {
      await run('shareRestore', keys.record, keys.fence, ...headOf(request), request.ttlMs, request.box)
    },

    async look(known) {
      const reply = await run('shareLook', keys.record, keys.fence, known)
      const record = recordIn(reply)
      return {
        nowMs: Number(reply[1]),
        fence: numberIn(reply[7]),
        given: numberIn(reply[8]),
        record,
        hosts: Number(reply[2]),
      }
    },

    async watch(listener, signal) {
      const onReady = (): void => listener.onConnected?.()
      connection.client.on('ready', onReady)
      await watch(await connect(settings), keys.changed, { listener, signal })
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
function formatServers(servers: StoreConfig['servers']): string {
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
  { listener, signal }: { listener: StoreListener; signal: AbortSignal },
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
  const timer = setInterval(() => {
    if (client.status === 'ready') client.ping().then(() => connection.understood(), ignore)
  }, PING_EVERY_MS)
  await untilAborted(signal)
  clearInterval(timer)
  connection.close()
}

function headOf({ fence, atMs, notBeforeMs }: BoxHead): readonly number[] {
  return [fence, atMs, notBeforeMs]
}

/** The answers of each script; a script that is not here answers nothing that is read. */
const VERDICTS: Partial<Record<keyof Scripts, readonly unknown[]>> = {
  shareTake: ['newer', 'taken', 'held', 'paused', 'paced', 'yours'],
  sharePut: ['stored', 'stale'],
  shareLook: ['look'],
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

function takenFrom(reply: Reply): Taken {
  const [verdict, now, number] = reply
  const record = recordIn(reply)
  const waitMs = Math.max(0, Number(number))
  if (verdict === 'newer') {
    if (record === null) throw nonsense()
    return { verdict, record }
  }
  if (verdict === 'yours') return { verdict, nowMs: Number(now), fence: Number(number) }
  if (verdict === 'held' || verdict === 'paused') return { verdict, waitMs, record }
  if (verdict === 'paced') return { verdict, waitMs }
  return { verdict: 'taken', waitMs }
}

function recordIn([, now, , fence, at, notBefore, box]: Reply): StoredBox | null {
  if (!fence) return null
  return {
    fence: Number(fence),
    atMs: Number(at),
    notBeforeMs: Number(notBefore),
    box: box ?? '',
    nowMs: Number(now),
  }
}

/** Anybody who may publish can send anything; null: not a record. */
function messageFrom(message: string): StoredBox | null {
  const [fence, now, at, notBefore, box] = message.split(' ')
  const record = recordIn([null, now, null, fence, at, notBefore, box])
  return record !== null && Number.isFinite(record.fence) && Number.isFinite(record.nowMs) ? record : null
}
