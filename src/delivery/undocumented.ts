// The means of Node that are not documented, all of them: the descriptor of a socket, answers after a
// half-close, and the hook before the parser of HTTP.
import type { IncomingMessage, Server as HttpServer } from 'node:http'
import type { Server, Socket } from 'node:net'

interface Parser {
  /** Node calls it for each head. `2`: the rest is no HTTP, and is not parsed. */
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
 * that, 64 KiB of pipelined heads become thousands of requests at once, whatever is destroyed meanwhile. Throws if
 * this Node has no such hook: the connection ends then.
 */
export function checkHeads(socket: Socket, isWanted: (request: IncomingMessage) => boolean): void {
  const { parser } = socket as Inner<Socket>
  if (!parser) return
  const { onIncoming } = parser
  if (typeof onIncoming !== 'function')
    throw new Error(`Node ${process.version} has no hook before the parser`)
  parser.onIncoming = (request, keepAlive) => (isWanted(request) ? onIncoming(request, keepAlive) : 2)
}
