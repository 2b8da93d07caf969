// `ipc.sock`: the operations over node-ipc's frames, which its own parser reads. The server of node-ipc is
// not used: its limits and timers see one connection at a time, and it asks for the host's network
// interfaces, which the unit's sandbox forbids.
import { createServer, type Socket } from 'node:net'
import { GuardedParser, IPCProtocolError } from 'node-ipc/parsers'
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
  OVER_LIMIT,
  subscribe,
  type Client,
  type ConnectionServer,
  type DeliveryContext,
  type DropReason,
  type ServerOptions,
} from '../connections.ts'
import { MAX_SUBSCRIPTIONS, MAX_WAITING, type TimeoutReason } from '../limits.ts'
import { createOperations, isInOrder, isRequestType, type Reply } from '../operations.ts'

const parser = new GuardedParser({
  delimiter: FRAME_END,
  maxMessageSize: MAX_FRAME_BYTES,
  maxPendingBytes: MAX_FRAME_BYTES,
  maxEventNameLength: 64,
  messageTimeout: 0,
  allowReservedEvents: true,
})
/**
 * What the parser says of a frame after which no other can be found; what else it refuses is a message, but
 * no request.
 */
const BROKEN_FRAMING = new Set(['ERR_IPC_INVALID_JSON', 'ERR_IPC_FRAME_TOO_LARGE'])

interface Own {
  /** Received and not answered yet. */
  unread: string
  /** Answers that are sent together. */
  out: string
  /** The socket is. */
  isPaused: boolean
  /** Requests that are answered later and wait for no token: at most 16, then nothing is read. */
  answering: number
  /** The client has ended its side: the connection ends with the last answer. */
  isEnding: boolean
}
type IpcClient = Client & Own

export function createIpcServer(options: DeliveryContext & ServerOptions): ConnectionServer {
  const { peers } = options
  const operations = createOperations({ ...options, transport: 'ipc' })
  const own = (): Own => ({ unread: '', out: '', isPaused: false, answering: 0, isEnding: false })
  const connections = createConnections({ transport: 'ipc', operations, own, push, timeoutOf }, options)

  function onConnection(socket: Socket): void {
    const client = connections.accept(socket)
    if (client === null) return
    socket.setEncoding('utf8')
    socket.on('data', (text: string) => {
      client.unread = client.unread === '' ? text : client.unread + text
      proceed(client)
    })
    socket.on('drain', () => proceed(client))
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
      let isMore = true
      while (isMore && !client.isClosing && mayAnswer(client)) isMore = answerSome(client)
      if (client.isClosing) return
      if (client.pushed < client.subscriptions.length) push(client)
      if (client.isPaused === mayAnswer(client)) pauseOrResume(client)
      if (client.isEnding && !isMore && client.waiting + client.answering === 0) client.socket.destroySoon()
    } catch (error) {
      connections.fail(client, error)
    }
  }

  function mayAnswer({ socket, answering }: IpcClient): boolean {
    return answering < MAX_WAITING && !socket.writableNeedDrain
  }

  function pauseOrResume(client: IpcClient): void {
    client.isPaused = !client.isPaused
    if (client.isPaused) client.socket.pause()
    else client.socket.resume()
  }

  /** Answers as many frames as make a write. Returns whether there are more. */
  function answerSome(client: IpcClient): boolean {
    const { unread, socket } = client
    let from = 0
    let end = unread.indexOf(FRAME_END)
    while (end !== -1 && client.out.length < socket.writableHighWaterMark && client.answering < MAX_WAITING) {
      answer(client, unread.slice(from, end))
      if (client.isClosing) return false
      from = end + 1
      end = unread.indexOf(FRAME_END, from)
    }
    if (from > 0) client.unread = unread.slice(from)
    if (end === -1 && client.unread.length > MAX_FRAME_BYTES) refuse(client, null, 'broken-framing', FRAMING)
    else flush(client)
    return end !== -1
  }

  function answer(client: IpcClient, frame: string): void {
    let message: { readonly type: string; readonly data?: unknown }
    try {
      message = parser.decode(frame)
    } catch (error) {
      if (!(error instanceof IPCProtocolError)) throw error
      if (BROKEN_FRAMING.has(error.code)) return refuse(client, null, 'broken-framing', FRAMING)
      message = NO_MESSAGE
    }
    const data = isRecord(message.data) ? message.data : NOTHING
    const { id: given } = data
    const id = typeof given === 'string' && given !== '' && given.length <= MAX_ID_LENGTH ? given : null
    const refusal = connections.refusalOf(client)
    if (refusal === 'denied') refuse(client, id, refusal, operations.denied)
    else if (refusal !== null) refuse(client, id, refusal, OVER_LIMIT[refusal])
    else if (message === NO_MESSAGE) writeFault(client, null, NO_TYPE)
    else if (id === null) writeFault(client, null, NO_ID)
    else if (isRequestType(message.type)) perform(client, message.type, id, data)
    else writeFault(client, id, NO_TYPE)
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
      return refuse(client, id, 'too-many-subscriptions', OVER_LIMIT['too-many-subscriptions'])
    const reply = operations.perform(type, data, client)
    if (reply instanceof Promise) return answerLater(client, type, id, reply)
    write(client, answerTypes[type], id, reply)
    if (subscribes && !client.isEnding && isInOrder(reply)) subscribe({ client, id })
  }

  function answerLater(client: IpcClient, type: RequestType, id: string, reply: Promise<Reply>): void {
    const kind = type === 'token.get' ? 'waiting' : 'answering'
    if (client.waiting >= MAX_WAITING && kind === 'waiting')
      return refuse(client, id, 'too-many-requests', OVER_LIMIT['too-many-waits'])
    client[kind] += 1
    void connections.later(client, reply, (value) => {
      client[kind] -= 1
      write(client, answerTypes[type], id, value)
      flush(client)
      proceed(client)
    })
  }

  function push(client: IpcClient): void {
    const { socket, subscriptions } = client
    while (client.pushed < subscriptions.length && !socket.writableNeedDrain && !client.isClosing) {
      const reply = operations.changedToken(client)
      while (client.pushed < subscriptions.length && client.out.length < socket.writableHighWaterMark) {
        write(client, 'token.changed', subscriptions[client.pushed]!, reply)
        client.pushed += 1
      }
      flush(client)
    }
  }

  function write(client: IpcClient, type: string, id: string, reply: Reply): void {
    if ('fault' in reply) writeFault(client, id, reply.fault)
    // The JSON of the token is ready: only the id is inserted.
    else if ('jsonTail' in reply.value)
      client.out += `{"type":"${type}","data":{"id":${JSON.stringify(id)},${reply.value.jsonTail}}${FRAME_END}`
    else client.out += frameOf(type, { id, ...reply.value })
  }

  function writeFault(client: IpcClient, id: string | null, fault: Fault): void {
    client.out += frameOf('fault', { id, ...fault })
  }

  function flush(client: IpcClient): void {
    if (client.out === '' || client.isClosing) return
    client.socket.write(client.out)
    client.out = ''
  }

  /** Answers with a fault and closes the connection. */
  function refuse(client: IpcClient, id: string | null, reason: DropReason, fault: Fault): void {
    writeFault(client, id, fault)
    connections.end(client, reason, client.out)
  }

  return connections.serve({
    // Half open: a client that has ended its side still gets the answers for which it waits.
    createServer: () => createServer({ allowHalfOpen: true }, onConnection),
    // What has arrived can still be read, and then the input ends: nothing is lost, and no request comes
    // after it.
    endAnswered(isFresh) {
      for (const client of connections.clients())
        if (!client.isEnding && !isFresh(client)) peers.endInput(client.socket)
    },
  })
}

/** The timeout that runs for a client that has read its answers. */
function timeoutOf(client: IpcClient): TimeoutReason | null {
  if (client.answering + client.waiting > 0) return null
  if (client.unread !== '') return 'incomplete-request'
  return client.subscriptions.length > 0 ? null : 'idle'
}

function frameOf(type: string, data: object): string {
  return JSON.stringify({ type, data }) + FRAME_END
}

const NOTHING: Readonly<Record<string, unknown>> = {}
const NO_MESSAGE = { type: '' }
const badRequest = (message: string): Fault => ({ code: 'bad-request', message })
const NO_ID = badRequest(
  'A request is {"type": …, "data": {"id": …}}, and `data.id` is a string of 1 to 64 characters',
)
const NO_TYPE = badRequest(`\`type\` is one of ${Object.keys(answerTypes).join(', ')}`)
const FRAMING = badRequest(`A frame is one JSON object of at most ${MAX_FRAME_BYTES} bytes and a form feed`)
