// URLs of the service and of a proxy: https, or http for a loopback host only; none holds a login.
export const TOKEN_URL_SHAPE =
  'a path or a whole URL: write it as "/token" or "https://auth.example.com/token"'
export const PROXY_SHAPE = 'the URL of a proxy: write it as "http://proxy.example.com:3128"'

/** Why this cannot be the base URL, with the remedy. Never quotes it: it may hold a password. */
export function baseUrlProblem(text: string): string | undefined {
  const problem = urlProblem(text, 'a whole URL: write it as "https://api.example.com"')
  if (problem !== undefined || !/[?#]/.test(text)) return problem
  return 'must end with the path: remove the query ("?…") and the fragment ("#…")'
}

/** Likewise, for the token endpoint: a path (and query) after the base URL, or a whole URL. */
export function tokenUrlProblem(text: string): string | undefined {
  if (text.includes('#')) return 'must not have a fragment: remove the "#" and what follows it'
  return /^\/(?!\/)[^\s\\]*$/u.test(text) ? undefined : urlProblem(text, TOKEN_URL_SHAPE)
}

/** Likewise, for a proxy, whose login has settings of its own. */
export function proxyUrlProblem(text: string): string | undefined {
  if (!/^https?:\/\/[^\s\\/?#]+\/?$/i.test(text) || !URL.canParse(text)) return `must be ${PROXY_SHAPE}`
  return loginProblem(new URL(text), 'request.proxy.user and request.proxy.password')
}

function urlProblem(text: string, shape: string): string | undefined {
  if (!/^https?:\/\/[^\s\\]+$/i.test(text) || !URL.canParse(text)) return `must be ${shape}`
  const url = new URL(text)
  if (url.protocol === 'https:' || isLoopbackHost(url.hostname)) return loginProblem(url, 'credentials')
  return (
    'must begin with https://, because the secret would cross the network in the clear ' +
    '(http:// is for a loopback host only)'
  )
}

function loginProblem({ username, password }: URL, place: string): string | undefined {
  if (username === '' && password === '') return undefined
  return `must not hold a user name or password: put them into ${place}`
}

/** The hosts that are this host itself: there, and only there, plain HTTP keeps a secret. */
const LOOPBACK = /^(?:(?:.+\.)?localhost|127(?:\.\d{1,3}){3}|::1|\[::1\])$/i

/** Reports whether the host of a URL (IPv6 with or without brackets) is `localhost`, below it, or loopback. */
export function isLoopbackHost(hostname: string): boolean {
  return LOOPBACK.test(hostname)
}
