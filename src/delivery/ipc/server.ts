// `ipc.sock`: the operations over node-ipc's frames, which its own parser reads and writes. The server of node-ipc is not
// used: its limits and timers see one connection at a time, and it asks for the host's network interfaces, which the service's
// sandbox forbids.
import { FastParser, IPCProtocolError } from 'node-ipc/parsers'
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
  Connection,
  type ConnectionOptions,
  type DropReason,
  type Refusal,
} from '../connections/connection.ts'
import { createConnectionServer, type ConnectionServer, type ServerOptions } from '../connections/server.ts'
import { MAX_SUBSCRIPTIONS, MAX_UNSENT_BYTES, MAX_WAITING } from '../limits.ts'
import { createOperations, isRequestType, type Operations, type Reply } from '../operations.ts'
import type { DeliveryContext } from '../servers.ts'

const FRAME_END_BYTE = FRAME_END.charCodeAt(0)
/** Frames of any JSON: a message that is no request is handed on, and gets an answer. */
const parser = new FastParser({ delimiter: FRAME_END })

export function createIpcServer(options: DeliveryContext & ServerOptions): ConnectionServer {
  const transport = 'ipc'
  const operations = createOperations({ ...options, transport })
  const open = (connection: ConnectionOptions): Connection => new IpcConnection(connection, operations)
  return createConnectionServer({ transport, operations, framing: FRAMING, open }, options)
}

class IpcConnection extends Connection {
  private readonly operations: Operations
  /** Answers that are sent together. */
  private out = ''
  private ids: Set<string> | null = null

  constructor(options: ConnectionOptions, operations: Operations) {
    super(options)
    this.operations = operations
  }

  // ---- reading ------------------------------------------------------------------------------------------------------

  protected override parseNext(bytes: Buffer, at: number): number {
    const end = bytes.indexOf(FRAME_END_BYTE, at)
    if ((end === -1 ? bytes.length : end) - at > MAX_FRAME_BYTES) this.host.drop(this, 'broken-framing')
    else if (end !== -1) this.answer(bytes.toString('utf8', at, end))
    return end === -1 ? at : end + 1
  }

  protected override mayParse(): boolean {
    return this.waiting < MAX_WAITING && this.out.length + this.unsentBytes() < MAX_UNSENT_BYTES
  }

  protected override afterTurn(): void {
    this.flush()
  }

  // ---- answering ----------------------------------------------------------------------------------------------------

  private answer(frame: string): void {
    const message = decode(frame)
    if (message === BROKEN) return this.host.drop(this, 'broken-framing')
    const { type, data: fields } = isRecord(message) ? message : NOTHING
    const data = isRecord(fields) ? fields : NOTHING
    const id = isId(data['id']) ? data['id'] : null
    const refusal = this.noteRequest()
    if (refusal !== null) this.refuse(id, refusal)
    else if (id === null) this.writeFault(id, { code: 'bad-request', message: ID_SHAPE })
    else if (isRequestType(type)) this.perform(type, id, data)
    else this.writeFault(id, { code: 'bad-request', message: TYPES })
  }

  private perform(type: RequestType, id: string, data: Readonly<Record<string, unknown>>): void {
    const { ids } = this
    const subscribes = type === 'token.subscribe'
    if (subscribes && ids !== null && ids.size >= MAX_SUBSCRIPTIONS && !ids.has(id))
      return this.refuse(id, TOO_MANY_SUBSCRIPTIONS)
    const reply = this.operations.perform(type, data, this)
    if (reply instanceof Promise) {
      return this.later(reply, (value) => {
        this.write(answerTypes[type], id, value)
        this.flush()
      })
    }
    this.write(answerTypes[type], id, reply)
    if (subscribes && isSubscribed(reply)) this.subscribe(id)
  }

  private subscribe(id: string): void {
    if (this.isEnding) return
    this.ids ??= new Set()
    this.ids.add(id)
    this.subscriptions = this.ids.size
  }

  protected override pushToken(): void {
    for (const id of this.ids ?? []) this.write('token.changed', id, this.operations.changedToken(this))
    this.flush()
  }

  private write(type: string, id: string, reply: Reply): void {
    if ('fault' in reply) this.writeFault(id, reply.fault)
    else if (!('jsonTail' in reply.value)) this.out += parser.encode(type, { id, ...reply.value })
    // The JSON of the token is ready: only the id is put in.
    else
      this.out += `{"type":"${type}","data":{"id":${JSON.stringify(id)},${reply.value.jsonTail}}${FRAME_END}`
  }

  private writeFault(id: string | null, fault: Fault): void {
    this.out += parser.encode('fault', { id, ...fault })
  }

  private flush(): void {
    if (this.out === '' || this.isClosing) return
    this.socket.write(this.out)
    this.out = ''
    this.awaitSent()
  }

  // ---- ending -------------------------------------------------------------------------------------------------------

  /** This is the last answer. */
  private refuse(id: string | null, { reason, fault }: Refusal): void {
    this.writeFault(id, fault)
    this.host.drop(this, reason)
  }

  /** With the answers that were made before it. */
  override closeMessage(reason: DropReason, fault: Fault | undefined): string | null {
    // A refused request has its fault already, with its id.
    if (fault !== undefined && (reason !== 'denied' || this.out === '')) this.writeFault(null, fault)
    return this.out === '' ? null : this.out
  }
}

function isId(id: unknown): id is string {
  return typeof id === 'string' && id !== '' && id.length <= MAX_ID_LENGTH
}

/** A subscription needs no token, but a request that is in order. */
function isSubscribed(reply: Reply): boolean {
  return !('fault' in reply) || (reply.fault.code !== 'bad-request' && reply.fault.code !== 'denied')
}

const BROKEN = Symbol('no JSON')
const NOTHING: Readonly<Record<string, unknown>> = {}

/** The message of a frame, which is any JSON. */
function decode(frame: string): unknown {
  try {
    return parser.decode(frame)
  } catch (error) {
    if (error instanceof IPCProtocolError) return BROKEN
    throw error
  }
}

const ID_SHAPE =
  'A request is {"type": …, "data": {"id": …}}, and `data.id` is a string of 1 to 64 characters'
const TYPES = `\`type\` is one of ${Object.keys(answerTypes).join(', ')}`
const TOO_MANY_SUBSCRIPTIONS: Refusal = {
  reason: 'too-many-subscriptions',
  fault: {
    code: 'busy',
    message: `One connection has at most ${MAX_SUBSCRIPTIONS} subscriptions: open another`,
  },
}
const FRAMING = `A frame is one JSON object of at most ${MAX_FRAME_BYTES} bytes and a form feed`
