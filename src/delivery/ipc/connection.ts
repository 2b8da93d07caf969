// One client of `ipc.sock`: its requests in, their answers out.
import { isRecord } from '../../lib/json.ts'
import { answerTypes, FRAME_END, MAX_FRAME_BYTES, type Fault, type RequestType } from '../../protocol.ts'
import { Connection, type ConnectionOptions, type DropReason } from '../connections/connection.ts'
import { MAX_SUBSCRIPTIONS, MAX_UNSENT_BYTES, MAX_WAITING } from '../limits.ts'
import { isRequestType, type Operations, type Reply } from '../operations.ts'
import type { CachedToken } from '../replies.ts'
import { readId } from '../requests.ts'
import { decodeFrame, encodeFrame, encodeTokenFrame, isProtocolError } from './frames.ts'

const FRAME_END_BYTE = FRAME_END.charCodeAt(0)

export class IpcConnection extends Connection {
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
    if (end === -1) {
      if (bytes.length - at > MAX_FRAME_BYTES) this.host.drop(this, 'broken-framing')
      return at
    }
    try {
      this.answer(decodeFrame(bytes.toString('utf8', at, end)))
    } catch (error) {
      if (!isProtocolError(error)) throw error
      this.host.drop(this, 'broken-framing')
    }
    return end + 1
  }

  protected override mayParse(): boolean {
    return this.waiting < MAX_WAITING && this.out.length + this.unsentBytes() < MAX_UNSENT_BYTES
  }

  protected override afterTurn(): void {
    this.flush()
  }

  // ---- answering ----------------------------------------------------------------------------------------------------

  private answer(message: unknown): void {
    if (this.isClosing) return
    const { type, data } = isRecord(message) ? message : { type: undefined, data: undefined }
    const id = readId(data)
    const denial = this.isAllowed ? null : this.operations.denial(this)
    if (denial !== null) this.refuse(id, denial, 'denied')
    else if (!this.noteRequest()) this.refuse(id, { code: 'busy', message: TOO_OFTEN }, 'too-many-requests')
    else if (id === null || !isRecord(data)) this.writeFault(id, { code: 'bad-request', message: ID_SHAPE })
    else if (isRequestType(type)) this.perform(type, id, data)
    else this.writeFault(id, { code: 'bad-request', message: TYPES })
  }

  private perform(type: RequestType, id: string, data: Record<string, unknown>): void {
    const { ids } = this
    const subscribes = type === 'token.subscribe'
    if (subscribes && ids !== null && ids.size >= MAX_SUBSCRIPTIONS && !ids.has(id)) {
      return this.refuse(id, { code: 'busy', message: TOO_MANY_SUBSCRIPTIONS }, 'too-many-subscriptions')
    }
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
    else if (isToken(reply.value)) this.out += encodeTokenFrame(type, id, reply.value)
    else this.out += encodeFrame(type, { id, ...reply.value })
  }

  private writeFault(id: string | null, fault: Fault): void {
    this.out += encodeFrame('fault', { id, ...fault })
  }

  private flush(): void {
    if (this.out === '' || this.isClosing) return
    this.socket.write(this.out)
    this.out = ''
    this.awaitSent()
  }

  // ---- ending -------------------------------------------------------------------------------------------------------

  /** The client is over a limit: this is its last answer. */
  private refuse(id: string | null, fault: Fault, reason: DropReason): void {
    this.writeFault(id, fault)
    this.host.drop(this, reason)
  }

  /** With the answers that were made before it. */
  override closeMessage(reason: DropReason): string | null {
    const fault = reason === 'denied' ? this.operations.denial(this) : closeFaults[reason]
    // A refused request has its fault already, with its id.
    if (fault && (reason !== 'denied' || this.out === '')) this.writeFault(null, fault)
    return this.out === '' ? null : this.out
  }
}

/** A subscription needs no token, but a request that is in order. */
function isSubscribed(reply: Reply): boolean {
  return !('fault' in reply) || (reply.fault.code !== 'bad-request' && reply.fault.code !== 'denied')
}

const isToken = (value: object): value is CachedToken => 'jsonTail' in value

const ID_SHAPE =
  'A request is {"type": …, "data": {"id": …}}, and `data.id` is a string of 1 to 64 characters'
const TYPES = `\`type\` is one of ${Object.keys(answerTypes).join(', ')}`
const TOO_OFTEN = 'More requests per second than `maxRequestsPerSecond` allows: send fewer'
const TOO_MANY_SUBSCRIPTIONS = `One connection has at most ${MAX_SUBSCRIPTIONS} subscriptions: open another`

/** Faults without an id, for the reasons that no single request has. */
const closeFaults: Partial<Record<DropReason, Fault>> = {
  'too-many-connections': {
    code: 'busy',
    message: 'Too many connections: close some, or raise `maxConnections` and `maxConnectionsPerUser`',
  },
  'broken-framing': {
    code: 'bad-request',
    message: `A frame is one JSON object of at most ${MAX_FRAME_BYTES} bytes and a form feed`,
  },
}
