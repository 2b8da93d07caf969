// The operations that clients may request, one table for both sockets: rights, validation, counting, and the
// reply.
import type { Instant } from '../lib/clock.ts'
import {
  FINGERPRINT_LENGTH,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
  answerTypes,
  type AlertTestResult,
  type Fault,
  type RefreshResult,
  type ReloadResult,
  type RejectRequest,
  type RejectResult,
  type RequestType,
  type StatusResult,
  type TokenRequest,
} from '../protocol.ts'
import { MAX_WAITING, OVER_LIMIT, type ClosingFault } from './limits.ts'
import type { LimitedUsers } from './limited.ts'
import { frameRestOf, type CachedToken, type MaybePromise, type Replies, type Result } from './replies.ts'
import type { Reader, TokenAudit, Transport } from './token-audit.ts'

/** The client as an operation sees it: its connection. */
export interface Caller extends Reader {
  readonly isAllowed: boolean
  readonly isClosing: boolean
  /** Its requests that wait for a token. */
  waiting: number
  /** Ends its waits, which are answered with what there is: when the client goes, or the daemon stops. */
  readonly waits: AbortController
}

/** StatusResult, ready to be sent. */
interface RenderedStatus {
  readonly json: string
  /** What follows the id in a frame of `ipc.sock`. */
  readonly frameRest: string
}

/** Results by operation. A token comes with its JSON and its text ready, of which each protocol uses one. */
interface Results {
  'token.get': CachedToken
  'token.subscribe': CachedToken
  'token.reject': RejectResult
  'status.get': RenderedStatus
  'refresh.request': RefreshResult
  'reload.request': ReloadResult
  'alert.test': AlertTestResult
}
export type Reply<T extends RequestType = RequestType> = Result<Results[T]> | ClosingFault
type Operation<T extends RequestType> = (
  request: TokenRequest & RejectRequest,
  caller: Caller,
) => MaybePromise<Reply<T>>

/** Raises a test alert, or says why it is refused. */
export type TestAlert = () => MaybePromise<Result<AlertTestResult>>
/** Reads the configuration again, and says what came of it. */
export type Reload = () => MaybePromise<Result<ReloadResult>>

export type ListeningSocket = NonNullable<StatusResult['daemon']['sockets']>[number]
export type Operations = ReturnType<typeof createOperations>

export function createOperations(options: {
  transport: Transport
  replies: Replies
  audit: TokenAudit
  limited: LimitedUsers
  testAlert: TestAlert
  /** The sockets at which the daemon listens. */
  sockets?: () => ListeningSocket[]
  reload: Reload
}) {
  const { transport, replies, audit, limited, testAlert, reload, sockets = () => [] } = options
  /** Since the start: reports of refused tokens by verdict, and tokens handed out. */
  const rejects = { replaced: 0, refreshing: 0, held: 0, unchanged: 0, refused: 0 }
  let reads = 0
  const denied: { readonly fault: Fault } = {
    fault: {
      code: 'denied',
      message: `This user may not use this socket: have an administrator add it to \`${transport}.allow\``,
    },
  }

  const operations: { readonly [T in RequestType]: Operation<T> } = {
    'token.get'(request, caller) {
      const { client = null } = request
      // Read once for each request, because requests are many.
      const now = replies.now()
      const reply = replies.token(request, caller.waits, now)
      if (!(reply instanceof Promise)) return handOut(caller, client, reply, now)
      if (caller.waiting >= MAX_WAITING) return OVER_LIMIT.waits
      caller.waiting += 1
      return reply
        .finally(() => (caller.waiting -= 1))
        .then((late) => handOut(caller, client, late, replies.now()))
    },
    'token.subscribe'(request, caller) {
      replies.need(request)
      return handOut(caller, request.client ?? null, replies.current(), replies.now())
    },
    'token.reject'(request, { peer }) {
      const isToken = request.accessToken !== undefined
      if (isToken === (request.fingerprint !== undefined)) return badRequest(ONE_OF_BOTH)
      const reply = replies.reject(request)
      if ('fault' in reply) return reply
      const { verdict } = reply.value
      rejects[verdict] += 1
      if (peer !== null) audit.recordReject(peer, transport, request.client, verdict)
      return reply
    },
    'status.get': (_request, { peer }) => (peer?.isPrivileged === true ? statusOfAll() : status()),
    'refresh.request': (_request, { peer, waits }) =>
      peer?.isPrivileged
        ? replies.refresh(waits.signal)
        : deniedFor('refresh.request', ', or report a refused token'),
    'reload.request': (_request, { peer }) => (peer?.isPrivileged ? reload() : deniedFor('reload.request')),
    'alert.test': (_request, { peer }) => (peer?.isPrivileged ? testAlert() : deniedFor('alert.test')),
  }

  async function renderStatus(isPrivileged: boolean): Promise<Result<RenderedStatus>> {
    const reply = await replies.status()
    if ('fault' in reply) return reply
    const { value } = reply
    const all = {
      ...value,
      clients: { ...value.clients, limited: limited.list() },
      daemon: { ...value.daemon, sockets: sockets() },
      readers: audit.readers(),
    }
    const json = JSON.stringify(isPrivileged ? all : value)
    return { value: { json, frameRest: frameRestOf(json) } }
  }
  const status = shared(() => renderStatus(false))
  const statusOfAll = shared(() => renderStatus(true))

  /**
   * Counts the reply if it has a token. A reload may have taken the right away meanwhile, and the client may
   * be gone.
   */
  function handOut(
    caller: Caller,
    client: string | null,
    reply: Result<CachedToken>,
    now: Instant,
  ): Result<CachedToken> {
    if (!caller.isAllowed) return denied
    if ('value' in reply && !caller.isClosing) {
      reads += 1
      audit.recordRead(caller, transport, client, now)
    }
    return reply
  }

  return {
    /** Performs one operation for a caller that may use the socket. */
    perform<T extends RequestType>(
      type: T,
      data: Readonly<Record<string, unknown>>,
      caller: Caller,
    ): MaybePromise<Reply<T>> {
      for (const name in data) {
        const field = FIELDS.get(name)
        if (field !== undefined && !field.isValid(data[name]))
          return badRequest(`\`${name}\` is ${field.shape}`)
      }
      return operations[type](data, caller)
    },
    /** The fault for peers that `allow` excludes. */
    denied,
    changedToken(caller: Caller): Reply<'token.subscribe'> {
      const now = replies.now()
      return handOut(caller, caller.lastRead?.client ?? null, replies.current(now), now)
    },
    counts: () => ({ reads, rejects: { ...rejects } }),
  }
}

/** Who calls while a call is under way gets its result: requests for the status may be many. */
function shared<T>(call: () => Promise<T>): () => Promise<T> {
  let underWay: Promise<T> | null = null
  return () =>
    (underWay ??= call().finally(() => {
      underWay = null
    }))
}

/**
 * Reports whether the request was valid and permitted. Then a subscription has begun, even if there is no
 * token yet.
 */
export function isInOrder(reply: Reply): boolean {
  return !('fault' in reply) || (reply.fault.code !== 'bad-request' && reply.fault.code !== 'denied')
}

export function isRequestType(type: unknown): type is RequestType {
  return typeof type === 'string' && Object.hasOwn(answerTypes, type)
}

interface Field {
  readonly isValid: (value: unknown) => boolean
  readonly shape: string
}
const fingerprint = text(
  new RegExp(`^[0-9a-f]{${FINGERPRINT_LENGTH}}$`),
  `the first ${FINGERPRINT_LENGTH} hex digits of the token's SHA-256, in lower case`,
)
/** The values of each field, whatever the request. Other fields are ignored: a newer client may send them. */
const FIELDS: ReadonlyMap<string, Field> = new Map([
  ['minValidSeconds', seconds(MAX_MIN_VALID_SECONDS)],
  ['waitSeconds', seconds(MAX_WAIT_SECONDS)],
  ['notFingerprint', fingerprint],
  ['fingerprint', fingerprint],
  ['accessToken', text(/./s, 'a string that is not empty')],
  ['client', text(/^.{1,128}$/s, 'a name of 1 to 128 characters')],
])
const ONE_OF_BOTH = 'Give either `accessToken` or `fingerprint`, the token to which the service answered 401'

function seconds(max: number): Field {
  const isValid = (value: unknown): boolean => typeof value === 'number' && value >= 0 && value <= max
  return { isValid, shape: `a number of seconds from 0 to ${max}` }
}

function text(pattern: RegExp, shape: string): Field {
  return { isValid: (value) => typeof value === 'string' && pattern.test(value), shape }
}

/** The operation is for root and the daemon's own user only. */
function deniedFor(type: RequestType, alternative = ''): Result<never> {
  const message = `Only root and the daemon's own user may send \`${type}\`: use sudo${alternative}`
  return { fault: { code: 'denied', message } }
}

function badRequest(message: string): Result<never> {
  return { fault: { code: 'bad-request', message } }
}
