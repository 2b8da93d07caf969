// The operations that clients may request, one table for both sockets: rights, validation, counting, and the
// reply.
import {
  answerTypes,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
  type AlertTestResult,
  type Fault,
  type FaultCode,
  type RejectRequest,
  type ReloadResult,
  type RequestType,
  type StatusResult,
  type TokenRequest,
} from '../protocol.ts'
import type { SocketConfig } from '../config/config.ts'
import { monotonicMs } from '../lib/clock.ts'
import { waitsOf, type Connection } from './guard.ts'
import { answerOf, isToken, type MaybePromise, type Replies, type Reply } from './replies.ts'
import type { TokenAudit, Transport } from './token-audit.ts'

/** The requests that only operators may make, and that other rooms carry out. */
export interface Requests {
  /** Raises a test alert, or says why it is refused. */
  readonly testAlert: () => MaybePromise<AlertTestResult>
  /** Reads the configuration again, and says how it went. */
  readonly reload: () => Promise<ReloadResult>
}
type Fields = TokenRequest & RejectRequest
type Operation = (fields: Fields, client: Connection) => MaybePromise<Reply>
export type Operations = ReturnType<typeof createOperations>

export function createOperations(options: {
  transport: Transport
  replies: Replies
  audit: TokenAudit
  requests: Requests
  /** For the status that operators get. */
  readers: () => NonNullable<StatusResult['readers']>
  limits: () => Pick<SocketConfig, 'maxRequestsPerSecond'>
}) {
  const { transport, replies, audit, requests, readers, limits } = options
  /** Since the start: reports of refused tokens by verdict, and tokens handed out. */
  const rejects = { replaced: 0, refreshing: 0, held: 0, unchanged: 0, refused: 0 }
  let reads = 0
  const denied = faultOf(
    'denied',
    `This user may not use the socket: have it added to \`${transport}.allow\``,
  )

  const operations: Readonly<Record<RequestType, Operation>> = {
    'token.get'(fields, client) {
      const reply = replies.token(fields, client)
      if (!(reply instanceof Promise)) return handOut(client, fields.client, reply)
      return reply.then((late) => handOut(client, fields.client, late))
    },
    'token.subscribe'(fields, client) {
      replies.need(fields)
      return handOut(client, fields.client, replies.current())
    },
    'token.reject'(fields, client) {
      const isFull = fields.accessToken !== undefined
      if (isFull === (fields.fingerprint !== undefined)) return faultOf('bad-request', ONE_OF_BOTH)
      const result = replies.reject(fields)
      rejects[result.verdict] += 1
      audit.noteReject(client.peer.uid, transport, fields.client)
      return answerOf(result)
    },
    'status.get': (_fields, client) => (isOperator(client) ? statusOfAll() : status()),
    'refresh.request': forOperators((client) => replies.refresh(waitsOf(client))),
    'reload.request': forOperators(() => requests.reload()),
    'alert.test': forOperators(() => requests.testAlert()),
  }
  const status = shared(async () => answerOf(await replies.status()))
  const statusOfAll = shared(async () => answerOf({ ...(await replies.status()), readers: readers() }))

  /** Counts the reply if it has a token. */
  function handOut(client: Connection, name: string | undefined, reply: Reply): Reply {
    if (isToken(reply)) {
      reads += 1
      audit.noteRead(client.peer.uid, transport, name)
    }
    return reply
  }

  return {
    perform(type: RequestType, fields: Record<string, unknown>, client: Connection): MaybePromise<Reply> {
      for (const name in fields) {
        const field = FIELDS.get(name)
        if (field?.isValid(fields[name]) === false)
          return faultOf('bad-request', `\`${name}\` is ${field.shape}`)
      }
      return operations[type](fields, client)
    },
    /** Counts a request. Returns the fault with which its connection ends; null: it is performed. */
    admit: (client: Connection): { readonly fault: Fault } | null => {
      if (client.peer.place === 'denied') {
        client.drop = 'denied'
        return denied
      }
      const { maxRequestsPerSecond: most } = limits()
      if (most === null) return null
      const second = Math.floor(monotonicMs() / 1_000)
      client.rate = { second, count: client.rate?.second === second ? client.rate.count + 1 : 1 }
      if (client.rate.count <= most) return null
      client.drop = 'too-many-requests'
      return TOO_FAST
    },
    /** The reply to a subscriber, now. */
    changed: (client: Connection): Reply => handOut(client, undefined, replies.current()),
    counts: () => ({ reads, rejects: { ...rejects } }),
  }
}

/** Requests that come while one call is under way get its result: those for the status may be many. */
function shared<T>(call: () => Promise<T>): () => Promise<T> {
  let underWay: Promise<T> | null = null
  return () => (underWay ??= call().finally(() => (underWay = null)))
}

export function isRequestType(type: string): type is RequestType {
  return Object.hasOwn(answerTypes, type)
}

export function faultOf(code: FaultCode, message: string): { readonly fault: Fault } {
  return { fault: { code, message } }
}

const fingerprint = text(/^[0-9a-f]{16}$/, "the first 16 hex digits of the token's SHA-256, in lower case")
/** The values of each field, whatever the request. Other fields are ignored: a newer client may send them. */
const FIELDS = new Map([
  ['minValidSeconds', seconds(MAX_MIN_VALID_SECONDS)],
  ['waitSeconds', seconds(MAX_WAIT_SECONDS)],
  ['notFingerprint', fingerprint],
  ['fingerprint', fingerprint],
  ['accessToken', text(/./s, 'a string that is not empty')],
  ['client', text(/^.{1,128}$/s, 'a name of 1 to 128 characters')],
])
const ONE_OF_BOTH = 'Give either `accessToken` or `fingerprint`, the token to which the service answered 401'
const TOO_FAST = faultOf('busy', 'More requests per second than `maxRequestsPerSecond` allows: send fewer')

function seconds(max: number) {
  const isValid = (value: unknown): boolean => typeof value === 'number' && value >= 0 && value <= max
  return { isValid, shape: `a number of seconds from 0 to ${max}` }
}

function text(pattern: RegExp, shape: string) {
  return { isValid: (value: unknown) => typeof value === 'string' && pattern.test(value), shape }
}

/** The operation, for root and the daemon's own user only. */
function forOperators(perform: (client: Connection) => MaybePromise<object>): Operation {
  return async (_fields, client) => (isOperator(client) ? answerOf(await perform(client)) : FOR_OPERATORS)
}

function isOperator({ peer }: Connection): boolean {
  return peer.place === 'operator'
}
const FOR_OPERATORS = faultOf('denied', "Only root and the daemon's own user may request this: use sudo")
