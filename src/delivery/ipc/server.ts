// `ipc.sock`: the operations over node-ipc's frames, which its own parser reads and writes. The server of node-ipc is not
// used: its limits and timers see one connection at a time, and it asks for the host's network interfaces, which the unit's
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
import { Connection, type ConnectionOptions, type DropReason } from '../connections/connection.ts'
import { createConnectionServer, type ConnectionServer, type ServerOptions } from '../connections/server.ts'
import { MAX_SUBSCRIPTIONS, MAX_WAITING } from '../limits.ts'
import { createOperations, isInOrder, isRequestType, type Reply } from '../operations.ts'
import type { DeliveryContext } from '../servers.ts'

const FRAME_END_BYTE = FRAME_END.charCodeAt(0)
/** It decodes any JSON: a message that is no request gets an answer, too. */
const parser = new FastParser({ delimiter: FRAME_END })

export function createIpcServer(options: DeliveryContext & ServerOptions): ConnectionServer {
  const operations = createOperations({ ...options, transport: 'ipc' })
  const open = (connection: ConnectionOptions): Connection => new IpcConnection(connection)
  return createConnectionServer({ transport: 'ipc', operations, framing: FRAMING, open }, options)
}

class IpcConnection extends Connection {
  /** Answers that are sent together. */
  private out = ''
  private isRefused = false

  protected override parseNext(bytes: Buffer, at: number): number {
    const end = bytes.indexOf(FRAME_END_BYTE, at)
    if ((end === -1 ? bytes.length : end) - at > MAX_FRAME_BYTES) this.host.drop(this, 'broken-framing')
    else if (end !== -1) this.answer(bytes.toString('utf8', at, end))
    return end === -1 ? at : end + 1
  }

  protected override mayParse(): boolean {
    return this.waiting < MAX_WAITING && this.hasSpace()
  }

  protected override unsentBytes(): number {
    return this.out.length + super.unsentBytes()
  }

  private answer(frame: string): void {
    let message: unknown
    try {
      message = parser.decode(frame)
    } catch (error) {
      if (!(error instanceof IPCProtocolError)) throw error
      return this.host.drop(this, 'broken-framing')
    }
    const { type, data: fields } = isRecord(message) ? message : NOTHING
    const data = isRecord(fields) ? fields : NOTHING
    const { id: given } = data
    const id = typeof given === 'string' && given !== '' && given.length <= MAX_ID_LENGTH ? given : null
    const refusal = this.noteRequest()
    if (refusal !== null) this.refuse(id, refusal)
    else if (id === null) this.writeFault(id, NO_ID)
    else if (isRequestType(type)) this.perform(type, id, data)
    else this.writeFault(id, NO_TYPE)
  }

  private perform(type: RequestType, id: string, data: Readonly<Record<string, unknown>>): void {
    const { subscriptions } = this
    const subscribes = type === 'token.subscribe'
    if (subscribes && subscriptions.size >= MAX_SUBSCRIPTIONS && !subscriptions.has(id))
      return this.refuse(id, 'too-many-subscriptions')
    const reply = this.host.operations.perform(type, data, this)
    if (reply instanceof Promise)
      return this.later(reply, (value) => this.write(answerTypes[type], id, value))
    this.write(answerTypes[type], id, reply)
    if (subscribes && !this.isEnding && isInOrder(reply)) subscriptions.set(id, true)
  }

  protected override pushToken(id: string): void {
    this.write('token.changed', id, this.host.operations.changedToken(this))
  }

  private write(type: string, id: string, reply: Reply): void {
    if ('fault' in reply) this.writeFault(id, reply.fault)
    else if (!('jsonTail' in reply.value)) this.out += parser.encode(type, { id, ...reply.value })
    // The JSON of the token is ready: only the id is inserted.
    else
      this.out += `{"type":"${type}","data":{"id":${JSON.stringify(id)},${reply.value.jsonTail}}${FRAME_END}`
  }

  private writeFault(id: string | null, fault: Fault): void {
    this.out += parser.encode('fault', { id, ...fault })
  }

  protected override afterTurn(): void {
    if (this.out === '' || this.isClosing) return
    this.socket.write(this.out)
    this.out = ''
    this.awaitSent()
  }

  /** Answers with a fault and closes the connection. */
  private refuse(id: string | null, reason: DropReason): void {
    this.isRefused = true
    this.writeFault(id, this.host.faults[reason]!)
    this.host.drop(this, reason)
  }

  /** Includes the answers that were made before and not sent yet. */
  override closeMessage(reason: DropReason): string | null {
    const fault = this.host.faults[reason]
    // A refused request has its fault already, with its id.
    if (fault !== undefined && !this.isRefused) this.writeFault(null, fault)
    return this.out === '' ? null : this.out
  }
}

const NOTHING: Readonly<Record<string, unknown>> = {}
const NO_ID: Fault = {
  code: 'bad-request',
  message: 'A request is {"type": …, "data": {"id": …}}, and `data.id` is a string of 1 to 64 characters',
}
const NO_TYPE: Fault = {
  code: 'bad-request',
  message: `\`type\` is one of ${Object.keys(answerTypes).join(', ')}`,
}
const FRAMING = `A frame is one JSON object of at most ${MAX_FRAME_BYTES} bytes and a form feed`
