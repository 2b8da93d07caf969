// The platform's fetch with an Authorization header, which goes to permitted origins only and is renewed once when it is refused.
import { readLimited } from '../lib/read-limited.ts'

type FetchInput = string | URL | Request

export interface Authority {
  /** The header's value for this origin. Throws where it must not go there, or there is none. */
  authorize(origin: string, signal: AbortSignal | undefined): Promise<string>
  /** Reports that the header's value was answered 401. */
  onRefused(): Promise<void>
  /** Another value, or undefined where there is none. */
  renew(origin: string, signal: AbortSignal | undefined): Promise<string | undefined>
}

/** Largest body of a Request object that is kept for a replay, in bytes. Other bodies are in memory anyway. */
const MAX_KEPT_BODY_BYTES = 1024 * 1024

/**
 * As `fetch`. A 401 is asked once more with a renewed header, where the body can be sent again: a stream cannot.
 * A redirect to another origin is followed without the header (Fetch Standard, HTTP-redirect fetch, step 13).
 */
export async function authorizedFetch(
  input: FetchInput,
  init: RequestInit | undefined,
  authority: Authority,
): Promise<Response> {
  const origin = originOf(input)
  const signal = init?.signal ?? (input instanceof Request ? input.signal : undefined)
  const header = await authority.authorize(origin, signal)
  const bodyAgain = keepBody(input, init)
  const response = await fetch(input, withHeader(input, init, header))
  if (response.status !== 401) return response
  // The origin that refuses after a redirect elsewhere never saw the header.
  if (response.redirected && originOf(response.url) !== origin) return response
  await authority.onRefused()
  const again = bodyAgain()
  if (again === null) return response
  const renewed = await authority.renew(origin, signal)
  if (renewed === undefined) return response
  // A body that has failed meanwhile is of no more use either.
  await response.body?.cancel().catch(() => undefined)
  return fetch(input, { ...withHeader(input, init, renewed), ...again })
}

function originOf(input: FetchInput): string {
  const { protocol, origin } = new URL(input instanceof Request ? input.url : input)
  return protocol === 'https:' || protocol === 'http:' ? origin : protocol
}

function withHeader(input: FetchInput, init: RequestInit | undefined, value: string): RequestInit {
  const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined))
  headers.set('authorization', value)
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
