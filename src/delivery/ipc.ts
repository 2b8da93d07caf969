// `ipc.sock`: the operations over node-ipc's frames, which its own guarded parser reads. The server of node-ipc
// is not used: its limits see one connection at a time, and it asks for the host's network interfaces, which
// the unit's sandbox forbids.
import { GuardedParser } from 'node-ipc/parsers'
import type { SocketConfig } from '../config/next/config.ts'
import { isRecord } from '../lib/input.ts'
import type { Log } from '../lib/log.ts'
import { answerTypes, FRAME_END, MAX_FRAME_BYTES, MAX_ID_LENGTH, type Fault } from '../protocol.ts'
import { endWaits, fail, isWithinRate, safely, type Connection, type Protocol } from './guard.ts'
import {
  CONNECTIONS_IN_A_TURN,
  FRAMES_IN_A_TURN,
  MAX_SUBSCRIPTIONS,
  MAX_WAITING,
  READ_BYTES,
  WRITE_BYTES,
  type DropReason,
} from './limits.ts'
import { faultOf, hasBegun, isRequestType, TOO_FAST, type Operations } from './operations.ts'
import type { Reply } from './replies.ts'

interface IpcState {
  /** Received and not answered yet, from this index on; null: nothing. `isMore`: it has a whole frame. */
  kept: Buffer | null
  from: number
  isMore: boolean
  /** Answers that are sent together. */
  out: string
  /** Those that came when the client did not read. */
  late: LateAnswer[]
  /** The last of its subscriptions that have not been sent the newest token. */
  behind: number
  /** The client has ended its side. */
  hasEnded: boolean
  /** Nothing more is answered but requests that wait. */
  isClosing: boolean
}
interface LateAnswer {
  readonly type: string
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

export function createIpc({
  operations,
  limits,
  log,
}: {
  operations: Operations
  limits: () => Pick<SocketConfig, 'maxRequestsPerSecond'>
  log: Log
}): Protocol<IpcState> {
  const plan = createTurns((client: Client) => safely(client, log, goOn))
  /** What is read is answered, or copied, before anything else is read. */
  const input = Buffer.allocUnsafeSlow(READ_BYTES)

  function receive(client: Client, length: number): boolean {
    try {
      const { kept } = client
      if (kept === null) {
        const from = answerFrames(client, input, 0, length)
        // A short rest would keep the memory of all that was read with it, and `input` is read into again.
        client.kept = from < length ? Buffer.from(input.subarray(from, length)) : null
      } else {
        const bytes = Buffer.concat([kept.subarray(client.from), input.subarray(0, length)])
        keep(client, bytes, answerFrames(client, bytes, 0, bytes.length))
      }
      return settle(client)
    } catch (error) {
      fail(client, log, error)
      return false
    }
  }

  function keep(client: Client, bytes: Buffer, from: number): void {
    const isRest = from > 0 && !client.isMore && from < bytes.length
    client.kept = from === bytes.length ? null : isRest ? Buffer.from(bytes.subarray(from)) : bytes
    client.from = isRest || client.kept === null ? 0 : from
  }

  /** Answers a few frames. Returns where the rest begins. */
  function answerFrames(client: Client, bytes: Buffer, start: number, to: number): number {
    let from = start
    client.isMore = false
    for (let count = 0; from < to && !client.isClosing; count += 1) {
      const end = bytes.indexOf(END, from)
      if (end === -1 || end >= to) return from
      if (count === FRAMES_IN_A_TURN || isHeldUp(client)) {
        client.isMore = true
        return from
      }
      answer(client, bytes, from, end)
      if (client.out.length >= WRITE_BYTES) flush(client)
      from = end + 1
    }
    return client.isClosing ? to : from
  }

  function answer(client: Client, bytes: Buffer, from: number, end: number): void {
    client.requests += 1
    const message = end - from > MAX_FRAME_BYTES ? null : messageOf(bytes.toString('utf8', from, end))
    if (message === null) return close(client, 'broken-framing', null, BAD_FRAME)
    const { type, data } = message
    const id = isRecord(data) && isId(data['id']) ? data['id'] : null
    if (client.isDenied) return close(client, 'denied', id, operations.denied)
    const most = limits().maxRequestsPerSecond
    if (most !== null && !isWithinRate(client, most)) return close(client, 'too-many-requests', id, TOO_FAST)
    if (id === null) return send(client, '', null, BAD_ID)
    if (!isRequestType(type)) return send(client, '', id, BAD_TYPE)
    const isSubscription = type === 'token.subscribe' && !client.subscriptions.includes(id)
    if (isSubscription && client.subscriptions.length >= MAX_SUBSCRIPTIONS)
      return close(client, 'too-many-subscriptions', id, TOO_MANY_SUBSCRIPTIONS)
    const reply = operations.perform(type, data as Record<string, unknown>, client)
    if (reply instanceof Promise) return answerLater(client, answerTypes[type], id, reply)
    send(client, answerTypes[type], id, reply)
    if (isSubscription && hasBegun(reply) && !client.hasEnded)
      // The last ones may lack the newest token.
      client.subscriptions = [id, ...client.subscriptions]
  }

  function answerLater(client: Client, type: string, id: string, promise: Promise<Reply>): void {
    client.waiting += 1
    promise.then(
      (reply) => {
        client.late = [...client.late, { type, id, reply }]
        plan(client)
      },
      (error: unknown) => fail(client, log, error),
    )
  }

  function sendLate(client: Client): void {
    while (client.late.length > 0 && !client.socket.writableNeedDrain) {
      const [{ type, id, reply } = NOTHING, ...others] = client.late
      client.late = others
      client.waiting -= 1
      send(client, type, id, reply)
      if (client.out.length >= WRITE_BYTES) flush(client)
    }
  }

  /** Goes on in a later turn, or once the client reads. */
  function goOn(client: Client): void {
    if (client.socket.destroyed) return
    sendLate(client)
    if (client.behind > 0) pushRest(client)
    const { kept } = client
    if (kept !== null) keep(client, kept, answerFrames(client, kept, client.from, kept.length))
    if (settle(client)) client.socket.resume()
    else client.socket.pause()
  }

  /** Sends what was answered, and ends a connection that is over. Returns whether more may be read. */
  function settle(client: Client): boolean {
    const { socket, kept } = client
    const isTooLong = kept !== null && !client.isMore && kept.length - client.from > MAX_FRAME_BYTES
    if (isTooLong && !client.isClosing) close(client, 'broken-framing', null, BAD_FRAME)
    flush(client)
    if (client.isClosing) client.kept = null
    const isOver = client.isClosing || (client.hasEnded && !client.isMore)
    if (isOver && client.waiting === 0) socket.destroySoon()
    else if (client.isMore && !isHeldUp(client)) plan(client)
    return !client.isMore && !isHeldUp(client)
  }

  function send(client: Client, type: string, id: string | null, reply: Reply): void {
    client.out +=
      'fault' in reply
        ? JSON.stringify({ type: 'fault', data: { id, ...reply.fault } }) + FRAME_END
        : `{"type":"${type}","data":{"id":${JSON.stringify(id)}${reply.frameRest}`
  }

  /** The connection ends with this answer, once earlier requests are answered with what there is. */
  function close(client: Client, drop: DropReason, id: string | null, reply: { fault: Fault }): void {
    send(client, '', id, reply)
    client.isClosing = true
    client.drop = drop
    endWaits(client)
  }

  function flush(client: Client): void {
    if (client.out !== '' && !client.socket.destroyed) client.socket.write(client.out)
    client.out = ''
  }

  /** A client that does not read gets the newest when it does. */
  function pushRest(client: Client): void {
    const { subscriptions, socket } = client
    if (client.isDenied) return close(client, 'denied', subscriptions[0] ?? null, operations.denied)
    if (socket.writableNeedDrain) return
    const reply = operations.changed(client)
    while (client.behind > 0 && client.out.length < WRITE_BYTES) {
      send(client, 'token.changed', subscriptions[subscriptions.length - client.behind] ?? '', reply)
      client.behind -= 1
    }
    flush(client)
  }

  return {
    name: 'ipc',
    createState: () => ({ ...NEW }),
    optionsOf: (client) => ({
      writableHighWaterMark: WRITE_BYTES,
      onread: { buffer: input, callback: (length) => receive(client, length) },
    }),
    begin(client) {
      client.socket.on('drain', () => safely(client, log, goOn))
      client.socket.once('end', () => {
        client.hasEnded = true
        client.subscriptions = []
        client.behind = 0
        safely(client, log, goOn)
      })
    },
    push(client) {
      client.behind = client.subscriptions.length
      pushRest(client)
      if (client.isClosing) settle(client)
    },
  }
}

/** Returns the function that plans work on a client: a little in each turn of the event loop. */
function createTurns(work: (client: Client) => void): (client: Client) => void {
  const due = new Set<Client>()
  let isPlanned = false
  const next = (): void => {
    isPlanned = true
    setImmediate(run)
  }
  function run(): void {
    isPlanned = false
    let count = 0
    for (const client of due) {
      if ((count += 1) > CONNECTIONS_IN_A_TURN) break
      due.delete(client)
      work(client)
    }
    if (due.size > 0 && !isPlanned) next()
  }
  return (client) => {
    due.add(client)
    if (!isPlanned) next()
  }
}

function isHeldUp({ isClosing, waiting, socket }: Client): boolean {
  return isClosing || waiting >= MAX_WAITING || socket.writableNeedDrain
}

function isId(id: unknown): id is string {
  return typeof id === 'string' && id !== '' && id.length <= MAX_ID_LENGTH
}

/** Null: it is no message, and no other frame can be found after it. */
function messageOf(frame: string): { readonly type: string; readonly data?: unknown } | null {
  try {
    return parser.decode(frame)
  } catch {
    return null
  }
}

const NEW: IpcState = {
  kept: null,
  from: 0,
  isMore: false,
  out: '',
  late: [],
  behind: 0,
  hasEnded: false,
  isClosing: false,
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
  `One connection has at most ${MAX_SUBSCRIPTIONS} subscriptions: open another`,
)
const NOTHING: LateAnswer = { type: '', id: '', reply: BAD_ID }
