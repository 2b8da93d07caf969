// The platform's fetch with the token's header, for permitted origins; a refused request is repeated once.
import { readLimited } from '../lib/input.ts'
import { originError } from './errors.ts'
import type { Authorization, ClientToken, FetchOptions, TokenSource } from './token-source.ts'

/** Largest body of a Request object that is kept for a repetition. Other bodies are in memory anyway. */
const MAX_KEPT_BODY_BYTES = 1024 * 1024
/** Requests that may be sent again after any refusal. */
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])

/** An authorization for a call that the client makes itself. */
export interface Admission extends Authorization {
  /** `isFinal`: the call cannot be repeated, so the token is reported, and no other one awaited. */
  readonly refused: (how?: { isFinal?: boolean }) => Promise<Admission | undefined>
}

/**
 * As `fetch`. A refused request is sent once more with another token, if its body can be sent again: a stream
 * cannot. A redirect to another origin is followed without the header (Fetch Standard, HTTP-redirect fetch,
 * step 13).
 */
export function createFetch(
  options: FetchOptions & { origins: readonly string[] | undefined },
  /** Rejects if there is no token. */
  admit: (how: { place: string; signal: AbortSignal | undefined }) => Promise<Admission>,
): TokenSource['fetch'] {
  const originsFor = ({ baseUrl }: ClientToken): readonly string[] =>
    options.origins ?? [new URL(baseUrl).origin]

  async function send(call: Outgoing, { headers, token }: Admission, again?: RequestInit): Promise<Response> {
    const origins = originsFor(token)
    if (!origins.includes(call.origin)) throw originError(call.origin, origins)
    const all = new Headers(call.init.headers)
    for (const [name, value] of Object.entries(headers)) all.set(name, value)
    return (options.fetch ?? fetch)(call.target, { ...call.init, ...again, headers: all })
  }

  async function isRefused({ origin }: Outgoing, response: Response, token: ClientToken): Promise<boolean> {
    // An origin to which a redirect led never saw the header. A redirect back cannot be seen.
    if (response.redirected && originOf(new URL(response.url)) !== origin) return false
    if (options.isRefusal === undefined) return token.refusedBy.includes(response.status)
    const clone = response.clone()
    const isRefusal = await options.isRefusal(clone)
    // An unread copy would pile up in memory. The promise waits for the original.
    if (!clone.bodyUsed) clone.body?.cancel().catch(() => undefined)
    return isRefusal
  }

  return async (input, init) => {
    const call = outgoing(input, init)
    const { origin, method, place, signal } = call
    if (options.origins?.includes(origin) === false) throw originError(origin, options.origins)
    const first = await admit({ place, signal })
    const bodyAgain = keepBody(call)
    const response = await send(call, first)
    if (!(await isRefused(call, response, first.token))) return response
    // A service answers 401 before it acts.
    const again = response.status === 401 || SAFE_METHODS.has(method) ? bodyAgain() : null
    const second = await first.refused({ isFinal: again === null })
    if (again === null || second === undefined) return response
    if (!originsFor(second.token).includes(origin)) return response
    // A body that has failed meanwhile is of no more use either.
    await response.body?.cancel().catch(() => undefined)
    const answer = await send(call, second, again)
    if (await isRefused(call, answer, second.token)) await second.refused()
    return answer
  }
}

interface Outgoing {
  readonly target: string | Request
  readonly init: RequestInit
  readonly origin: string
  readonly method: string
  /** Method, origin and path. */
  readonly place: string
  readonly signal: AbortSignal | undefined
}

/** The call as it is now: the caller may change its arguments while the token is awaited. */
function outgoing(input: string | URL | Request, init: RequestInit = {}): Outgoing {
  const request = input instanceof Request ? input : undefined
  const url = new URL(input instanceof Request ? input.url : input)
  const body = isBody(init.body) ? { body: copyOf(init.body) } : {}
  const method = (init.method ?? request?.method ?? 'GET').toUpperCase()
  const origin = originOf(url)
  return {
    target: request ?? url.href,
    init: { ...init, ...body, headers: new Headers(init.headers ?? request?.headers) },
    origin,
    method,
    place: `${method} ${origin}${url.pathname}`,
    signal: init.signal ?? request?.signal,
  }
}

function originOf({ protocol, origin }: URL): string {
  return protocol === 'https:' || protocol === 'http:' ? origin : protocol
}

type Body = NonNullable<RequestInit['body']>
const isBody = (body: RequestInit['body']): body is Body => body !== undefined && body !== null
/** Streams and generators can be read once. */
const isOneShot = (body: Body): boolean => Symbol.asyncIterator in Object(body)

/** The body as it is now. */
function copyOf(body: Body): Body {
  if (body instanceof URLSearchParams) return new URLSearchParams(body)
  if (body instanceof ArrayBuffer) return body.slice(0)
  if (ArrayBuffer.isView(body)) return new Uint8Array(body.buffer, body.byteOffset, body.byteLength).slice()
  if (!(body instanceof FormData)) return body
  const copy = new FormData()
  for (const [name, value] of body) copy.append(name, value)
  return copy
}

/**
 * Call it before the first request, which uses the body up. The function that it returns gives, after the
 * answer, the fields of `init` for a repetition, or null if the body cannot be sent again.
 */
function keepBody({ target, init: { body } }: Outgoing): () => RequestInit | null {
  if (isBody(body)) return () => (isOneShot(body) ? null : {})
  if (typeof target === 'string' || target.body === null) return () => ({})
  let kept: RequestInit | null = null
  const keep = async (copy: Request): Promise<void> => {
    // Leaving the stream cancels the copy; if it fails, the fetch of the original says why.
    const bytes = await readLimited(copy.body ?? [], { maxBytes: MAX_KEPT_BODY_BYTES }).catch(() => undefined)
    if (bytes !== undefined) kept = { body: bytes }
  }
  // Read while the original is sent: an unread copy would pile up in memory.
  void keep(target.clone())
  return () => kept
}
