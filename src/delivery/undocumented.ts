// The means of Node that are not documented, all of them: the descriptor of a socket, answers after a
// half-close, and the hook before the parser of HTTP.
import { createServer, type IncomingMessage, type Server as HttpServer } from 'node:http'
import { Socket, type Server } from 'node:net'
import { PassThrough } from 'node:stream'
import { exitStatus, UserError } from '../lib/error.ts'

interface Parser {
  /** Called for each head. `2`: what follows is no HTTP, and is not parsed. */
  onIncoming: (request: IncomingMessage, keepAlive: boolean) => number
}
type Inner<T> = T & { readonly _handle?: { readonly fd: number } | null; readonly parser?: Parser | null }

/** The descriptor of a connection or a listening socket; -1: it is closed. */
export function descriptorOf(socket: Socket | Server): number {
  const { _handle: handle } = socket as Inner<typeof socket>
  return handle?.fd ?? -1
}

/** A client that has ended its side, or whose side the daemon has ended, still gets its answers. */
export function allowHalfOpen(server: HttpServer): void {
  const inner: HttpServer & { httpAllowHalfOpen?: boolean } = server
  inner.httpAllowHalfOpen = true
}

/**
 * Calls `isWanted` for each head before Node makes anything of it. False: nothing that follows is parsed. Without
 * that, 64 KiB of pipelined heads become thousands of requests at once, whatever is destroyed meanwhile.
 */
export function checkHeads(socket: Socket, isWanted: (request: IncomingMessage) => boolean): void {
  const { parser } = socket as Inner<Socket>
  if (!parser) return
  const { onIncoming } = parser
  parser.onIncoming = (request, keepAlive) => (isWanted(request) ? onIncoming(request, keepAlive) : 2)
}

/** Throws UserError (78) if this Node has one of these means no more. */
export function assertMeans(): void {
  const server = createServer()
  const stream = new PassThrough()
  server.emit('connection', stream)
  const { parser } = stream as Inner<PassThrough>
  const hasAll = typeof parser?.onIncoming === 'function' && '_handle' in new Socket()
  stream.destroy()
  if (hasAll) return
  const message = `Node ${process.version} lacks what guards the sockets: run kyc-tokend with Node 24`
  throw new UserError(message, exitStatus.configuration)
}
