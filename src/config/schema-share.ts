// The settings of `share`.
import * as v from 'valibot'
import {
  count,
  flag,
  list,
  fieldName,
  oneOf,
  orNull,
  path,
  required,
  secretSource,
  formed,
  line,
  section,
  sectionOr,
  setting,
  span,
  transformed,
  valueKind,
} from './schema-parts.ts'

/** A server: an IPv6 address has no brackets here; `path` is that of a Unix socket. */
export type ServerAddress = { readonly host: string; readonly port: number } | { readonly path: string }

/** The server that a text names; undefined: none. */
function parseServer(text: string): ServerAddress | undefined {
  if (/^\.{0,2}\/[^\p{Cc}]+$/u.test(text)) return { path: text }
  const found = /^(\[[0-9A-Fa-f:.]+\]|[^\s:/@[\]\p{Cc}]+):(\d{1,5})$/u.exec(text)
  const port = Number(found?.[2])
  return port >= 1 && port <= 65_535 ? { host: found![1]!.replaceAll(/[[\]]/g, ''), port } : undefined
}

const SERVERS_SHAPE = 'must be a list of 1 to 64 servers: write it as ["redis.example.com:6379"]'
const SERVER_SHAPE =
  'must be "host:port" or the path of a Unix socket, without "redis://" and without a password'
const server = () => v.pipe(transformed(parseServer, SERVER_SHAPE), valueKind('`host:port` or path'))

export const share = () =>
  section(
    {
      servers: required(
        v.pipe(list(server(), SERVERS_SHAPE), v.minLength(1, SERVERS_SHAPE)),
        'Redis servers, each `host:port`; or the path of one Unix socket.',
      ),
      sentinel: orNull(
        section(
          {
            name: required(fieldName('mymaster'), 'Name of the master.'),
            user: orNull(line(255), 'ACL user at the sentinels.'),
            password: orNull(secretSource(), 'Its password: a secret source.'),
          },
          '{ "name": "mymaster" }',
        ),
        'If set, `servers` are sentinels; `null`: they are not.',
      ),
      cluster: setting(flag(), '`true`: `servers` are nodes of a cluster; one slot is used.', false),
      tls: setting(
        sectionOr(
          v.boolean(),
          section({
            caFile: orNull(path(), 'PEM file of authorities to trust.'),
            serverName: orNull(line(255), 'Name in the certificate of the servers.'),
            certFile: orNull(path(), 'PEM file of its own certificate.'),
            key: orNull(secretSource(), 'Its private key without a passphrase: a secret source.'),
            keyFile: orNull(path(), 'The file of that key, as versions before 2.0.0 have it.'),
          }),
          'must be true, false, or an object with caFile, serverName, certFile and key',
        ),
        'TLS to the servers; a Unix socket has none.',
        true,
      ),
      user: orNull(line(255), 'ACL user.'),
      password: orNull(secretSource(), 'Its password: a secret source.'),
      database: setting(count(15, 0), 'Number of the database; 0 to 15.', 0),
      prefix: setting(
        v.pipe(
          formed(/^[A-Za-z0-9._:-]{1,64}$/, 'must be 1 to 64 letters, digits, ".", "_", ":" or "-"'),
          valueKind('1 to 64 of the characters `A-Za-z0-9._:-`'),
        ),
        'Beginning of every key and channel.',
        'kyc-tokend',
      ),
      key: orNull(secretSource(), 'A secret for the key of the seal, at least 16 bytes long.'),
      timeout: span('Longest time for one command', ['50ms', '10s'], '1s'),
      host: orNull(line(255), 'How this host is named to the others; `null`: its host name.'),
      asks: setting(flag(), '`false`: this host never asks the service.', true),
      whenAlone: setting(
        oneOf(['fetch', 'wait']),
        'While the store is away: `fetch` by itself, spread over time; ' +
          'or `wait`, if an account has one live token.',
        'fetch',
      ),
    },
    '{ "servers": ["redis.example.com:6379"] }',
  )
