// Which hosts are this host itself: there, and only there, plain HTTP keeps a secret.
import { BlockList, isIP } from 'node:net'

const loopback = new BlockList()
loopback.addSubnet('127.0.0.0', 8, 'ipv4')
loopback.addAddress('::1', 'ipv6')

/** Reports whether a host name of a URL (IPv6 with or without brackets) is `localhost`, below it, or a loopback address. */
export function isLoopbackHost(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, '').toLowerCase()
  const family = isIP(host)
  if (family === 0) return host === 'localhost' || host.endsWith('.localhost')
  return loopback.check(host, family === 6 ? 'ipv6' : 'ipv4')
}
