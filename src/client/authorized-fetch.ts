// The platform's fetch with an Authorization header, which goes to permitted origins only and is replaced once when it is refused.
import { readLimited } from '../lib/input.ts'
import { originError } from './faults.ts'
import type { ApiCall } from './suspect-tokens.ts'
import type { ClientToken, FetchOptions, TokenSource } from './token-source.ts'

/** Largest body of a Request object that is kept for a replay, in bytes. Other bodies are in memory anyway. */
const MAX_KEPT_BODY_BYTES = 1024 * 1024
/** Requests that may be sent again after any refusal. */
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])
/** Statuses that refuse a token, unless the daemon says otherwise. */
const REFUSED_BY = [401]

/**
 * As `fetch`. A refused request is sent once more with another token, if its body can be sent again: a stream cannot.
 * A redirect to another origin is followed without the header (Fetch Standard, HTTP-redirect fetch, step 13).
 */
export function createFetch(
  { origins, isRefusal }: FetchOptions,
  /** Gives a call with the token. Rejects if there is no token. */
  admit: (signal: AbortSignal | undefined) => Promise<ApiCall>,
): TokenSource['fetch'] {
  return async (input, init) => {
    const request = input instanceof Request ? input : undefined
    const origin = originOf(input instanceof Request ? input.url : input)
    const signal = init?.signal ?? request?.signal
    const originsOf = ({ baseUrl }: ClientToken): readonly string[] => origins ?? [new URL(baseUrl).origin]

    async function send(
      { token, end }: ApiCall,
      replay: object | null,
    ): Promise<[Response, isRefused: boolean]> {
      let meaning: Parameters<ApiCall['end']>[0] = 'nothing'
      try {
        if (!originsOf(token).includes(origin)) throw originError(origin, originsOf(token))
        const headers = new Headers(init?.headers ?? request?.headers)
        headers.set('authorization', `Bearer ${token.accessToken}`)
        const response = await fetch(input, { ...init, ...replay, headers })
        // An origin to which a redirect led never saw the header. A redirect back cannot be seen.
        if (response.redirected && originOf(response.url) !== origin) return [response, false]
        const { refusedBy = REFUSED_BY } = token
        const isRefused = await (isRefusal?.(response) ?? refusedBy.includes(response.status))
        // A server gives 304 only instead of a 2xx (RFC 9110, section 13.2.1).
        if (isRefused) meaning = 'refused'
        else if (response.ok || response.status === 304) meaning = 'good'
        return [response, isRefused]
      } finally {
        end(meaning)
      }
    }

    if (origins?.includes(origin) === false) throw originError(origin, origins)
    const first = await admit(signal)
    const replayAfter = prepareReplay(request, init)
    const [response, isRefused] = await send(first, null)
    if (!isRefused) return response
    const replay = replayAfter(response)
    const other = await first.another({ isOfUse: replay !== null, signal })
    if (other === undefined) return response
    if (!originsOf(other.token).includes(origin)) {
      other.end('nothing')
      return response
    }
    // A body that has failed meanwhile is of no more use either.
    await response.body?.cancel().catch(() => undefined)
    const [answer] = await send(other, replay)
    return answer
  }
}

function originOf(url: string | URL): string {
  const { protocol, origin } = new URL(url)
  return protocol === 'https:' || protocol === 'http:' ? origin : protocol
}

/**
 * Call it before the first request, which uses the body up. Returns a function of the first answer: it gives the fields to
 * add to `init` for a second request, or null if the request may not or cannot be sent again.
 */
function prepareReplay(
  request: Request | undefined,
  init: RequestInit = {},
): (answer: Response) => object | null {
  const { method = request?.method ?? 'GET', body } = init
  // A service answers 401 before it acts.
  const mayBeSent = ({ status }: Response): boolean =>
    status === 401 || SAFE_METHODS.has(method.toUpperCase())
  let replay: object | null = {}
  const keep = async (copy: Request): Promise<void> => {
    // Leaving the stream cancels the copy; if it fails, the fetch of the original says why.
    const kept = await readLimited(copy.body ?? [], { maxBytes: MAX_KEPT_BODY_BYTES }).catch(() => undefined)
    if (kept !== undefined) replay = { body: kept }
  }
  if (body !== undefined && body !== null) {
    // Streams and generators can be read once.
    if (Symbol.asyncIterator in Object(body)) replay = null
  } else if (request !== undefined && request.body !== null) {
    replay = null
    // Read while the original is sent: an unread copy would pile up in memory.
    void keep(request.clone())
  }
  return (answer) => (mayBeSent(answer) ? replay : null)
}
