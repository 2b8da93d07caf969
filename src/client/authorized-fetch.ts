// The platform's fetch with the token's header, for permitted origins; a refused request is repeated once.
import { badRequest } from './errors.ts'
import type { Admission } from './refusals.ts'
import type { AuthorizeOptions, TokenSource } from './token-source.ts'

/** Requests that may be sent again after any refusal. */
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])

/** `origins`: those that may get the token; undefined: that of the service's `baseUrl` alone. */
export function createFetch(
  origins: readonly string[] | undefined,
  /** Rejects if there is no token. */
  admit: (call: AuthorizeOptions) => Promise<Admission>,
): TokenSource['fetch'] {
  const allowed = (token: { readonly baseUrl: string }): readonly string[] =>
    origins ?? [new URL(token.baseUrl).origin]

  function checkOrigin({ origin, protocol }: URL, to: readonly string[] | undefined): void {
    if (to?.includes(origin) !== false) return
    // `data:` and the like have no origin.
    const target = origin === 'null' ? protocol : origin
    throw badRequest(
      `The token is for ${to.join(', ')} and is not sent to ${target}: name it in the option origins if it may be.`,
    )
  }

  return async (input, init) => {
    const { url, method, signal, isOneShot, send } = outgoing(input, init ?? {})
    /** The answer of another origin, to which a redirect led, says nothing of the token. */
    const isRefused = (response: Response, { token }: Admission): boolean =>
      token.refusedBy.includes(response.status) &&
      (response.url === '' || new URL(response.url).origin === url.origin)

    checkOrigin(url, origins)
    const first = await admit({ url, method, signal })
    checkOrigin(url, allowed(first.token))
    const response = await send(first)
    if (!isRefused(response, first)) return response
    // A service answers 401 before it acts.
    const isRepeatable = (response.status === 401 || SAFE_METHODS.has(method)) && !isOneShot
    const second = await first.refused({ isFinal: !isRepeatable })
    if (second === undefined || !allowed(second.token).includes(url.origin)) return response
    await response.body?.cancel()
    const last = await send(second)
    if (isRefused(last, second)) await second.refused()
    return last
  }
}

/** A call, and how it is sent with a token, once or twice. */
function outgoing(input: string | URL | Request, init: RequestInit) {
  const request = isRequest(input) ? input : undefined
  const url = new URL(isRequest(input) ? input.url : input)
  const { body } = init
  return {
    url,
    method: (init.method ?? request?.method ?? 'GET').toUpperCase(),
    signal: init.signal === undefined ? request?.signal : init.signal,
    /** The body can be read once only: a stream or a generator. */
    isOneShot: typeof body === 'object' && body !== null && (Symbol.asyncIterator in body || 'pipe' in body),
    send: async ({ headers: own, token }: Admission): Promise<Response> => {
      const headers = new Headers(init.headers ?? request?.headers)
      for (const [name, value] of Object.entries(own)) headers.set(name, value)
      // The platform takes only `Authorization` from a redirect that leads to another origin.
      const isSafe = token.header.toLowerCase() === 'authorization'
      const redirect = init.redirect ?? request?.redirect ?? 'follow'
      const mode = isSafe || redirect !== 'follow' ? redirect : 'error'
      return fetch(request?.clone() ?? url, { ...init, headers, redirect: mode })
    },
  }
}

/** Reports whether the input is a Request, also of another implementation of `fetch`. */
function isRequest(input: string | URL | Request): input is Request {
  return typeof input === 'object' && 'url' in input && 'headers' in input
}
