// `ipc.sock`: the operations over node-ipc's frames, which its own guarded parser reads. The server of node-ipc
// is not used: its limits see one connection at a time, and it asks for the host's network interfaces, which
// the unit's sandbox forbids.
// @ts-expect-error: node-ipc 14 has no types.
import { GuardedParser } from 'node-ipc/parsers'
import { isRecord } from '../lib/input.ts'
import type { Log } from '../lib/log.ts'
import { answerTypes, FRAME_END, MAX_FRAME_BYTES, MAX_ID_LENGTH, type RequestType } from '../protocol.ts'
import { fail, safely, type Connection, type Protocol, type Session } from './guard.ts'
import * as most from './limits.ts'
import { faultOf, isRequestType, type Operations } from './operations.ts'
import type { Reply } from './replies.ts'

const parser = new GuardedParser({
  delimiter: FRAME_END,
  maxMessageSize: MAX_FRAME_BYTES,
  maxPendingBytes: MAX_FRAME_BYTES,
  maxEventNameLength: 64,
  messageTimeout: 0,
  allowReservedEvents: true,
}) as { decode(frame: string): { readonly type: string; readonly data?: unknown } }
const END = FRAME_END.charCodeAt(0)

export function createIpc({ operations, log }: { operations: Operations; log: Log }): Protocol {
  /** All connections are read into it. */
  const input = Buffer.allocUnsafeSlow(most.READ_BYTES)
  return (client) => createSession(client, { operations, log, input })
}

function createSession(
  client: Connection,
  { operations, log, input }: { operations: Operations; log: Log; input: Buffer },
): Session {
  /** This was received and is not answered yet; null: nothing. */
  let kept: Buffer | null = null
  /** Answers for which requests have waited, and that are not sent yet. */
  const late: string[] = []
  /** The last of the subscriptions, that have not been sent the newest token. */
  let behind = 0
  /** The rest of what it has sent is answered in the next turn. */
  let isPlanned = false
  /** The connection ends once what was answered is sent. */
  let isEnding = false

  function receive(length: number): boolean {
    try {
      const bytes = kept === null ? input : Buffer.concat([kept, input.subarray(0, length)])
      answerFrames(bytes, kept === null ? length : bytes.length)
      return settle()
    } catch (error) {
      fail(client, log, error)
      return false
    }
  }

  /** Answers a few frames together, and keeps the rest. */
  function answerFrames(bytes: Buffer, length: number): void {
    let [from, out] = [0, '']
    for (let count = 0; count < most.FRAMES_IN_A_TURN && out.length < most.WRITE_BYTES; count += 1) {
      const end = isHeldUp() ? -1 : bytes.indexOf(END, from)
      if (end === -1 || end >= length) break
      out += answer(end - from > MAX_FRAME_BYTES ? '' : bytes.toString('utf8', from, end))
      from = end + 1
    }
    const rest = bytes.subarray(from, length)
    kept = rest.length === 0 ? null : bytes === input ? Buffer.from(rest) : rest
    if (rest.length > MAX_FRAME_BYTES && !hasFrame()) out += lastAnswer('broken-framing', null, BAD_FRAME)
    write(out)
    if (isEnding) client.socket.destroySoon()
  }

  function answer(frame: string): string {
    client.requests += 1
    const message = messageOf(frame)
    // No other frame can be found after what is none.
    if (message === null) return lastAnswer('broken-framing', null, BAD_FRAME)
    const { type, data } = message
    const id = isRecord(data) && isId(data['id']) ? data['id'] : null
    const refusal = operations.admit(client)
    if (refusal !== null) return lastAnswer(client.drop, id, refusal)
    if (id === null) return textOf('', null, BAD_ID)
    return isRequestType(type) ? perform(type, id, data as Record<string, unknown>) : textOf('', id, BAD_TYPE)
  }

  /** Returns the answer; empty: it comes later. */
  function perform(type: RequestType, id: string, data: Record<string, unknown>): string {
    const isSubscription = type === 'token.subscribe' && !client.subscriptions.includes(id)
    if (isSubscription && client.subscriptions.length >= most.MAX_SUBSCRIPTIONS)
      return lastAnswer('too-many-subscriptions', id, TOO_MANY)
    const reply = operations.perform(type, data, client)
    if (reply instanceof Promise) {
      void answerLater(type, id, reply)
      return ''
    }
    const isValid = !('fault' in reply) || reply.fault.code !== 'bad-request'
    // The last ones may lack the newest token.
    if (isSubscription && isValid && !client.socket.readableEnded)
      client.subscriptions = [id, ...client.subscriptions]
    return textOf(answerTypes[type], id, reply)
  }

  async function answerLater(type: RequestType, id: string, reply: Promise<Reply>): Promise<void> {
    client.waiting += 1
    try {
      late.push(textOf(answerTypes[type], id, await reply))
      plan()
    } catch (error) {
      fail(client, log, error)
    }
  }

  function lastAnswer(drop: Connection['drop'], id: string | null, reply: Reply): string {
    client.drop = drop
    isEnding = true
    return textOf('', id, reply)
  }

  /** Each client gets a little in each turn of the event loop. */
  function plan(): void {
    if (!isPlanned) setImmediate(goOnSafely)
    isPlanned = true
  }

  const goOnSafely = (): void => safely(client, log, goOn)

  /** Goes on in a later turn, or once the client reads. */
  function goOn(): void {
    isPlanned = false
    if (!client.socket.writable) return
    sendRest()
    if (kept !== null) answerFrames(kept, kept.length)
    if (settle()) client.socket.resume()
    else client.socket.pause()
  }

  /** Sends what is ready, as far as the client reads. */
  function sendRest(): void {
    while (late.length + behind > 0 && !client.socket.writableNeedDrain) write(readyAnswers())
  }

  /** Those that are sent together next. */
  function readyAnswers(): string {
    let out = ''
    for (; late.length > 0 && out.length < most.WRITE_BYTES; client.waiting -= 1) out += late.shift()!
    if (behind === 0) return out
    const reply = operations.changed(client)
    for (; behind > 0 && out.length < most.WRITE_BYTES; behind -= 1)
      out += textOf('token.changed', client.subscriptions.at(-behind)!, reply)
    return out
  }

  function write(out: string): void {
    if (out !== '' && client.socket.writable) client.socket.write(out)
  }

  /** Returns whether more may be read. */
  function settle(): boolean {
    const isMore = hasFrame()
    if (isMore && !isHeldUp()) plan()
    if (!isMore && client.waiting === 0 && client.socket.readableEnded) client.socket.destroySoon()
    return !isMore && !isHeldUp()
  }

  /** Reports whether the next request has to wait: until the client reads or another one is answered, or for ever. */
  function isHeldUp(): boolean {
    const { waiting, socket } = client
    return isEnding || waiting >= most.MAX_WAITING || socket.writableNeedDrain || !socket.writable
  }

  const hasFrame = (): boolean => kept !== null && client.socket.writable && kept.includes(END)

  return {
    options: {
      writableHighWaterMark: most.WRITE_BYTES,
      onread: { buffer: input, callback: receive },
    },
    begin() {
      client.socket.on('drain', goOnSafely)
      client.socket.on('end', () => {
        client.subscriptions = []
        behind = 0
        goOnSafely()
      })
    },
    push() {
      behind = client.subscriptions.length
      sendRest()
    },
  }
}

function textOf(type: string, id: string | null, reply: Reply): string {
  return 'fault' in reply
    ? JSON.stringify({ type: 'fault', data: { id, ...reply.fault } }) + FRAME_END
    : `{"type":"${type}","data":{"id":${JSON.stringify(id)}${reply.frameRest}`
}

function isId(id: unknown): id is string {
  return typeof id === 'string' && id !== '' && id.length <= MAX_ID_LENGTH
}

/** Null: it is no message. */
function messageOf(frame: string): ReturnType<typeof parser.decode> | null {
  try {
    return parser.decode(frame)
  } catch {
    return null
  }
}

const BAD_ID = faultOf('bad-request', `\`data.id\` is a string of 1 to ${MAX_ID_LENGTH} characters`)
const BAD_TYPE = faultOf('bad-request', `\`type\` is one of ${Object.keys(answerTypes).join(', ')}`)
const BAD_FRAME = faultOf('bad-request', `A frame is a JSON object of at most ${MAX_FRAME_BYTES} bytes`)
const TOO_MANY = faultOf(
  'busy',
  `At most ${most.MAX_SUBSCRIPTIONS} subscriptions on one connection: open another`,
)
