// `http.sock`: the daemon's replies over HTTP/1.1.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { RejectVerdict } from '../protocol.ts'
import { createBucket } from './bucket.ts'
import { createDoor } from './door.ts'
import type { DropReason, Guest } from './guest.ts'
import { lastAnswer, sendProblem } from './http-answers.ts'
import { createHttpRoutes, notAllowed, type Metrics } from './http-routes.ts'
import { createRegister } from './register.ts'
import { noRejects, type DeliveryServer, type ServerOptions } from './server.ts'

/** One connection, as far as HTTP goes. */
interface Connection {
  readonly guest: Guest
  readonly mayAsk: ReturnType<typeof createBucket>
  readonly waiting: AbortController
  /** The last answer that was begun. */
  res: ServerResponse | null
  /** It is an event stream, and this is the answer that goes on. */
  stream: ServerResponse | null
  /** It has not read the last change yet. */
  isBehind: boolean
  isAwaitingSent: boolean
  /** Requests that wait for the answer to the one before. */
  queued: number
  /** It has asked something since the last sweep. */
  hasAsked: boolean
  /** What had been read at the sweep after its last request. */
  bytesRead: number
}

const MAX_HEADER_BYTES = 8192
/** About what a request that waits holds, in bytes. */
const WAITING_BYTES = 2048

export function createHttpServer(options: ServerOptions & { readonly metrics: Metrics }): DeliveryServer {
  const { replies, holdings, metrics } = options
  const connections = createRegister<Socket, Connection>()
  const rejects = noRejects()
  const http = createParser()
  const door = createDoor(
    {
      transport: 'http',
      welcome,
      beforeLook,
      lastWords: (reason) => lastWords[reason] ?? null,
      beforeLastWords: () => undefined,
      finish,
      forget(guest) {
        connections.get(guest.socket)?.waiting.abort()
        connections.delete(guest.socket)
      },
    },
    options,
  )
  const onReject = (verdict: RejectVerdict): void => void (rejects[verdict] += 1)
  const routes = createHttpRoutes({ door, replies, metrics, onReject, onStream })

  http.on('request', onRequest)
  // Nothing that a client may expect changes the answer.
  http.on('checkExpectation', onRequest)
  http.on('connect', (_req: IncomingMessage, socket: Socket) => onTunnel(socket))
  http.on('clientError', (_error, socket) => {
    const connection = connections.get(socket as Socket)
    // In the midst of an answer there is no room for another.
    if (connection === undefined || connection.stream !== null || isAnswering(connection)) socket.destroy()
    else door.drop(connection.guest, 'broken-framing')
  })

  /** A reload may end this server and begin another: only what runs is told of changes. */
  async function run(...given: Parameters<DeliveryServer['run']>): Promise<void> {
    const endListening = replies.onChange(() => {
      for (const connection of connections.values) tellChange(connection)
    })
    await door.run(...given).finally(endListening)
  }

  /** CONNECT: the answer has no ServerResponse, and the connection is of no more use. */
  function onTunnel(socket: Socket): void {
    const connection = connections.get(socket)
    if (connection !== undefined) door.drop(connection.guest, 'broken-framing')
  }

  function welcome(guest: Guest): void {
    const { socket } = guest
    const connection = newConnection(guest)
    connections.set(socket, connection)
    http.emit('connection', socket)
    socket.on('end', () => connection.stream?.end())
  }

  function onRequest(req: IncomingMessage, res: ServerResponse): void {
    const connection = connections.get(req.socket)
    if (connection === undefined || connection.guest.isLeaving) return
    if (res.socket !== null) return serve(connection, req, res)
    // A pipelined request: its answer is made when the one before is sent, so no more than one is held.
    connection.queued += 1
    weigh(connection)
    res.once('socket', () => {
      connection.queued -= 1
      process.nextTick(serve, connection, req, res)
    })
  }

  function serve(connection: Connection, req: IncomingMessage, res: ServerResponse): void {
    const { guest } = connection
    if (guest.isLeaving) return
    connection.res = res
    connection.hasAsked = true
    guest.idleSweeps = 0
    guest.partialSweeps = 0
    if (!connection.mayAsk(door.config().maxRequestsPerSecond)) return loseForBusy(connection, res)
    try {
      const [path, query] = splitTarget(req.url ?? '')
      const later = routes.serve({ guest, req, res, path, query, signal: connection.waiting.signal })
      if (later instanceof Promise) void settle(connection, later)
    } catch (error) {
      door.blameUs(guest, error)
    }
    weigh(connection)
  }

  async function settle(connection: Connection, later: Promise<void>): Promise<void> {
    const { guest } = connection
    guest.pending += 1
    try {
      await later
    } catch (error) {
      if (!guest.isLeaving) door.blameUs(guest, error)
    }
    guest.pending -= 1
    guest.idleSweeps = 0
    if (guest.isLeaving) return
    weigh(connection)
    door.watch()
  }

  function loseForBusy({ guest }: Connection, res: ServerResponse): void {
    const message = 'More requests per second than `maxRequestsPerSecond` allows: ask less often'
    sendProblem(res, { code: 'busy', message }, ['Connection', 'close'])
    door.drop(guest, 'too-many-requests')
  }

  function weigh(connection: Connection): void {
    const { guest, queued } = connection
    if (guest.isLeaving) return
    const held = guest.socket.writableLength + (queued + guest.pending) * WAITING_BYTES
    if (held !== guest.held) holdings.hold(guest, held)
    if (guest.socket.writableLength > 0) awaitSent(connection)
  }

  /** Node tells by 'drain' only of what goes beyond its own high-water mark; an empty write is behind everything else. */
  function awaitSent(connection: Connection): void {
    door.watch()
    if (connection.isAwaitingSent) return
    connection.isAwaitingSent = true
    connection.guest.socket.write('', () => {
      connection.isAwaitingSent = false
      if (connection.guest.socket.destroyed) return
      weigh(connection)
      if (connection.isBehind) tellChange(connection)
    })
  }

  // ---- event streams ------------------------------------------------------------------------------------------------

  function onStream(guest: Guest, res: ServerResponse): void {
    const connection = connections.get(guest.socket)
    if (connection === undefined) return
    res.writeHead(200, ['Content-Type', 'text/event-stream', 'Cache-Control', 'no-store'])
    if (res.req.method === 'HEAD') return void res.end()
    res.flushHeaders()
    connection.stream = res
    guest.subscriptions = 1
    if (replies.prepared() !== null) tellChange(connection)
  }

  /** Who has not read the last change yet gets the newest later, in place of this one. */
  function tellChange(connection: Connection): void {
    const { guest, stream } = connection
    if (stream === null || guest.isLeaving) return
    connection.isBehind = guest.socket.writableLength > 0
    if (connection.isBehind) return
    const reply = guest.isAllowed ? replies.current() : { fault: notAllowed }
    if ('fault' in reply) stream.write(`event: fault\ndata: ${JSON.stringify(reply.fault)}\n\n`)
    else {
      stream.write(`event: token.changed\ndata: {${reply.value.tail}\n\n`)
      door.took(guest, null)
    }
    weigh(connection)
  }

  // ---- watching and ending ------------------------------------------------------------------------------------------

  /** Slow headers: something was read since the last request, and it is none yet. */
  function beforeLook(guest: Guest): void {
    const connection = connections.get(guest.socket)
    if (connection === undefined || guest.pending > 0) return
    const { bytesRead } = guest.socket
    if (connection.hasAsked) connection.bytesRead = bytesRead
    connection.hasAsked = false
    guest.hasPartialRequest = bytesRead > connection.bytesRead
  }

  function finish(guest: Guest): void {
    const connection = connections.get(guest.socket)
    if (connection === undefined) return
    const { socket } = guest
    const { stream, res } = connection
    connection.waiting.abort()
    stream?.end()
    if (res === null || !isAnswering(connection)) socket.destroySoon()
    else res.once('close', () => socket.destroySoon())
  }

  return {
    run,
    reconfigure: door.reconfigure,
    look: door.look,
    counts: () => ({ ...door.counts(), rejects: { ...rejects } }),
  }
}

function newConnection(guest: Guest): Connection {
  return {
    guest,
    mayAsk: createBucket(),
    waiting: new AbortController(),
    res: null,
    stream: null,
    isBehind: false,
    isAwaitingSent: false,
    queued: 0,
    hasAsked: false,
    bytesRead: 0,
  }
}

/** Also of the absolute form, which a client sends that takes us for a proxy (RFC 9112, section 3.2.2). */
function splitTarget(target: string): [path: string, query: string] {
  const own = target.startsWith('/') ? target : target.replace(/^https?:\/\/[^/?]*/i, '')
  const at = own.indexOf('?')
  return at === -1 ? [own, ''] : [own.slice(0, at), own.slice(at + 1)]
}

function isAnswering({ res }: Connection): boolean {
  return res !== null && !res.writableFinished
}

/** Node's HTTP on sockets that are handed to it. It has no timers then; who is slow is shown out at the door. */
function createParser(): Server {
  const http = createServer({
    maxHeaderSize: MAX_HEADER_BYTES,
    keepAliveTimeout: 0,
    noDelay: false,
    // There is one host here, whatever it is called.
    requireHostHeader: false,
  })
  http.timeout = 0
  // A client that half-closes after its request gets its answer. Node has it since 2011, and no name for it in its types.
  return Object.assign(http, { httpAllowHalfOpen: true })
}

const lastWords: Partial<Record<DropReason, string>> = {
  'too-many-connections': lastAnswer(
    503,
    'busy',
    'Too many connections: close some, or raise `maxConnections` and `maxConnectionsPerUser`',
  ),
  'broken-framing': lastAnswer(
    400,
    'bad-request',
    'This is not a request of HTTP/1.1 with a head of at most 8 KiB',
  ),
  'incomplete-request': lastAnswer(408, 'bad-request', 'The request did not end in time'),
  // This was told in the answer to the request.
  'too-many-requests': '',
}
