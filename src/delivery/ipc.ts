// `ipc.sock`: the operations over node-ipc's frames, which its own guarded parser reads. The server of node-ipc
// is not used: its limits see one connection at a time, and it asks for the host's network interfaces, which
// the unit's sandbox forbids.
import { GuardedParser } from 'node-ipc/parsers'
import { isRecord } from '../lib/input.ts'
import type { Log } from '../lib/log.ts'
import { answerTypes, FRAME_END, MAX_FRAME_BYTES, MAX_ID_LENGTH, type RequestType } from '../protocol.ts'
import { endWaits, fail, safely, type Connection, type Protocol } from './guard.ts'
import * as most from './limits.ts'
import { faultOf, hasBegun, isRequestType, type Operations } from './operations.ts'
import type { Reply } from './replies.ts'

interface IpcState {
  /** Received and not answered yet; null: nothing. `isMore`: it begins with a whole frame. */
  kept: Buffer | null
  isMore: boolean
  /** Answers that are sent together, and those that came when the client did not read. */
  out: string
  late: readonly LateAnswer[]
  /** The last of its subscriptions, that have not been sent the newest token. */
  behind: number
  /** The client has ended its side. */
  hasEnded: boolean
  /** The connection ends with it, once earlier requests are answered; nothing else is answered. */
  lastWords: string | null
}
interface LateAnswer {
  readonly type: RequestType
  readonly id: string
  readonly reply: Reply
}
type Client = Connection & IpcState

const parser = new GuardedParser({
  delimiter: FRAME_END,
  maxMessageSize: MAX_FRAME_BYTES,
  maxPendingBytes: MAX_FRAME_BYTES,
  maxEventNameLength: 64,
  messageTimeout: 0,
  allowReservedEvents: true,
})
const END = FRAME_END.charCodeAt(0)

export function createIpc({ operations, log }: { operations: Operations; log: Log }): Protocol<IpcState> {
  const plan = createPlan((client) => safely(client, log, goOn))
  /** All connections are read into it. */
  const input = Buffer.allocUnsafeSlow(most.READ_BYTES)

  function receive(client: Client, length: number): boolean {
    try {
      const { kept } = client
      if (kept === null) answerFrames(client, input, length)
      else {
        const bytes = Buffer.concat([kept, input.subarray(0, length)])
        answerFrames(client, bytes, bytes.length)
      }
      return settle(client)
    } catch (error) {
      fail(client, log, error)
      return false
    }
  }

  /** Answers a few frames, and keeps the rest. */
  function answerFrames(client: Client, bytes: Buffer, length: number): void {
    let from = 0
    client.isMore = false
    for (let count = 0; from < length && client.lastWords === null; count += 1) {
      const end = bytes.indexOf(END, from)
      if (end === -1 || end >= length) break
      client.isMore = count === most.FRAMES_IN_A_TURN || isHeldUp(client)
      if (client.isMore) break
      answer(client, end - from > MAX_FRAME_BYTES ? '' : bytes.toString('utf8', from, end))
      if (client.out.length >= most.WRITE_BYTES) flush(client)
      from = end + 1
    }
    keep(client, bytes, from === length || client.lastWords !== null ? null : bytes.subarray(from, length))
  }

  /** A short rest would keep the memory of all that was read with it. */
  function keep(client: Client, bytes: Buffer, rest: Buffer | null): void {
    client.kept = rest !== null && (bytes === input || !client.isMore) ? Buffer.from(rest) : rest
    if (rest !== null && !client.isMore && rest.length > MAX_FRAME_BYTES) closeBroken(client)
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
      return close(client, id, TOO_MANY_SUBSCRIPTIONS)
    }
    const reply = operations.perform(type, data, client)
    if (reply instanceof Promise) return void answerLater(client, type, id, reply)
    send(client, answerTypes[type], id, reply)
    if (isSubscription && hasBegun(reply) && !client.hasEnded)
      // The last ones may lack the newest token.
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
      const reply = await promise
      client.late = [...client.late, { type, id, reply }]
      plan(client)
    } catch (error) {
      fail(client, log, error)
    }
  }

  function sendLate(client: Client): void {
    while (!client.socket.writableNeedDrain) {
      const [next, ...others] = client.late
      if (next === undefined) return
      client.late = others
      client.waiting -= 1
      send(client, answerTypes[next.type], next.id, next.reply)
      if (client.out.length >= most.WRITE_BYTES) flush(client)
    }
  }

  /** Goes on in a later turn, or once the client reads. */
  function goOn(client: Client): void {
    if (client.socket.destroyed) return
    sendLate(client)
    if (client.behind > 0) pushRest(client)
    if (client.kept !== null) answerFrames(client, client.kept, client.kept.length)
    if (settle(client)) client.socket.resume()
    else client.socket.pause()
  }

  /** Sends what was answered, and ends a connection that is over. Returns whether more may be read. */
  function settle(client: Client): boolean {
    const { lastWords } = client
    const isOver = client.waiting === 0 && (lastWords !== null || (client.hasEnded && !client.isMore))
    if (isOver && lastWords !== null) client.out += lastWords
    flush(client)
    if (isOver) client.socket.destroySoon()
    else if (client.isMore && !isHeldUp(client)) plan(client)
    return !client.isMore && !isHeldUp(client)
  }

  function send(client: Client, type: string, id: string | null, reply: Reply): void {
    client.out += textOf(type, id, reply)
  }

  /** The connection ends with this answer, once earlier requests are answered with what there is. */
  function close(client: Client, id: string | null, reply: Reply): void {
    client.lastWords = textOf('', id, reply)
    client.kept = null
    endWaits(client)
  }

  /** No other frame can be found after what is none. */
  function closeBroken(client: Client): void {
    client.drop = 'broken-framing'
    close(client, null, BAD_FRAME)
  }

  function flush(client: Client): void {
    if (client.out !== '' && !client.socket.destroyed) client.socket.write(client.out)
    client.out = ''
  }

  /** A client that does not read gets the newest when it does. */
  function pushRest(client: Client): void {
    const { subscriptions, socket } = client
    if (socket.writableNeedDrain) return
    const reply = operations.changed(client)
    while (client.behind > 0 && client.out.length < most.WRITE_BYTES) {
      send(client, 'token.changed', subscriptions[subscriptions.length - client.behind] ?? '', reply)
      client.behind -= 1
    }
    flush(client)
  }

  return {
    createState: () => ({ ...NEW }),
    optionsOf: (client) => ({
      writableHighWaterMark: most.WRITE_BYTES,
      onread: { buffer: input, callback: (length) => receive(client, length) },
    }),
    begin(client) {
      client.socket.on('drain', () => safely(client, log, goOn))
      client.socket.once('end', () => {
        Object.assign(client, { hasEnded: true, subscriptions: [], behind: 0 })
        safely(client, log, goOn)
      })
    },
    push(client) {
      client.behind = client.subscriptions.length
      pushRest(client)
    },
  }
}

/** Returns the function that plans work on a client: a little in each turn of the event loop. */
function createPlan(work: (client: Client) => void): (client: Client) => void {
  const due = new Set<Client>()
  let isPlanned = false
  function run(): void {
    isPlanned = false
    let count = 0
    for (const client of due) {
      if ((count += 1) > most.CONNECTIONS_IN_A_TURN) break
      due.delete(client)
      work(client)
    }
    if (due.size > 0) next()
  }
  function next(): void {
    if (!isPlanned) setImmediate(run)
    isPlanned = true
  }
  return (client) => {
    due.add(client)
    next()
  }
}

function textOf(type: string, id: string | null, reply: Reply): string {
  return 'fault' in reply
    ? JSON.stringify({ type: 'fault', data: { id, ...reply.fault } }) + FRAME_END
    : `{"type":"${type}","data":{"id":${JSON.stringify(id)}${reply.frameRest}`
}

function isHeldUp({ lastWords, waiting, socket }: Client): boolean {
  return lastWords !== null || waiting >= most.MAX_WAITING || socket.writableNeedDrain
}

function isId(id: unknown): id is string {
  return typeof id === 'string' && id !== '' && id.length <= MAX_ID_LENGTH
}

/** Null: it is no message. */
function messageOf(frame: string): { readonly type: string; readonly data?: unknown } | null {
  try {
    return parser.decode(frame)
  } catch {
    return null
  }
}

const NEW: IpcState = {
  kept: null,
  isMore: false,
  out: '',
  late: [],
  behind: 0,
  hasEnded: false,
  lastWords: null,
}
const BAD_ID = faultOf(
  'bad-request',
  'A request is {"type": …, "data": {"id": …}}, and `data.id` is a string of 1 to 64 characters',
)
const BAD_TYPE = faultOf('bad-request', `\`type\` is one of ${Object.keys(answerTypes).join(', ')}`)
const BAD_FRAME = faultOf(
  'bad-request',
  `A frame is one JSON object of at most ${MAX_FRAME_BYTES} bytes and a form feed`,
)
const TOO_MANY_SUBSCRIPTIONS = faultOf(
  'busy',
  `One connection has at most ${most.MAX_SUBSCRIPTIONS} subscriptions: open another`,
)
