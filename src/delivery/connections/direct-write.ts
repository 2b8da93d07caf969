// Writes past Node's streams, as accept.ts reads past them.
//
// `socket.write` keeps account of what was written in a dozen fields, makes a request object for each write, and queues
// a callback, all for the case that the kernel does not take everything at once. It nearly always does: an answer is
// small, and its client waits for it. With `--jitless` that account costs as much as reading and answering the request.
//
// So the text is given to the handle itself (`socket._handle.writeLatin1String`), which is what `socket.write` ends in.
// libuv tries to write at once. What the kernel does not take it queues, before whatever is written or ended later, and
// only then it uses the request object that was handed over: such an object has an async id. As long as it has none it
// serves for all connections. What is queued is counted in `unsentDirectly`, and while anything is unsent the stream is
// used. An error destroys the socket, as in Node; of all this the stream knows nothing.
//
// The class of the request objects is not exported: it is taken from the first write of all, which goes through the
// stream. Where Node is not as expected, all writes go through the stream. Only ASCII is written: one byte a character.
import type { Socket } from 'node:net'
import { unsentBytes, type Connection } from './connection.ts'

interface Handle {
  /** Returns 0, or the negative number of an error. */
  writeLatin1String(request: WriteRequest, text: string): number
  /** Bytes that libuv has queued. */
  readonly writeQueueSize: number
}
interface WriteRequest {
  /** -1 until it is used. */
  getAsyncId(): number
  /** Called when what was queued is sent, or cannot be. */
  oncomplete?: (status: number) => void
}

const NOT_USED = -1

/** null before the first write. */
let RequestClass: (new () => WriteRequest) | null = null
/** A request that was not used yet. */
let spare: WriteRequest | null = null
/** Node is not as expected. */
let isImpossible = false

/** Sends ASCII, through the stream where it cannot be done directly. False: some of it is unsent. */
export function writeDirectly(connection: Connection, text: string): boolean {
  const handle = handleOf(connection.socket)
  if (handle === null || isImpossible || unsentBytes(connection) > 0)
    return writeThroughStream(connection, text)
  if (spare === null) return learnRequestClass(handle, () => writeThroughStream(connection, text))
  const status = handle.writeLatin1String(spare, text)
  if (status !== 0) connection.socket.destroy()
  else if (spare.getAsyncId() !== NOT_USED) return awaitSent(connection, handle)
  return true
}

/** Sends ASCII as Node does. False: some of it is unsent. */
export function writeThroughStream(connection: Connection, text: string): boolean {
  connection.socket.write(text, 'latin1')
  return unsentBytes(connection) === 0
}

/** libuv has the request. The kernel may have taken everything all the same, at the second attempt. */
function awaitSent(connection: Connection, handle: Handle): boolean {
  connection.unsentDirectly = handle.writeQueueSize
  spare!.oncomplete = (status) => {
    connection.unsentDirectly = 0
    if (status < 0) connection.socket.destroy()
  }
  spare = new RequestClass!()
  return connection.unsentDirectly === 0
}

/** null once the socket is destroyed. */
function handleOf(socket: Socket): Handle | null {
  const { _handle: handle } = socket as Socket & { _handle?: Handle | null }
  return handle ?? null
}

function learnRequestClass(handle: Handle, write: () => boolean): boolean {
  const { writeLatin1String, writeQueueSize } = handle as Partial<Handle>
  isImpossible = typeof writeLatin1String !== 'function' || typeof writeQueueSize !== 'number'
  if (isImpossible) return write()
  handle.writeLatin1String = (request, text) => {
    RequestClass = request.constructor as new () => WriteRequest
    return writeLatin1String!.call(handle, request, text)
  }
  const isSent = write()
  delete (handle as Partial<Handle>).writeLatin1String
  if (RequestClass === null) return isSent
  const request = new RequestClass() as Partial<WriteRequest>
  isImpossible = request.getAsyncId?.() !== NOT_USED
  if (!isImpossible) spare = request as WriteRequest
  return isSent
}
