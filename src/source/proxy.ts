// The proxy between this host and the service: that of `request.proxy`, else of HTTPS_PROXY and NO_PROXY.
import { isIP } from 'node:net'
import type { RequestConfig } from '../config/config.ts'
import { exitStatus, UserError } from '../lib/error.ts'

export interface Proxy {
  /** Its host and port alone. */
  readonly url: URL
  /** User and password as HTTP Basic has them; null: without a login. A secret. */
  readonly login: string | null
  /** The setting that names it. */
  readonly setting: 'request.proxy' | 'HTTPS_PROXY'
}

/**
 * The proxy of a service; null: none. Plain HTTP (a service on loopback) never uses one, which would see the
 * secret. Throws UserError (78) if the environment names no HTTP proxy; its value, which can contain a
 * password, is not quoted.
 */
export function proxyOf(
  service: URL,
  { proxy, env }: { proxy: RequestConfig['proxy']; env: NodeJS.ProcessEnv },
): Proxy | null {
  if (service.protocol !== 'https:' || proxy === false) return null
  if (proxy !== null) {
    const login = proxy.user === null ? null : `${proxy.user}:${proxy.password?.reveal() ?? ''}`
    return { url: new URL(proxy.url), login: basic(login), setting: 'request.proxy' }
  }
  const url = isExcepted(service, env['no_proxy'] || env['NO_PROXY'] || '') ? null : proxyUrlOf(env)
  if (url === null) return null
  // A "%" that begins no escape stands for itself.
  const [user, password] = [url.username, url.password].map((text) =>
    decodeURIComponent(text.replaceAll(/%(?![\da-f]{2})/gi, '%25')),
  )
  return {
    url: new URL(`${url.protocol}//${url.host}`),
    login: basic(user === '' ? null : `${user}:${password}`),
    setting: 'HTTPS_PROXY',
  }
}

/** The URL in HTTPS_PROXY; null: it is not set. Throws UserError (78) if it is none of an HTTP proxy. */
function proxyUrlOf(env: NodeJS.ProcessEnv): URL | null {
  const value = (env['https_proxy'] || env['HTTPS_PROXY'])?.trim()
  if (!value) return null
  // As curl has it: no scheme means HTTP.
  const text = value.includes('://') ? value : `http://${value}`
  if (/^https?:\/\//i.test(text) && URL.canParse(text)) return new URL(text)
  const message =
    'HTTPS_PROXY names no HTTP proxy: write it as http://proxy.example.com:3128, ' +
    'or leave it out and set request.proxy'
  throw new UserError(message, exitStatus.configuration)
}

function basic(login: string | null): string | null {
  return login && Buffer.from(login).toString('base64')
}

/** NO_PROXY: names, each for itself and all below it, and addresses, perhaps with a port; or `*`. */
function isExcepted({ hostname, port }: URL, exceptions: string): boolean {
  const host = hostname.replaceAll(/[[\]]|\.$/g, '')
  return exceptions
    .toLowerCase()
    .split(/[\s,]+/)
    .some((entry) => {
      const [, name = entry, onPort] = /^(\[.*\]|[^:]*):(\d+)$/.exec(entry) ?? []
      if (name === '*') return true
      if (onPort !== undefined && onPort !== (port || '443')) return false
      const domain = name.replaceAll(/^\*?\.|\.$|[[\]]/g, '')
      return domain !== '' && (host === domain || (isIP(host) === 0 && host.endsWith(`.${domain}`)))
    })
}
