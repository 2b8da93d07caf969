// `ipc.sock`: the operations over node-ipc's frames, which its own parser reads. The server of node-ipc is
// not used: its limits and timers see one connection at a time, and it asks for the host's network
// interfaces, which the unit's sandbox forbids.
import { Parser } from 'node-ipc/parsers'
import { isRecord } from '../../lib/input.ts'
import {
  answerTypes,
  FRAME_END,
  MAX_FRAME_BYTES,
  MAX_ID_LENGTH,
  type Fault,
  type RequestType,
} from '../../protocol.ts'
import { copyOf, subscribe, WRITE_BYTES, type Client } from '../client.ts'
import {
  createConnections,
  type ConnectionServer,
  type DeliveryContext,
  type ServerOptions,
} from '../connections.ts'
import {
  MAX_SUBSCRIPTIONS,
  MAX_WAITING,
  OVER_LIMIT,
  type ClosingFault,
  type DropReason,
  type TimeoutReason,
} from '../limits.ts'
import { createOperations, isInOrder, isRequestType, type Reply } from '../operations.ts'

const parser = new Parser({ delimiter: FRAME_END })
const END = FRAME_END.charCodeAt(0)
const READ_BYTES = 4 * 1024
/** An answer that waits for its turn shares its text with others. */
const LATE_BYTES = 256

interface LateAnswer {
  readonly type: RequestType
  readonly id: string
  readonly reply: Reply
}
interface IpcState {
  /** Received and not answered yet; null: nothing. `isMore`: a whole frame of it can be answered. */
  unread: Buffer | null
  isMore: boolean
  /** Answers that are sent together. */
  out: string
  /** The client has not read what it was sent: nothing is answered before it has. */
  isBlocked: boolean
  /** Requests that are answered later. With 16 of them that do not wait for a token, nothing is read. */
  answering: number
  /** Their answers, which are sent when the client reads. */
  readonly late: LateAnswer[]
  /** The connection ends, with this fault, once earlier requests are answered; nothing is read any more. */
  closing: { readonly drop: DropReason; readonly lastWords: string } | null
}
type IpcClient = Client & IpcState

export function createIpcServer(options: DeliveryContext & ServerOptions): ConnectionServer {
  const operations = createOperations({ ...options, transport: 'ipc' })
  const connections = createConnections(
    {
      transport: 'ipc',
      operations,
      createState: (): IpcState => ({ ...NEW, late: [] }),
      readBytes: READ_BYTES,
      receive,
      endInput(client) {
        client.subscriptions.length = 0
        proceed(client)
      },
      drained(client) {
        client.isBlocked = false
        if (client.isMore) connections.plan(client)
        else proceed(client)
      },
      proceed,
      heldBy,
      push,
      timeoutOf,
    },
    options,
  )

  function receive(client: IpcClient, input: Buffer, length: number): void {
    if (client.unread === null) {
      const from = answerFrames(client, input, length)
      if (from < length) keep(client, copyOf(input.subarray(from, length)))
    } else {
      keep(client, Buffer.concat([client.unread, input.subarray(0, length)]))
      answerUnread(client)
    }
    settle(client)
  }

  /** Goes on with what has arrived, as far as the client reads its answers. */
  function proceed(client: IpcClient): void {
    while (client.late.length > 0 && !client.isBlocked && !client.isClosing) {
      const { type, id, reply } = client.late.shift()!
      write(client, answerTypes[type], id, reply)
      if (client.out.length >= WRITE_BYTES) flush(client)
    }
    answerUnread(client)
    if (client.pushed < client.subscriptions.length) push(client)
    settle(client)
  }

  /** Sends what was answered, and reads on if there is nothing left to be answered. */
  function settle(client: IpcClient): void {
    if (client.isClosing) return
    flush(client)
    connections.settle(client, !client.isMore && !isHeldUp(client))
    if (client.isMore || client.answering + client.late.length > 0) return
    if (client.closing !== null) connections.end(client, client.closing.drop, client.closing.lastWords)
    else if (client.hasEnded) client.socket.destroySoon()
  }

  function answerUnread(client: IpcClient): void {
    const { unread } = client
    if (unread === null || client.isClosing) return
    const from = answerFrames(client, unread, unread.length)
    if (from > 0) keep(client, from < unread.length ? unread.subarray(from) : null)
    // A short rest would keep the memory of all that was read with it.
    if (client.unread !== null && !client.isMore) client.unread = copyOf(client.unread)
  }

  /** Answers what there is in whole frames; returns where the rest begins. */
  function answerFrames(client: IpcClient, input: Buffer, length: number): number {
    let from = 0
    while (from < length && !isHeldUp(client)) {
      const end = input.indexOf(END, from)
      if (end === -1 || end >= length) break
      answer(client, input, from, end)
      if (client.closing !== null) return length
      from = end + 1
      if (client.out.length >= WRITE_BYTES) flush(client)
    }
    return from
  }

  function keep(client: IpcClient, rest: Buffer | null): void {
    if (client.isClosing) return
    client.isMore = rest?.includes(END) === true
    client.unread = rest
    if (rest !== null && !client.isMore && rest.length > MAX_FRAME_BYTES) writeFault(client, null, FRAMING)
  }

  function answer(client: IpcClient, input: Buffer, from: number, end: number): void {
    const message = end - from > MAX_FRAME_BYTES ? undefined : messageOf(input.toString('utf8', from, end))
    if (message === undefined) return writeFault(client, null, FRAMING)
    const { type, data } = isRecord(message) ? message : NOTHING
    const fields = isRecord(data) ? data : NOTHING
    const id = isId(fields['id']) ? fields['id'] : null
    const closing = connections.closingFaultOf(client)
    if (closing !== null) writeFault(client, id, closing)
    else if (!isRequestType(type)) writeFault(client, id, NO_TYPE)
    else if (id === null) writeFault(client, null, NO_ID)
    else perform(client, type, id, fields)
  }

  function perform(
    client: IpcClient,
    type: RequestType,
    id: string,
    data: Readonly<Record<string, unknown>>,
  ): void {
    const { subscriptions } = client
    const subscribes = type === 'token.subscribe' && !subscriptions.includes(id)
    if (subscribes && subscriptions.length >= MAX_SUBSCRIPTIONS)
      return writeFault(client, id, OVER_LIMIT.subscriptions)
    const reply = operations.perform(type, data, client)
    if (reply instanceof Promise) return answerLater(client, type, id, reply)
    write(client, answerTypes[type], id, reply)
    if (subscribes && !client.hasEnded && isInOrder(reply)) subscribe({ client, id })
  }

  function answerLater(client: IpcClient, type: RequestType, id: string, promise: Promise<Reply>): void {
    client.answering += 1
    void connections.whenReady(client, promise, (reply) => {
      client.answering -= 1
      client.late.push({ type, id, reply })
      // Answers that come in one turn go out together.
      if (!client.isBlocked) connections.plan(client)
    })
  }

  function push(client: IpcClient): void {
    const { subscriptions } = client
    while (client.pushed < subscriptions.length && !client.isBlocked && !client.isClosing) {
      if (connections.isFull()) return
      const reply = operations.changedToken(client)
      while (client.pushed < subscriptions.length && client.out.length < WRITE_BYTES) {
        write(client, 'token.changed', subscriptions[client.pushed]!, reply)
        client.pushed += 1
      }
      flush(client)
    }
    connections.recount(client)
  }

  function write(client: IpcClient, type: string, id: string, reply: Reply): void {
    if ('fault' in reply) writeFault(client, id, reply)
    else client.out += textOf(type, id, reply.value)
  }

  function writeFault(client: IpcClient, id: string | null, reply: { fault: Fault } | ClosingFault): void {
    const text = frameOf('fault', { id, ...reply.fault })
    if ('drop' in reply) close(client, reply.drop, text)
    else client.out += text
  }

  /** Earlier requests are answered first, those that wait for a token with what there is. */
  function close(client: IpcClient, drop: DropReason, lastWords: string): void {
    client.closing = { drop, lastWords }
    client.unread = null
    client.isMore = false
    client.waits.abort()
  }

  function flush(client: IpcClient): void {
    if (client.out === '' || client.isClosing) return
    client.isBlocked = !client.socket.write(client.out)
    client.out = ''
  }

  return connections.server
}

/** The timeout that runs for a client that has read its answers. */
function timeoutOf(client: IpcClient): TimeoutReason | null {
  if (client.answering > 0) return null
  if (client.unread !== null) return 'incomplete-request'
  return client.subscriptions.length > 0 ? null : 'idle'
}

function heldBy({ unread, socket, late }: IpcClient): number {
  return (unread?.buffer.byteLength ?? 0) + socket.writableLength + late.length * LATE_BYTES
}

function isHeldUp({ isBlocked, closing, answering, waiting }: IpcClient): boolean {
  return isBlocked || closing !== null || answering - waiting >= MAX_WAITING
}

function isId(id: unknown): id is string {
  return typeof id === 'string' && id !== '' && id.length <= MAX_ID_LENGTH
}

/** Undefined: it is no JSON, and no other frame can be found after it. */
function messageOf(frame: string): unknown {
  try {
    return parser.decode(frame)
  } catch {
    return undefined
  }
}

function textOf(type: string, id: string, value: Extract<Reply, { value: unknown }>['value']): string {
  // The JSON of a token or a status is ready: only the id is inserted.
  return 'frameRest' in value
    ? `{"type":"${type}","data":{"id":${JSON.stringify(id)}${value.frameRest}`
    : frameOf(type, { id, ...value })
}

function frameOf(type: string, data: object): string {
  return JSON.stringify({ type, data }) + FRAME_END
}

const NEW: Omit<IpcState, 'late'> = {
  unread: null,
  isMore: false,
  out: '',
  isBlocked: false,
  answering: 0,
  closing: null,
}
const NOTHING: Readonly<Record<string, unknown>> = {}
const badRequest = (message: string): { readonly fault: Fault } => ({
  fault: { code: 'bad-request', message },
})
const NO_ID = badRequest(
  'A request is {"type": …, "data": {"id": …}}, and `data.id` is a string of 1 to 64 characters',
)
const NO_TYPE = badRequest(`\`type\` is one of ${Object.keys(answerTypes).join(', ')}`)
const FRAMING: ClosingFault = {
  ...badRequest(`A frame is one JSON object of at most ${MAX_FRAME_BYTES} bytes and a form feed`),
  drop: 'broken-framing',
}
