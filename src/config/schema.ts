// The one description of the configuration file: types, sentences, JSON Schema, manual and example come from it.
import * as v from 'valibot'
import { logLevels } from '../lib/log.ts'
import { permanentReasons } from '../protocol.ts'
import * as is from './kinds.ts'

const { choice, group, inputPath, orNull, required, secretSource, section, setting, span } = is

const ALERT_AGE = is.duration('1s', '30d')
const JOURNAL = ' ("journal" is gone: write "json", and run `journalctl -o cat`)'
const FORMAT = is.oneOf(['auto', 'text', 'json'], JOURNAL)

/** The schema, built for each document: only a load needs it, and it takes 0.2 MB. */
export const configSchema = () =>
  section('{ … }', {
    $schema: v.optional(is.line(4096)),
    baseUrl: required(is.url('base'), 'The service: https, or http for a loopback host only.'),
    credentials: section('{ "apiKey": …, "apiSecret": … }', {
      apiKey: required(v.nullable(secretSource()), '`null` only with `service.assertion.file`.'),
      apiSecret: required(v.nullable(secretSource()), '`null` only if it is not sent.'),
      expiresAt: orNull(is.instant(), 'End of this pair; a date alone: the end of that day, UTC.'),
    }),
    request: request(),
    refresh: group('When the token is renewed.', {
      maxAge: span('Life of a token that does not say its own', ['1m', '24h'], '15m'),
    }),
    retry: group('How a failed request is repeated.', {
      initialDelay: span('After the first failure; it doubles with each', ['10ms', '1h'], '1s'),
      maxDelay: span('Longest delay; without a usable token 1m at most', ['100ms', '24h'], '5m'),
    }),
    tokenFiles: setting(is.list(tokenFile()), 'Files that hold the token.', [{ path: 'token' }]),
    ipc: setting(socket(), 'The node-ipc socket.', {}),
    http: setting(
      is.sectionOr(v.literal(false), socket(), 'an object, or false for no HTTP'),
      'The keys of `ipc`, for `http.sock`; `false`: no HTTP.',
      {},
    ),
    alerts: group('Alerts about things that a person must repair.', {
      remindAfter: setting(is.list(ALERT_AGE), 'When an alert is repeated.', ['1h', '6h', '24h']),
      noTokenAfter: setting(v.nullable(ALERT_AGE), 'Time without a token; `null`: no such alert.', '10m'),
      contact: orNull(is.line(200), 'Whom to call; in every alert.'),
    }),
    service: v.pipe(
      orNull(service(), 'Another service than that of the interface description.'),
      v.transform((given) => given ?? v.parse(service(), {})),
    ),
    share: orNull(share(), 'One token for all hosts of the account, through Redis.'),
    log: group('The log, on stderr.', {
      level: setting(is.oneOf(logLevels), 'Least urgent level that is logged.', 'info'),
      format: setting(FORMAT, '`auto`: `text` for systemd and terminals, else `json`.', 'auto'),
    }),
    runtimeDirectory: orNull(inputPath(), 'Of sockets and token files, without systemd.'),
    stateDirectory: orNull(inputPath(), 'Of what outlives a restart, likewise.'),
  })

/** The settings with their defaults; durations in ms, modes as permission bits, `Lookup` for what they name. */
export type Settings = v.InferOutput<ReturnType<typeof configSchema>>

/** The values that take the place of those of 2.x. */
const UNDER_300 = ': for one under 300, put a small service of your own at baseUrl, which answers otherwise'

const request = () =>
  group('The request to the service.', {
    timeout: span('Longest time for a request', ['100ms', '10m'], '15s'),
    connectTimeout: span('Longest time for its connection, with TLS', ['100ms', '10m'], '5s'),
    caFile: orNull(is.certificates(), 'PEM file of further authorities.'),
    trust: choice(['built-in', 'system', 'file'], 'Authorities: Node’s list, the host’s, or `caFile` alone.'),
    clientCertificate: orNull(
      section('{ "certFile": "client.pem", "key": { "file": "client.key" } }', {
        certFile: required(is.certificates(), 'PEM file, with those up to its authority.'),
        key: required(is.privateKey(), 'Its key, without a passphrase.'),
      }),
      'For mutual TLS (RFC 8705).',
    ),
    proxy: orNull(
      is.sectionOr(v.literal(false), proxy(), 'an object, false for none, or null for that of HTTPS_PROXY'),
      'That of `HTTPS_PROXY` and `NO_PROXY`, if `null`; none, if `false`.',
    ),
  })

const proxy = () =>
  section('{ "url": "http://proxy.example.com:3128" }', {
    url: required(is.url('proxy'), 'http or https.'),
    user: orNull(is.line(255), 'Its login.'),
    password: orNull(secretSource(), 'Likewise.'),
  })

const TEMPLATE_SHAPE =
  'the text to write, with {token} in the place of the token, ' +
  'and neither the path of a file nor ${accessToken}: write it as "token = {token}\\n"'

const tokenFile = () =>
  section('{ "path": "token" }', {
    path: required(is.path(), 'Relative to the runtime directory.'),
    format: choice(['raw', 'header', 'env', 'json', 'template'], 'See Token files.'),
    template: orNull(is.formed(/\{token\}/, TEMPLATE_SHAPE), 'The text of a `template`, with `{token}`.'),
    mode: is.mode(0o400, 0o002, 'octal digits in quotes; the daemon reads it, others do not write: "0640"'),
    owner: orNull(is.account('user'), 'The daemon’s user, if `null`; another one only for root.'),
    group: orNull(is.account('group'), 'The daemon’s, if `null`.'),
  })

const socket = () =>
  section('{ … }', {
    mode: is.mode(0o600, 0, 'octal digits in quotes, for its owner to read and write: "0660"'),
    group: orNull(is.account('group'), 'The daemon’s, if `null`.'),
    allow: group('Who may use it, beside root and the daemon’s user.', {
      users: setting(is.list(is.account('user')), 'Users that may use it.', []),
      groups: setting(is.list(is.account('group')), 'Likewise; if both are empty, the mode decides.', []),
    }),
    maxConnections: setting(is.count(65_536), 'Connections at one time.', 512),
    maxConnectionsPerUser: setting(is.count(65_536), 'Connections of one user at one time.', 128),
    maxRequestsPerSecond: orNull(is.count(1_000_000), 'On one connection; any number, if `null`.'),
  })

/** Names of an answer's fields, one within the other. */
function answerPath() {
  const shape = 'the path of a field, names joined by dots: write it as "token" or "data.token"'
  const parse = (text: string) =>
    /^(?=.{1,255}$)[^.\s]+(?:\.[^.\s]+)*$/.test(text) ? text.split('.') : undefined
  return is.parsed(parse, shape, 'text')
}

const WORDS_SHAPE = 'words of the answer, and not empty: write them as "Account not found"'

const refusal = () =>
  section('{ "status": 404, "says": "Account not found", "reason": "account-not-found" }', {
    status: required(is.count(599, 300, UNDER_300), 'HTTP status of the answer.'),
    says: required(is.formed(/^(?=.{1,200}$).*\S/, WORDS_SHAPE), 'Words, case and white space aside.'),
    in: orNull(answerPath(), 'Path of the text that has them; anywhere, if `null`.'),
    reason: required(is.oneOf(permanentReasons), 'Meaning of the answer.'),
  })

const TOKEN_PREFIX = /^(?:[!-~][ -~]{0,63})?$/
const PREFIX_SHAPE = 'at most 64 visible ASCII characters, or "": write it as "Bearer " with its blank'

/** Its defaults are the service of the interface description. */
export const service = () =>
  section('{ … }', {
    preset: orNull(is.oneOf(['oauth2']), 'Other defaults: client credentials (RFC 6749).'),
    tokenUrl: setting(is.url('token'), 'A path after `baseUrl`, or a whole URL.', '/token/external/jwt'),
    send: choice(['json', 'form', 'headers', 'basic', 'basic-plain', 'assertion'], 'How the pair is sent.'),
    names: group('Names of those fields or headers; with `json`, `form` and `headers`.', {
      apiKey: setting(v.nullable(is.line(255)), 'Field or header of the key; not sent, if `null`.', 'apiKey'),
      apiSecret: setting(v.nullable(is.line(255)), 'Likewise, of the secret.', 'apiSecret'),
    }),
    parameters: setting(is.values(), 'Further fields; a value may be a secret source.', {}),
    headers: setting(is.values(is.headerName()), 'Further headers, likewise.', {}),
    token: setting(answerPath(), 'Path of the token in the answer: names joined by dots.', 'accessToken'),
    lifetime: orNull(answerPath(), 'Path of its life in seconds.'),
    refusals: setting(is.list(refusal()), 'Answers that refuse the account until a person acts.', [
      { status: 500, says: 'Your account is not active', in: 'detail', reason: 'account-inactive' },
      { status: 404, says: 'Account not found', in: 'detail', reason: 'account-not-found' },
    ]),
    refusedBy: setting(is.list(is.count(599, 400)), 'Statuses by which the API refuses a token.', [401]),
    use: group('How the API wants the token.', {
      header: setting(is.headerName(), 'Header of the token.', 'Authorization'),
      prefix: setting(is.formed(TOKEN_PREFIX, PREFIX_SHAPE), 'Text before it; may be "".', 'Bearer '),
    }),
    assertion: orNull(assertion(), 'A JWT (RFC 7523), signed by `key` or in `file`.'),
  })

const assertion = () =>
  section('{ "key": { "file": "assertion.pem" } }', {
    key: orNull(is.privateKey(), 'Private key that signs it, PEM or JWK.'),
    algorithm: choice(['RS256', 'PS256', 'ES256', 'EdDSA'], 'Of the signature.'),
    keyId: orNull(is.line(255), '`kid` of its header.'),
    audience: orNull(is.line(2048), '`aud`; `tokenUrl`, if `null`.'),
    lifetime: span('Time between `iat` and `exp`', ['10s', '1h'], '1m'),
    as: choice(['client', 'grant', 'exchange'], 'It proves the client, is the grant, or is exchanged.'),
    claims: setting(is.record(v.unknown()), 'Claims, added or replaced; `null` leaves one out.', {}),
    header: setting(is.record(v.unknown()), 'Fields of its header, likewise.', {}),
    file: orNull(inputPath(), 'File of another program, read at each request.'),
    type: orNull(is.line(255), 'Its type; that of RFC 7523 or RFC 8693, if `null`.'),
  })

/** A server: an IPv6 address has no brackets here; `path` is that of a Unix socket. */
type Server = { readonly host: string; readonly port: number } | { readonly path: is.Lookup<string> }

function parseServer(text: string): Server | undefined {
  if (/^\.{0,2}\/[^\p{Cc}]+$/u.test(text)) return { path: ({ pathOf }) => pathOf(text) }
  const [, host, digits] = /^(\[[0-9A-Fa-f:.]+\]|[^\s:/@[\]\p{Cc}]+):(\d{1,5})$/u.exec(text) ?? []
  const port = Number(digits)
  if (host === undefined || port < 1 || port > 65_535) return undefined
  return { host: host.replaceAll(/[[\]]/g, ''), port }
}

const PREFIX = '1 to 64 letters, digits, ".", "_", ":" or "-": write it as "kyc-tokend"'
const SERVER_SHAPE = '"host:port" or the path of a Unix socket, without "redis://" and without a password'

const share = () =>
  section('{ "servers": ["redis.example.com:6379"] }', {
    servers: required(
      is.list(is.parsed(parseServer, SERVER_SHAPE, '`host:port` or path'), 1),
      'Redis: each `host:port`, or one Unix socket.',
    ),
    sentinel: orNull(
      section('{ "name": "mymaster" }', {
        name: required(is.line(255), 'Name of the master.'),
        user: orNull(is.line(255), 'ACL user at the sentinels.'),
        password: orNull(secretSource(), 'Likewise.'),
      }),
      'If set, `servers` are sentinels.',
    ),
    cluster: setting(is.flag(), '`true`: `servers` are nodes of a cluster.', false),
    tls: setting(
      is.sectionOr(v.boolean(), storeTls(), 'true, false, or an object such as { "caFile": "ca.pem" }'),
      'A Unix socket has none.',
      true,
    ),
    user: orNull(is.line(255), 'ACL user.'),
    password: orNull(secretSource(), 'Likewise.'),
    database: setting(is.count(15, 0), 'Of a cluster 0.', 0),
    prefix: setting(is.formed(/^[\w.:-]{1,64}$/, PREFIX), 'Beginning of every key.', 'kyc-tokend'),
    key: orNull(secretSource(), 'A secret of at least 16 bytes in the key of the seal.'),
    timeout: span('Longest time for a command', ['50ms', '10s'], '1s'),
    asks: setting(is.flag(), '`false`: this host never asks the service.', true),
    whenAlone: choice(['fetch', 'wait'], 'While the store is away: ask alone, or wait.'),
  })

const storeTls = () =>
  section('{ "caFile": "ca.pem" }', {
    caFile: orNull(is.certificates(), 'PEM file of authorities.'),
    serverName: orNull(is.line(255), 'Name in the servers’ certificate.'),
    certFile: orNull(is.certificates(), 'PEM file of a certificate of its own.'),
    key: orNull(is.privateKey(), 'Its key, without a passphrase.'),
  })
