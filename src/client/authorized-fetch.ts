// The platform's fetch with an Authorization header, which goes to permitted origins only and is replaced once when it is refused.
import { readLimited } from '../lib/input.ts'
import type { Sending } from './suspects.ts'
import type { ClientToken } from './token-source.ts'

type FetchInput = string | URL | Request

export interface Authority {
  /** A call with a token for this origin. Throws where none may go there, or there is none. */
  authorize(origin: string, signal: AbortSignal | undefined): Promise<Sending>
  mayGoTo(origin: string, token: ClientToken): boolean
  /** True: the answer says that the token is refused. */
  isRefusal(response: Response, token: ClientToken): boolean | Promise<boolean>
}

/** Largest body of a Request object that is kept for a replay, in bytes. Other bodies are in memory anyway. */
const MAX_KEPT_BODY_BYTES = 1024 * 1024
/** A service answers 401 before it acts. After another status these alone may be sent again. */
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])

/**
 * As `fetch`. A refusal is asked once more with another token, where the body can be sent again: a stream cannot.
 * A redirect to another origin is followed without the header (Fetch Standard, HTTP-redirect fetch, step 13).
 */
export async function authorizedFetch(
  input: FetchInput,
  init: RequestInit | undefined,
  authority: Authority,
): Promise<Response> {
  const origin = originOf(input)
  const signal = init?.signal ?? (input instanceof Request ? input.signal : undefined)

  async function send(sending: Sending, more?: object): Promise<{ response: Response; isRefused: boolean }> {
    let meaning: Parameters<Sending['end']>[0] = 'nothing'
    try {
      const response = await fetch(input, { ...withHeader(input, init, sending.token), ...more })
      // An origin to which a redirect led never saw the header.
      if (response.redirected && originOf(response.url) !== origin) return { response, isRefused: false }
      const isRefused = await authority.isRefusal(response, sending.token)
      // A server gives 304 only instead of a 2xx (RFC 9110, section 13.2.1).
      if (isRefused) meaning = 'refused'
      else if (response.ok || response.status === 304) meaning = 'good'
      return { response, isRefused }
    } finally {
      sending.end(meaning)
    }
  }

  const first = await authority.authorize(origin, signal)
  const bodyAgain = keepBody(input, init)
  const { response, isRefused } = await send(first)
  if (!isRefused) return response
  const again = bodyAgain()
  const method = init?.method ?? (input instanceof Request ? input.method : 'GET')
  const mayBeSent = response.status === 401 || SAFE_METHODS.has(method.toUpperCase())
  const other = await first.another({ isOfUse: again !== null && mayBeSent, signal })
  if (other === undefined) return response
  if (!authority.mayGoTo(origin, other.token)) {
    other.end('nothing')
    return response
  }
  // A body that has failed meanwhile is of no more use either.
  await response.body?.cancel().catch(() => undefined)
  return (await send(other, again ?? {})).response
}

function originOf(input: FetchInput): string {
  const { protocol, origin } = new URL(input instanceof Request ? input.url : input)
  return protocol === 'https:' || protocol === 'http:' ? origin : protocol
}

function withHeader(
  input: FetchInput,
  init: RequestInit | undefined,
  { accessToken }: ClientToken,
): RequestInit {
  const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined))
  headers.set('authorization', `Bearer ${accessToken}`)
  return { ...init, headers }
}

/** Needed by a second request beside the input and init of the first; null: its body cannot be sent again. */
type BodyAgain = () => { body?: Uint8Array<ArrayBuffer> } | null

/** To be called before the body is sent. */
function keepBody(input: FetchInput, init: RequestInit | undefined): BodyAgain {
  if (init?.body !== undefined && init.body !== null) {
    const canBeSentAgain = isInMemory(init.body)
    return () => (canBeSentAgain ? {} : null)
  }
  if (!(input instanceof Request) || input.body === null || input.bodyUsed) return () => ({})
  let again: ReturnType<BodyAgain> = null
  const keep = async (copy: Request): Promise<void> => {
    // Leaving the stream cancels the copy; where it fails, the fetch of the original says why.
    const body = await readLimited(copy.body ?? [], { maxBytes: MAX_KEPT_BODY_BYTES }).catch(() => undefined)
    if (body !== undefined) again = { body }
  }
  // Read while the original is sent: an unread copy would pile up in memory.
  void keep(input.clone())
  return () => again
}

function isInMemory(body: NonNullable<RequestInit['body']>): boolean {
  return (
    typeof body === 'string' ||
    ArrayBuffer.isView(body) ||
    [ArrayBuffer, Blob, FormData, URLSearchParams].some((kind) => body instanceof kind)
  )
}
