// The operations that clients may request, one table for both sockets: rights, validation, counting, and the reply.
import {
  requestTypes,
  type AlertTestResult,
  type Fault,
  type RefreshResult,
  type RejectRequest,
  type RejectResult,
  type RejectVerdict,
  type RequestType,
  type StatusResult,
} from '../protocol.ts'
import type { CachedToken, Replies, Result } from './replies.ts'
import { parseRejectRequest, parseTokenRequest, type Parsed } from './requests.ts'
import type { Reader, TokenAudit, Transport } from './token-audit.ts'

/** The client as an operation sees it: its connection. */
export interface Caller extends Reader {
  readonly isAllowed: boolean
  readonly isClosing: boolean
  /** Aborted when the client goes, and when the daemon stops: a client that waits then gets what there is. */
  readonly signal: AbortSignal
}

/** Results by operation. A token is not JSON yet: each protocol has a form of it ready. */
interface Results {
  'token.get': CachedToken
  'token.subscribe': CachedToken
  'token.reject': RejectResult
  'status.get': StatusResult
  'refresh.request': RefreshResult
  'alert.test': AlertTestResult
}
export type Reply<T extends RequestType = RequestType> = Result<Results[T]>
type Later<T> = T | Promise<T>

/** Since the start. */
export interface OperationCounts {
  /** Tokens handed out. */
  readonly reads: number
  /** Reports of refused tokens, by verdict. */
  readonly rejects: Readonly<Record<RejectVerdict, number>>
}

/** Raises a test alert, or says why it is refused. */
export type TestAlert = () => Result<AlertTestResult> | Promise<Result<AlertTestResult>>

export interface Operations {
  /**
   * Performs one operation. The reply comes at once if that can be, else as a promise. No read is counted if the token
   * itself is not sent (`sendsToken`, by default true).
   */
  perform<T extends RequestType>(
    type: T,
    data: Record<string, unknown>,
    caller: Caller,
    sendsToken?: boolean,
  ): Later<Reply<T>>
  /** The fault for a peer that `allow` excludes; null where it does not. */
  denial(caller: Caller): Fault | null
  /** The current token for a subscriber, after a change. */
  changedToken(caller: Caller): Reply<'token.subscribe'>
  counts(): OperationCounts
}

type Operation<T extends RequestType> = (
  data: Record<string, unknown>,
  caller: Caller,
  sendsToken: boolean,
) => Later<Reply<T>>

/** For root and the daemon's own user only. */
const PRIVILEGED: ReadonlySet<RequestType> = new Set(['refresh.request', 'alert.test'])

export function createOperations(options: {
  transport: Transport
  replies: Replies
  audit: TokenAudit
  testAlert?: TestAlert | undefined
}): Operations {
  const { transport, replies, audit, testAlert = cannotTest } = options
  const rejects = { replaced: 0, refreshing: 0, held: 0, unchanged: 0, refused: 0 }
  let reads = 0

  const operations: { readonly [T in RequestType]: Operation<T> } = {
    'token.get': (data, caller, sendsToken) =>
      ifValid(parseTokenRequest(data), (request) => {
        const reply = replies.token(request, caller)
        const give = (ready: Result<CachedToken>) => handOut(caller, ready, request.client, sendsToken)
        return reply instanceof Promise ? reply.then(give) : give(reply)
      }),
    'token.subscribe': (data, caller, sendsToken) =>
      ifValid(parseTokenRequest(data), (request) => {
        replies.need(request)
        return handOut(caller, replies.current(), request.client, sendsToken)
      }),
    'token.reject': (data, caller) => ifValid(parseRejectRequest(data), (request) => reject(request, caller)),
    'status.get': async (_data, { peer }) => {
      const reply = await replies.status()
      if ('fault' in reply || peer?.isPrivileged !== true) return reply
      return { value: { ...reply.value, readers: audit.readers() } }
    },
    'refresh.request': (_data, { signal }) => replies.refresh(signal),
    'alert.test': () => testAlert(),
  }

  function reject(request: RejectRequest, { peer }: Caller): Reply<'token.reject'> {
    const reply = replies.reject(request)
    if ('fault' in reply) return reply
    const { verdict } = reply.value
    rejects[verdict] += 1
    if (peer !== null) audit.recordReject(peer, transport, { client: request.client ?? null, verdict })
    return reply
  }

  /** A reload may have taken the right away since the request came, and the client may be gone. */
  function handOut(
    caller: Caller,
    reply: Result<CachedToken>,
    client: string | undefined,
    sendsToken = true,
  ): Result<CachedToken> {
    if (!caller.isAllowed) return { fault: notAllowed(transport) }
    if ('value' in reply && sendsToken && !caller.isClosing) {
      reads += 1
      audit.recordRead(caller, transport, client ?? null)
    }
    return reply
  }

  return {
    perform(type, data, caller, sendsToken = true) {
      if (!caller.isAllowed) return { fault: notAllowed(transport) }
      if (PRIVILEGED.has(type) && caller.peer?.isPrivileged !== true) {
        return { fault: notPrivileged(type) }
      }
      return operations[type](data, caller, sendsToken)
    },
    denial: ({ isAllowed }) => (isAllowed ? null : notAllowed(transport)),
    changedToken: (caller) => handOut(caller, replies.current(), caller.reads?.client ?? undefined),
    counts: () => ({ reads, rejects: { ...rejects } }),
  }
}

export function isRequestType(type: unknown): type is RequestType {
  return (requestTypes as readonly unknown[]).includes(type)
}

function ifValid<R, T>(parsed: Parsed<R>, perform: (request: R) => T): T | { fault: Fault } {
  return 'problem' in parsed
    ? { fault: { code: 'bad-request', message: parsed.problem } }
    : perform(parsed.request)
}

function cannotTest(): Result<AlertTestResult> {
  return { value: { outcome: 'refused', detail: 'No alert can be tested while the configuration is faulty' } }
}

function notAllowed(transport: Transport): Fault {
  const message = `This user may not use this socket: have an administrator add it to \`${transport}.allow\``
  return { code: 'denied', message }
}

function notPrivileged(type: RequestType): Fault {
  const message = `Only root and the daemon's own user may send \`${type}\`: use sudo${ALTERNATIVES[type] ?? ''}`
  return { code: 'denied', message }
}

const ALTERNATIVES: Partial<Record<RequestType, string>> = {
  'refresh.request': ', or report a refused token by `token.reject`',
}
