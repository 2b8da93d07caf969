// URLs of the service: https, or http for a loopback host only; a base path is kept.
export const TOKEN_URL_SHAPE =
  'must be a path or a whole URL: write it as "/token" or "https://auth.example.com/token"'

/** Why this cannot be the base URL, with the remedy. Never quotes it: it may hold a password. */
export function baseUrlProblem(text: string): string | undefined {
  const problem = urlProblem(text, 'must be a whole URL: write it as "https://api.example.com"')
  if (problem !== undefined || !/[?#]/.test(text)) return problem
  return 'must end with the path: remove the query ("?…") and the fragment ("#…")'
}

/**
 * Why this cannot be the URL of the token endpoint: a path (and query) after the base URL, or a whole URL.
 */
export function tokenUrlProblem(text: string): string | undefined {
  if (text.includes('#')) return 'must not have a fragment: remove the "#" and what follows it'
  if (/^\/(?!\/)[^\s\\\p{Cc}]*$/u.test(text)) return undefined
  return urlProblem(text, TOKEN_URL_SHAPE)
}

export const PROXY_SHAPE = 'must be the URL of a proxy: write it as "http://proxy.example.com:3128"'

/** The reason why this cannot be the URL of a proxy. Its login is not part of it, because a URL is shown. */
export function proxyUrlProblem(text: string): string | undefined {
  if (!/^https?:\/\/[^\s\\/?#]+\/?$/i.test(text) || !URL.canParse(text)) return PROXY_SHAPE
  const { username, password } = new URL(text)
  if (username === '' && password === '') return undefined
  return 'must not hold a user name or password: put them into request.proxy.user and request.proxy.password'
}

function urlProblem(text: string, shape: string): string | undefined {
  if (!/^https?:\/\/[^\s\\]+$/i.test(text) || !URL.canParse(text)) return shape
  const { username, password, protocol, hostname } = new URL(text)
  if (username !== '' || password !== '')
    return 'must not hold a user name or password: put them into credentials'
  if (protocol !== 'http:' || isLoopbackHost(hostname)) return undefined
  return (
    'must begin with https://, because the secret would cross the network in the clear ' +
    '(http:// is for a loopback host only)'
  )
}

/** Path of the token endpoint of the interface description, after the base URL. */
export const ENDPOINT = '/token/external/jwt'

/** A warning about a base URL that is probably meant otherwise. */
export function baseUrlWarning(baseUrl: string): string | undefined {
  if (!new URL(baseUrl).pathname.includes(ENDPOINT.replace(/\/\w+$/, ''))) return undefined
  return `holds the path of the endpoint, which kyc-tokend adds by itself: remove "${ENDPOINT}" from its end`
}

/** The URL as the program uses it: normalised, without a trailing slash. */
export function normaliseBaseUrl(text: string): string {
  return new URL(text).href.replace(/\/+$/, '')
}

/** The hosts that are this host itself: there, and only there, plain HTTP keeps a secret. */
const LOOPBACK = /^(?:(?:.+\.)?localhost|127(?:\.\d{1,3}){3}|::1|\[::1\])$/i

/**
 * Reports whether the host of a URL (IPv6 with or without brackets) is `localhost`, below it, or loopback.
 */
export function isLoopbackHost(hostname: string): boolean {
  return LOOPBACK.test(hostname)
}
