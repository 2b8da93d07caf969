// What is answered to each request on `ipc.sock`, whoever asks.
import { answerTypes, type Fault, type FaultCode, type RejectVerdict, type RequestType } from '../protocol.ts'
import type { Door } from './door.ts'
import type { Guest } from './guest.ts'
import type { FrameId, TokenFrameType } from './token-frame.ts'
import { PLAIN_ID, PlainTokenGet } from './ipc-framing.ts'
import { asciiOf, type Answer, type PreparedToken, type Replies } from './replies.ts'
import { isRecord, readId, readRejectRequest, readTokenRequest } from './requests.ts'

/** One client, as far as its requests go. */
export interface IpcClient {
  readonly guest: Guest
  /** Ids of its subscriptions. */
  readonly subscriptions: ReadonlySet<string>
  subscribe(id: string): void
  /** Aborted when it goes, and when the daemon stops: who waits is then answered with what there is. */
  readonly signal: AbortSignal
  /** It has ended its side: it hears the answers to what it asked, and nothing after. */
  isEnding: boolean
  /** Sends frames, in ASCII, with what else is answered at this moment. */
  say(frames: string): void
  /** Sends a frame with the token. */
  sayToken(type: TokenFrameType, id: FrameId, token: PreparedToken): void
  /** Something will be said later. */
  pend(said: Promise<void>): void
}

export interface IpcRequests {
  answer(client: IpcClient, message: unknown): void
  /** One request too many: says so, and the client loses its connection. */
  refuse(client: IpcClient, message: unknown): void
  /** Tells the token to all subscriptions of a client. */
  tellChange(client: IpcClient): void
}

const MAX_SUBSCRIPTIONS = 64
type Serve = (client: IpcClient, id: string, data: Record<string, unknown>) => void

export function createIpcRequests(options: {
  door: Door
  replies: Replies
  onReject: (verdict: RejectVerdict) => void
}): IpcRequests {
  const { door, replies, onReject } = options

  const serving = new Map<unknown, Serve>(
    Object.entries({
      'token.get': getToken,
      'token.subscribe': subscribe,
      'token.reject': reject,
      'status.get': (client, id) => sayAnswer(client, id, { type: 'status.result', reply: replies.status() }),
      'refresh.request': (client, id) => client.pend(refresh(client, id)),
    } satisfies Record<RequestType, Serve>),
  )

  function answer(client: IpcClient, message: unknown): void {
    if (message instanceof PlainTokenGet) {
      const token = client.guest.isAllowed ? replies.prepared() : null
      if (token === null) return answer(client, { type: 'token.get', data: { id: message.id } })
      client.sayToken('token.result', message, token)
      return door.took(client.guest, null)
    }
    const { type, data } = isRecord(message) ? message : { type: undefined, data: undefined }
    const id = readId(data)
    if (id === null || !isRecord(data))
      return sayFault(client, id, { code: 'bad-request', message: ID_SHAPE })
    if (!client.guest.isAllowed) return sayFault(client, id, { code: 'denied', message: NOT_ALLOWED })
    const serve = serving.get(type)
    if (serve === undefined) return sayFault(client, id, { code: 'bad-request', message: TYPES })
    serve(client, id, data)
  }

  function refuse(client: IpcClient, message: unknown): void {
    const id =
      message instanceof PlainTokenGet ? message.id : readId(isRecord(message) ? message['data'] : null)
    sayFault(client, id, { code: 'busy', message: TOO_OFTEN })
    door.drop(client.guest, 'too-many-requests')
  }

  function getToken(client: IpcClient, id: string, data: Record<string, unknown>): void {
    const reading = readTokenRequest(data)
    if ('mistake' in reading) return sayFault(client, id, { code: 'bad-request', message: reading.mistake })
    const name = reading.request.client ?? null
    const tell = (reply: Answer<PreparedToken>): void =>
      sayToken(client, id, { type: 'token.result', reply, name })
    const reply = replies.token(reading.request, client.signal)
    if (reply instanceof Promise) client.pend(reply.then(tell))
    else tell(reply)
  }

  function subscribe(client: IpcClient, id: string, data: Record<string, unknown>): void {
    const { guest, subscriptions } = client
    const reading = readTokenRequest(data)
    if ('mistake' in reading) return sayFault(client, id, { code: 'bad-request', message: reading.mistake })
    if (subscriptions.size >= MAX_SUBSCRIPTIONS && !subscriptions.has(id)) {
      sayFault(client, id, {
        code: 'busy',
        message: `One connection has at most ${MAX_SUBSCRIPTIONS} subscriptions`,
      })
      return door.drop(guest, 'too-many-subscriptions')
    }
    if (!client.isEnding) client.subscribe(id)
    const name = reading.request.client ?? null
    sayToken(client, id, { type: 'token.result', reply: replies.current(), name })
    replies.need(reading.request)
  }

  function reject(client: IpcClient, id: string, data: Record<string, unknown>): void {
    const reading = readRejectRequest(data)
    if ('mistake' in reading) return sayFault(client, id, { code: 'bad-request', message: reading.mistake })
    const reply = replies.reject(reading.request)
    if ('value' in reply) onReject(reply.value.verdict)
    sayAnswer(client, id, { type: 'reject.result', reply })
  }

  async function refresh(client: IpcClient, id: string): Promise<void> {
    if (await door.isPrivileged(client.guest)) {
      return sayAnswer(client, id, { type: 'refresh.result', reply: await replies.refresh(client.signal) })
    }
    const message = client.guest.peer === null ? REFRESH_UNKNOWN : REFRESH_DENIED
    sayFault(client, id, { code: 'denied', message })
  }

  function sayToken(
    client: IpcClient,
    id: string,
    { type, reply, name }: { type: TokenFrameType; reply: Answer<PreparedToken>; name: string | null },
  ): void {
    // Since it asked or subscribed, a reload may have taken the right away.
    if (!client.guest.isAllowed) return sayFault(client, id, { code: 'denied', message: NOT_ALLOWED })
    if ('fault' in reply) return sayFault(client, id, reply.fault)
    client.sayToken(type, escaped(id), reply.value)
    door.took(client.guest, name)
  }

  return {
    answer,
    refuse,
    tellChange(client) {
      const reply = replies.current()
      for (const id of client.subscriptions)
        sayToken(client, id, { type: 'token.changed', reply, name: null })
    },
  }
}

function sayAnswer(
  client: IpcClient,
  id: string,
  { type, reply }: { type: string; reply: Answer<object> },
): void {
  if ('fault' in reply) sayFault(client, id, reply.fault)
  else client.say(frameOf(type, { id, ...reply.value }))
}

function sayFault(client: IpcClient, id: string | null, fault: Fault): void {
  client.say(frameOf('fault', { id, ...fault }))
}

/** An id as it stands in JSON, in ASCII. Nearly all are plain words. */
function escaped(id: string): string {
  return PLAIN_ID.test(id) ? id : asciiOf(JSON.stringify(id)).slice(1, -1)
}

/** A frame, in ASCII. */
function frameOf(type: string, data: object): string {
  return `${asciiOf(JSON.stringify({ type, data }))}\f`
}

/** A fault that answers no request in particular. */
export function faultFrame(code: FaultCode, message: string): string {
  return frameOf('fault', { id: null, code, message })
}

const ID_SHAPE =
  'A request is {"type": …, "data": {"id": …}}, and `data.id` is a string of 1 to 64 characters'
const TYPES = `\`type\` is one of ${Object.keys(answerTypes).join(', ')}`
const NOT_ALLOWED = 'This user may not use this socket: have an administrator add it to `ipc.allow`'
const TOO_OFTEN = 'More requests per second than `maxRequestsPerSecond` allows: ask less often'
const REFRESH_DENIED =
  "Only root and the daemon's own user may ask for a refresh: use sudo, or report a refused token by `token.reject`"
const REFRESH_UNKNOWN =
  'Who asks cannot be known on this host, so a refresh is denied to everybody: send the daemon SIGUSR2'
