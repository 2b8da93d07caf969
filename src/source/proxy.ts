// The proxy between this host and the service: that of `request.proxy`, or else of HTTPS_PROXY and NO_PROXY.
import { BlockList, isIP } from 'node:net'
import type { Config } from '../config/config.ts'
import { exitStatus, UserError } from '../lib/error.ts'

export interface Proxy {
  readonly url: URL
  /** Its host and port, for people. */
  readonly host: string
  /** User and password as HTTP Basic has them; null: without a login. A secret. */
  readonly login: string | null
  /** The setting that names it. */
  readonly setting: 'request.proxy' | 'HTTPS_PROXY'
}

/**
 * The proxy of a service; null: none. Plain HTTP (a loopback service) never uses one, which would see the
 * secret. Throws UserError (78) if the environment names no HTTP proxy. Its value is not quoted, because it
 * can contain a password.
 */
export function proxyOf(
  service: URL,
  { proxy, env }: { proxy: Config['request']['proxy']; env: NodeJS.ProcessEnv },
): Proxy | null {
  if (service.protocol !== 'https:' || proxy === false) return null
  if (proxy !== null) {
    const login = proxy.user === null ? null : `${proxy.user}:${proxy.password?.reveal() ?? ''}`
    return proxyAt(new URL(proxy.url), { login, setting: 'request.proxy' })
  }
  return isExcepted(service, env['no_proxy'] || env['NO_PROXY'] || '') ? null : environmentProxy(env)
}

function environmentProxy(env: NodeJS.ProcessEnv): Proxy | null {
  const url = proxyUrlOf(env)
  if (url === null) return null
  const { user, password } = loginOf(url)
  return proxyAt(url, { login: user === '' ? null : `${user}:${password}`, setting: 'HTTPS_PROXY' })
}

/** The URL in HTTPS_PROXY; null: it is not set. Throws UserError (78) if it is none of an HTTP proxy. */
export function proxyUrlOf(env: NodeJS.ProcessEnv): URL | null {
  const value = (env['https_proxy'] || env['HTTPS_PROXY'])?.trim()
  if (!value) return null
  // As curl has it: no scheme means HTTP.
  const text = value.includes('://') ? value : `http://${value}`
  if (!/^https?:\/\//i.test(text) || !URL.canParse(text)) {
    const message =
      'HTTPS_PROXY names no HTTP proxy: write it as http://proxy.example.com:3128, ' +
      'or leave it out and set request.proxy'
    throw new UserError(message, exitStatus.configuration)
  }
  return new URL(text)
}

/** User and password of a URL; empty: it has none. */
export function loginOf({ username, password }: URL): { user: string; password: string } {
  return { user: decoded(username), password: decoded(password) }
}

function proxyAt(
  { protocol, hostname, port, host }: URL,
  { login, setting }: Pick<Proxy, 'login' | 'setting'>,
): Proxy {
  const url = new URL(`${protocol}//${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`)
  return { url, host, login: login && Buffer.from(login).toString('base64'), setting }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    // A "%" that begins no escape stands for itself.
    return text
  }
}

/**
 * NO_PROXY as curl reads it: names, each for itself and all below it (a `.` or `*.` before it changes
 * nothing), addresses and networks (`10.0.0.0/8`), or `*`; and as Node and Go read it, with a port.
 */
function isExcepted({ hostname, port }: URL, exceptions: string): boolean {
  const host = hostname.replaceAll(/[[\]]/g, '').replace(/\.$/, '')
  return exceptions
    .toLowerCase()
    .split(/[\s,]+/)
    .some((entry) => {
      if (entry === '*') return true
      const [, name = entry, onPort] = /^(\[[^\]]*\]|[^:]*):(\d+)$/.exec(entry) ?? []
      if (onPort !== undefined && onPort !== (port || '443')) return false
      const domain = name.replaceAll(/^(?:\*?\.)|\.$|[[\]]/g, '')
      if (domain === '') return false
      if (isIP(host) === 0) return host === domain || host.endsWith(`.${domain}`)
      return host === domain || isWithin(host, domain)
    })
}

/** Reports whether the address is in the network, which is written as `10.0.0.0/8`. */
function isWithin(address: string, network: string): boolean {
  const [prefix = '', length = ''] = network.split('/')
  const family = isIP(prefix) === 6 ? 'ipv6' : 'ipv4'
  const isNetwork = isIP(prefix) !== 0 && /^\d{1,3}$/.test(length)
  if (!isNetwork || Number(length) > (family === 'ipv6' ? 128 : 32)) return false
  const list = new BlockList()
  list.addSubnet(prefix, Number(length), family)
  return list.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4')
}
