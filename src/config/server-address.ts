// The address of a server as people write it: "host:port", or the path of a Unix socket.

export type ServerAddress =
  { readonly host: string; readonly port: number } | { /** A Unix socket. */ readonly path: string }

/** Undefined where it is none. An IPv6 address is in brackets. */
export function parseServer(text: string): ServerAddress | undefined {
  if (/^\.{0,2}\/[^\p{Cc}]+$/u.test(text)) return { path: text }
  const [, host, port] = /^(\[[0-9A-Fa-f:.]+\]|[^\s:/@[\]\p{Cc}]+):(\d{1,5})$/u.exec(text) ?? []
  if (host === undefined || port === undefined || Number(port) < 1 || Number(port) > 65_535) return undefined
  return { host: host.replace(/^\[|\]$/g, ''), port: Number(port) }
}
