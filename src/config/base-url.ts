// The service's address: https, or http for a loopback host only; a base path is kept.
import { isLoopbackHost } from '../lib/loopback.ts'

/** Path of the token endpoint below the base URL. */
const ENDPOINT = '/token/external/jwt'

/** The reason why this cannot be the base URL, with the remedy. Never quotes it: it may hold a password. */
export function baseUrlProblem(text: string): string | undefined {
  if (!/^https?:\/\/[^\s\\]+$/i.test(text) || !URL.canParse(text))
    return 'must be a whole URL: write it as "https://api.example.com"'
  const url = new URL(text)
  if (url.username !== '' || url.password !== '')
    return 'must not hold a user name or password: put them into credentials'
  if (/[?#]/.test(text)) return 'must end with the path: remove the query ("?…") and the fragment ("#…")'
  if (url.protocol === 'http:' && !isLoopbackHost(url.hostname))
    return 'must begin with https://, because the secret would cross the network in the clear (http:// is for a loopback host only)'
  return undefined
}

/** A warning about a base URL that is probably meant otherwise. */
export function baseUrlWarning(baseUrl: string): string | undefined {
  if (!new URL(baseUrl).pathname.includes(ENDPOINT.slice(0, '/token/external'.length))) return undefined
  return `holds the path of the endpoint, which kyc-tokend adds by itself: remove "${ENDPOINT}" from its end`
}

/** The URL as the program uses it: normalised, without a trailing slash. */
export function normaliseBaseUrl(text: string): string {
  return new URL(text).href.replace(/\/+$/, '')
}
