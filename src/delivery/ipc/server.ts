// `ipc.sock`: the operations over node-ipc's frames, which its own parser reads. The server of node-ipc is
// not used: its limits and timers see one connection at a time, and it asks for the host's network
// interfaces, which the unit's sandbox forbids.
import { createServer, type Socket } from 'node:net'
import { Parser } from 'node-ipc/parsers'
import { getDefaultHighWaterMark } from 'node:stream'
import { isRecord } from '../../lib/input.ts'
import {
  answerTypes,
  FRAME_END,
  MAX_FRAME_BYTES,
  MAX_ID_LENGTH,
  type Fault,
  type RequestType,
} from '../../protocol.ts'
import {
  createConnections,
  subscribe,
  type Client,
  type ConnectionServer,
  type DeliveryContext,
  type ServerOptions,
} from '../connections.ts'
import {
  MAX_SUBSCRIPTIONS,
  MAX_WAITING,
  OVER_LIMIT,
  type ClosingFault,
  type TimeoutReason,
} from '../limits.ts'
import { createOperations, isInOrder, isRequestType, type Reply } from '../operations.ts'

const parser = new Parser({ delimiter: FRAME_END })

interface Own {
  /** Received and not answered yet. */
  unread: string
  /** Answers that are sent together. */
  out: string
  /** The client has not read what it was sent: nothing is answered before it has. */
  isBlocked: boolean
  isPaused: boolean
  /** Requests that are answered later. With 16 of them that do not wait for a token, nothing is read. */
  answering: number
  /** The client has ended its side: the connection ends with the last answer. */
  isEnding: boolean
}
type IpcClient = Client & Own

export function createIpcServer(options: DeliveryContext & ServerOptions): ConnectionServer {
  const { peers } = options
  const operations = createOperations({ ...options, transport: 'ipc' })
  const connections = createConnections(
    {
      transport: 'ipc',
      operations,
      own: (): Own => ({ ...NEW }),
      push,
      timeoutOf,
      // Half open: a client that has ended its side still gets the answers for which it waits.
      createServer: () => createServer({ allowHalfOpen: true }, onConnection),
      endAnswered,
    },
    options,
  )

  function onConnection(socket: Socket): void {
    const client = connections.accept(socket)
    if (client === null) return
    socket.setEncoding('utf8')
    socket.on('data', (text: string) => {
      client.unread += text
      proceed(client)
    })
    socket.on('drain', () => {
      client.isBlocked = false
      proceed(client)
    })
    socket.on('end', () => {
      client.isEnding = true
      client.subscriptions.length = 0
      if (peers.hasHungUp(socket)) socket.destroy()
      else proceed(client)
    })
  }

  /** Answers what has arrived, as far as the client reads its answers. */
  function proceed(client: IpcClient): void {
    try {
      const isMore = answerFrames(client)
      if (client.isClosing) return
      if (client.pushed < client.subscriptions.length) push(client)
      if (client.isPaused !== isHeldUp(client)) {
        client.isPaused = !client.isPaused
        if (client.isPaused) client.socket.pause()
        else client.socket.resume()
      }
      if (client.isEnding && !isMore && client.answering === 0) client.socket.destroySoon()
    } catch (error) {
      connections.fail(client, error)
    }
  }

  /** Returns whether there are more, which are answered later. */
  function answerFrames(client: IpcClient): boolean {
    const { unread } = client
    let from = 0
    let end = unread.indexOf(FRAME_END)
    while (end !== -1 && !isHeldUp(client)) {
      answer(client, unread.slice(from, end))
      if (client.isClosing) return false
      from = end + 1
      end = unread.indexOf(FRAME_END, from)
      if (client.out.length >= WRITE_LENGTH) flush(client)
    }
    client.unread = unread.slice(from)
    if (end === -1 && client.unread.length > MAX_FRAME_BYTES) writeFault(client, null, FRAMING)
    else flush(client)
    return end !== -1
  }

  function isHeldUp({ isBlocked, answering, waiting }: IpcClient): boolean {
    return isBlocked || answering - waiting >= MAX_WAITING
  }

  function answer(client: IpcClient, frame: string): void {
    const message = Buffer.byteLength(frame) > MAX_FRAME_BYTES ? undefined : messageOf(frame)
    if (message === undefined) return writeFault(client, null, FRAMING)
    const { type, data } = isRecord(message) ? message : NOTHING
    const fields = isRecord(data) ? data : NOTHING
    const { id: given } = fields
    const id = typeof given === 'string' && given !== '' && given.length <= MAX_ID_LENGTH ? given : null
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
    if (subscribes && !client.isEnding && isInOrder(reply)) subscribe({ client, id })
  }

  function answerLater(client: IpcClient, type: RequestType, id: string, reply: Promise<Reply>): void {
    client.answering += 1
    void connections.later(client, reply, (value) => {
      client.answering -= 1
      write(client, answerTypes[type], id, value)
      proceed(client)
    })
  }

  function push(client: IpcClient): void {
    const { subscriptions } = client
    while (client.pushed < subscriptions.length && !client.isBlocked && !client.isClosing) {
      const reply = operations.changedToken(client)
      while (client.pushed < subscriptions.length && client.out.length < WRITE_LENGTH) {
        write(client, 'token.changed', subscriptions[client.pushed]!, reply)
        client.pushed += 1
      }
      flush(client)
    }
  }

  function write(client: IpcClient, type: string, id: string, reply: Reply): void {
    if ('fault' in reply) writeFault(client, id, reply)
    // The JSON of the token is ready: only the id is inserted.
    else if ('frameRest' in reply.value)
      client.out += `{"type":"${type}","data":{"id":${JSON.stringify(id)}${reply.value.frameRest}`
    else client.out += frameOf(type, { id, ...reply.value })
  }

  function writeFault(client: IpcClient, id: string | null, reply: { fault: Fault } | ClosingFault): void {
    client.out += frameOf('fault', { id, ...reply.fault })
    if ('drop' in reply) connections.end(client, reply.drop, client.out)
  }

  function flush(client: IpcClient): void {
    if (client.out === '' || client.isClosing) return
    client.isBlocked = !client.socket.write(client.out)
    client.out = ''
  }

  /** What has arrived can still be read, and nothing comes after it. */
  function endAnswered(isFresh: (client: Client) => boolean): void {
    for (const client of connections.clients())
      if (!client.isEnding && !isFresh(client)) peers.endInput(client.socket)
  }

  return connections.server
}

/** The timeout that runs for a client that has read its answers. */
function timeoutOf(client: IpcClient): TimeoutReason | null {
  if (client.answering > 0) return null
  if (client.unread !== '') return 'incomplete-request'
  return client.subscriptions.length > 0 ? null : 'idle'
}

/** Undefined: it is no JSON, and no other frame can be found after it. */
function messageOf(frame: string): unknown {
  try {
    return parser.decode(frame)
  } catch {
    return undefined
  }
}

function frameOf(type: string, data: object): string {
  return JSON.stringify({ type, data }) + FRAME_END
}

const NEW: Own = {
  unread: '',
  out: '',
  isBlocked: false,
  isPaused: false,
  answering: 0,
  isEnding: false,
}
const NOTHING: Readonly<Record<string, unknown>> = {}
/** Answers are sent once they have so many characters: at the least Node says whether the client reads. */
const WRITE_LENGTH = getDefaultHighWaterMark(false)
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
