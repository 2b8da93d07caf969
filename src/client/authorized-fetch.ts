// The platform's fetch with the token's header, for permitted origins; a refused request is repeated once.
import { readLimited } from '../lib/input.ts'
import { badRequest, originError } from './errors.ts'
import { checkedSignal } from './signals.ts'
import type { Authorization, AuthorizeOptions, FetchOptions, TokenSource } from './token-source.ts'

/** Largest body of a Request object that is kept for a repetition. Other bodies are in memory anyway. */
const MAX_KEPT_BODY_BYTES = 1024 * 1024
/** Requests that may be sent again after any refusal. */
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])
const REDIRECTS = new Set([301, 302, 303, 307, 308])
/** As the Fetch Standard has it. */
const MAX_REDIRECTS = 20
/** Headers that a redirect to another origin does not get, and those that go with a body. */
const OF_ORIGIN = ['authorization', 'proxy-authorization', 'cookie', 'host']
const OF_BODY = ['content-encoding', 'content-language', 'content-location', 'content-type', 'content-length']

/** An authorization for a call that the client makes itself. */
export interface Admission extends Authorization {
  /** `isFinal`: the call cannot be repeated, so the token is reported, and no other one awaited. */
  readonly refused: (call?: { isFinal?: boolean }) => Promise<Admission | undefined>
}

/**
 * As `fetch`. A refused request is sent once more with another token, if its body can be sent again: a stream
 * cannot. Redirects are followed here, because the platform takes no header but `Authorization` from one that
 * leads elsewhere (Fetch Standard, HTTP-redirect fetch): within the permitted origins, with the token.
 */
export function createFetch(
  options: FetchOptions & { origins: readonly string[] | undefined },
  /** Rejects if there is no token. */
  admit: (call: AuthorizeOptions) => Promise<Admission>,
): TokenSource['fetch'] {
  function checkOrigin(origin: string, { token }: Admission): void {
    const origins = options.origins ?? [new URL(token.baseUrl).origin]
    if (!origins.includes(origin)) throw originError(origin, origins)
  }

  /** Sends it with the token, and follows redirects. Gives the origin that answered, too. */
  async function send(call: Outgoing, admission: Admission, again: RequestInit = {}): Promise<Answer> {
    let hop: Hop = { ...call, init: { ...call.init, ...again } }
    for (let redirects = 0; ; redirects += 1) {
      checkOrigin(originOf(hop.url), admission)
      const headers = new Headers(hop.init.headers)
      for (const [name, value] of Object.entries(admission.headers)) headers.set(name, value)
      const redirect = call.follows ? 'manual' : call.init.redirect
      const init = { ...hop.init, headers, ...(redirect !== undefined && { redirect }) }
      const response = await (options.fetch ?? fetch)(hop.target, init)
      const location = REDIRECTS.has(response.status) ? response.headers.get('location') : null
      if (!call.follows || location === null) {
        if (redirects > 0) Object.defineProperty(response, 'redirected', { value: true })
        return { response, origin: originOf(hop.url) }
      }
      if (redirects === MAX_REDIRECTS) throw new TypeError('The service redirects over and over')
      hop = nextHop(hop, { status: response.status, location, body: call.bodyAgain() })
      discard(response)
    }
  }

  async function isRefused(call: Outgoing, answer: Answer, { refusedBy }: Admission): Promise<boolean> {
    const { response, origin } = answer
    // What another origin refuses, to which a redirect led, says nothing of the token.
    if (origin !== call.origin) return false
    if (options.isRefusal === undefined) return refusedBy.includes(response.status)
    const clone = response.clone()
    const isRefusal = await options.isRefusal(clone)
    // An unread copy would pile up in memory.
    if (!clone.bodyUsed) discard(clone)
    return isRefusal
  }

  return async (input, init) => {
    const call = outgoing(input, init ?? {})
    const { url, origin, method, signal } = call
    if (options.origins?.includes(origin) === false) throw originError(origin, options.origins)
    const first = await admit({ url, method, signal })
    const answer = await send(call, first)
    const { response } = answer
    if (!(await isRefused(call, answer, first))) return response
    // A service answers 401 before it acts.
    const again = response.status === 401 || SAFE_METHODS.has(method) ? call.bodyAgain() : null
    const second = await first.refused({ isFinal: again === null })
    if (again === null || second === undefined) return response
    if (options.origins === undefined && new URL(second.token.baseUrl).origin !== origin) return response
    discard(response)
    const last = await send(call, second, again)
    if (await isRefused(call, last, second)) await second.refused()
    return last.response
  }
}

interface Answer {
  readonly response: Response
  readonly origin: string
}

/** One request to one address. */
interface Hop {
  readonly target: string | Request
  readonly url: URL
  readonly init: RequestInit
  readonly method: string
}
interface Outgoing extends Hop {
  readonly origin: string
  readonly signal: AbortSignal | undefined
  /** Redirects are to be followed. */
  readonly follows: boolean
  /**
   * After the answer: the fields of `init` for a repetition, or null if the body cannot be sent again. Must
   * be made before the first request, which uses the body up.
   */
  readonly bodyAgain: () => RequestInit | null
}

/** Method, origin and path, as which the refusals of a place are remembered. */
export function placeOf(url: string | URL, method: string): string {
  const { origin, pathname } = parsedUrl(url)
  return `${method.toUpperCase()} ${origin}${pathname}`
}

/** The call as it is now: the caller may change its arguments while the token is awaited. */
function outgoing(input: string | URL | Request, init: RequestInit): Outgoing {
  const request = isRequest(input) ? input : undefined
  const url = parsedUrl(isRequest(input) ? input.url : input)
  const body = isBody(init.body) ? { body: copyOf(init.body) } : {}
  // A null signal of `init` is none, also in place of that of the request.
  const signal = checkedSignal(init.signal === undefined ? request?.signal : init.signal)
  const hop: Hop = {
    target: request ?? url.href,
    url,
    init: { ...init, ...body, headers: new Headers(init.headers ?? request?.headers) },
    method: (init.method ?? request?.method ?? 'GET').toUpperCase(),
  }
  const follows = (init.redirect ?? request?.redirect ?? 'follow') === 'follow'
  return { ...hop, origin: originOf(url), signal, follows, bodyAgain: keepBody(hop) }
}

/** Throws `bad-request`. */
function parsedUrl(url: string | URL): URL {
  try {
    return new URL(url)
  } catch {
    throw badRequest('url must be an absolute URL.')
  }
}

/** The protocol of what has no origin, or that of something else: `data:`, `blob:`. */
function originOf({ protocol, origin }: URL): string {
  return protocol === 'https:' || protocol === 'http:' ? origin : protocol
}

/** Also one of another implementation of `fetch`. */
function isRequest(input: string | URL | Request): input is Request {
  return typeof input === 'object' && 'url' in input && 'headers' in input
}

/** The request to which this redirect leads (Fetch Standard, HTTP-redirect fetch). */
function nextHop(hop: Hop, to: { status: number; location: string; body: RequestInit | null }): Hop {
  const url = new URL(to.location, hop.url)
  const { method } = hop
  const isGet = to.status === 303 ? method !== 'HEAD' : to.status < 303 && method === 'POST'
  const headers = new Headers(hop.init.headers)
  const dropped = [...(isGet ? OF_BODY : []), ...(url.origin === hop.url.origin ? [] : OF_ORIGIN)]
  for (const name of dropped) headers.delete(name)
  if (!isGet && to.body === null) throw new TypeError('A redirect wants the body again, which was a stream')
  const { body: _, ...rest } = hop.init
  const signal = rest.signal ?? (typeof hop.target === 'string' ? undefined : hop.target.signal)
  const body = isGet || ['GET', 'HEAD'].includes(method) ? {} : { body: hop.init.body ?? null, ...to.body }
  const next = isGet ? 'GET' : method
  const init = { ...rest, ...(signal !== undefined && { signal }), ...body, method: next, headers }
  return { target: url.href, url, init, method: next }
}

/** Frees what an answer holds that nobody reads. Bodies of other implementations are streams of Node. */
function discard({ body }: Response): void {
  const stream = body as { cancel?: () => Promise<unknown>; destroy?: () => unknown } | null
  // A copy is cancelled once the original is; one that has failed is of no more use either.
  if (typeof stream?.cancel === 'function') void stream.cancel().catch(() => undefined)
  else if (typeof stream?.destroy === 'function') stream.destroy()
}

type Body = NonNullable<RequestInit['body']>
const isBody = (body: RequestInit['body']): body is Body => body !== undefined && body !== null
/** Streams and generators can be read once. */
const isOneShot = (body: Body): boolean => Symbol.asyncIterator in Object(body) || 'pipe' in Object(body)

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

function keepBody({ target, init: { body } }: Hop): Outgoing['bodyAgain'] {
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
