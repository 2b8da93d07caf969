// `ipc.sock`: the operations over node-ipc's frames, which its own guarded parser reads. The server of node-ipc
// is not used: its limits see one connection at a time, and it asks for the host's network interfaces, which
// the unit's sandbox forbids.
// @ts-expect-error: node-ipc 14 has no types.
import { GuardedParser } from 'node-ipc/parsers'
import { isRecord } from '../lib/input.ts'
import type { Log } from '../lib/log.ts'
import { answerTypes, FRAME_END, MAX_FRAME_BYTES, MAX_ID_LENGTH, type RequestType } from '../protocol.ts'
import { fail, safely, type Connection, type Protocol } from './guard.ts'
import * as most from './limits.ts'
import { faultOf, isRequestType, type Operations } from './operations.ts'
import type { Reply } from './replies.ts'

interface IpcState {
  /** Received and not answered yet; null: nothing. */
  kept: Buffer | null
  /** Answers that are sent together. */
  out: string
  /** Answers that requests have waited for, and that are not sent yet. */
  readonly late: { readonly type: RequestType; readonly id: string; readonly reply: Reply }[]
  /** The last of its subscriptions, that have not been sent the newest token. */
  behind: number
  /** The rest of what it has sent is answered in the next turn. */
  isPlanned: boolean
}
type Client = Connection & IpcState

const parser = new GuardedParser({
  delimiter: FRAME_END,
  maxMessageSize: MAX_FRAME_BYTES,
  maxPendingBytes: MAX_FRAME_BYTES,
  maxEventNameLength: 64,
  messageTimeout: 0,
  allowReservedEvents: true,
}) as { decode(frame: string): { readonly type: string; readonly data?: unknown } }
const END = FRAME_END.charCodeAt(0)

export function createIpc({ operations, log }: { operations: Operations; log: Log }): Protocol<IpcState> {
  /** All connections are read into it. */
  const input = Buffer.allocUnsafeSlow(most.READ_BYTES)

  function receive(client: Client, length: number): boolean {
    try {
      const { kept } = client
      const bytes = kept === null ? input : Buffer.concat([kept, input.subarray(0, length)])
      answerFrames(client, bytes, kept === null ? length : bytes.length)
      return settle(client)
    } catch (error) {
      fail(client, log, error)
      return false
    }
  }

  /** Answers a few frames, and keeps the rest. */
  function answerFrames(client: Client, bytes: Buffer, length: number): void {
    let from = 0
    for (let count = 0; count < most.FRAMES_IN_A_TURN && !isHeldUp(client); count += 1) {
      const end = bytes.indexOf(END, from)
      if (end === -1 || end >= length) break
      answer(client, end - from > MAX_FRAME_BYTES ? '' : bytes.toString('utf8', from, end))
      from = end + 1
    }
    const rest = bytes.subarray(from, length)
    client.kept = rest.length === 0 ? null : bytes === input ? Buffer.from(rest) : rest
    if (rest.length > MAX_FRAME_BYTES && !hasFrame(client)) closeBroken(client)
  }

  function answer(client: Client, frame: string): void {
    client.requests += 1
    const message = messageOf(frame)
    if (message === null) return closeBroken(client)
    const { type, data } = message
    const id = isRecord(data) && isId(data['id']) ? data['id'] : null
    const refusal = operations.admit(client)
    if (refusal !== null) close(client, id, refusal)
    else if (id === null) send(client, '', null, BAD_ID)
    else if (!isRequestType(type)) send(client, '', id, BAD_TYPE)
    else perform(client, type, id, data as Record<string, unknown>)
  }

  function perform(client: Client, type: RequestType, id: string, data: Record<string, unknown>): void {
    const isSubscription = type === 'token.subscribe' && !client.subscriptions.includes(id)
    if (isSubscription && client.subscriptions.length >= most.MAX_SUBSCRIPTIONS) {
      client.drop = 'too-many-subscriptions'
      return close(client, id, TOO_MANY)
    }
    const reply = operations.perform(type, data, client)
    if (reply instanceof Promise) return void answerLater(client, type, id, reply)
    send(client, answerTypes[type], id, reply)
    const isValid = !('fault' in reply) || reply.fault.code !== 'bad-request'
    // The last ones may lack the newest token.
    if (isSubscription && isValid && !client.socket.readableEnded)
      client.subscriptions = [id, ...client.subscriptions]
  }

  async function answerLater(
    client: Client,
    type: RequestType,
    id: string,
    promise: Promise<Reply>,
  ): Promise<void> {
    client.waiting += 1
    try {
      client.late.push({ type, id, reply: await promise })
      plan(client)
    } catch (error) {
      fail(client, log, error)
    }
  }

  /** Each client gets a little in each turn of the event loop. */
  function plan(client: Client): void {
    if (!client.isPlanned) setImmediate(goOnSafely, client)
    client.isPlanned = true
  }

  const goOnSafely = (client: Client): void => safely(client, log, goOn)

  /** Goes on in a later turn, or once the client reads. */
  function goOn(client: Client): void {
    const { socket, late } = client
    client.isPlanned = false
    if (!socket.writable) return
    while (late.length > 0 && !socket.writableNeedDrain) {
      const { type, id, reply } = late.shift()!
      client.waiting -= 1
      send(client, answerTypes[type], id, reply)
    }
    sendChanged(client)
    if (client.kept !== null) answerFrames(client, client.kept, client.kept.length)
    if (settle(client)) socket.resume()
    else socket.pause()
  }

  /** Sends what was answered. Returns whether more may be read. */
  function settle(client: Client): boolean {
    flush(client)
    const isMore = hasFrame(client)
    if (isMore && !isHeldUp(client)) plan(client)
    if (!isMore && client.waiting === 0 && client.socket.readableEnded) client.socket.destroySoon()
    return !isMore && !isHeldUp(client)
  }

  function send(client: Client, type: string, id: string | null, reply: Reply): void {
    client.out += textOf(type, id, reply)
    if (client.out.length >= most.WRITE_BYTES) flush(client)
  }

  function flush(client: Client): void {
    if (client.out !== '' && client.socket.writable) client.socket.write(client.out)
    client.out = ''
  }

  /** The connection ends with this answer. */
  function close(client: Client, id: string | null, reply: Reply): void {
    send(client, '', id, reply)
    flush(client)
    client.socket.destroySoon()
  }

  /** No other frame can be found after what is none. */
  function closeBroken(client: Client): void {
    client.drop = 'broken-framing'
    close(client, null, BAD_FRAME)
  }

  /** Sends the newest token to the subscriptions that lack it, as far as the client reads. */
  function sendChanged(client: Client): void {
    const { subscriptions, socket } = client
    if (client.behind === 0 || socket.writableNeedDrain) return
    const reply = operations.changed(client)
    while (client.behind > 0 && !socket.writableNeedDrain) {
      send(client, 'token.changed', subscriptions[subscriptions.length - client.behind] ?? '', reply)
      client.behind -= 1
    }
    flush(client)
  }

  return {
    createState: () => ({ kept: null, out: '', late: [], behind: 0, isPlanned: false }),
    optionsOf: (client) => ({
      writableHighWaterMark: most.WRITE_BYTES,
      onread: { buffer: input, callback: (length) => receive(client, length) },
    }),
    begin(client) {
      client.socket.on('drain', () => goOnSafely(client))
      client.socket.once('end', () => {
        Object.assign(client, { subscriptions: [], behind: 0 })
        goOnSafely(client)
      })
    },
    push(client) {
      client.behind = client.subscriptions.length
      sendChanged(client)
    },
  }
}

function textOf(type: string, id: string | null, reply: Reply): string {
  return 'fault' in reply
    ? JSON.stringify({ type: 'fault', data: { id, ...reply.fault } }) + FRAME_END
    : `{"type":"${type}","data":{"id":${JSON.stringify(id)}${reply.frameRest}`
}

/** Reports whether the next request has to wait: until the client reads or another one is answered, or for ever. */
function isHeldUp({ waiting, socket }: Client): boolean {
  return waiting >= most.MAX_WAITING || socket.writableNeedDrain || !socket.writable
}

function hasFrame({ kept, socket }: Client): boolean {
  return kept !== null && socket.writable && kept.includes(END)
}

function isId(id: unknown): id is string {
  return typeof id === 'string' && id !== '' && id.length <= MAX_ID_LENGTH
}

/** Null: it is no message. */
function messageOf(frame: string): ReturnType<typeof parser.decode> | null {
  try {
    return parser.decode(frame)
  } catch {
    return null
  }
}

const BAD_ID = faultOf(
  'bad-request',
  `\`data.id\` of a request is a string of 1 to ${MAX_ID_LENGTH} characters`,
)
const BAD_TYPE = faultOf('bad-request', `\`type\` is one of ${Object.keys(answerTypes).join(', ')}`)
const BAD_FRAME = faultOf('bad-request', `A frame is a JSON object of at most ${MAX_FRAME_BYTES} bytes`)
const TOO_MANY = faultOf(
  'busy',
  `A connection has at most ${most.MAX_SUBSCRIPTIONS} subscriptions: open another`,
)
