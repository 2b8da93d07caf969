// The one description of the configuration file: types, sentences, JSON Schema, manual and example come from it.
import * as v from 'valibot'
import { logLevels } from '../lib/log.ts'
import { permanentReasons } from '../protocol.ts'
import * as is from './kinds.ts'
import { baseUrlProblem, proxyUrlProblem, PROXY_SHAPE, TOKEN_URL_SHAPE, tokenUrlProblem } from './urls.ts'

const { choice, group, orNull, path, required, secretSource, section, setting, span } = is

/** The schema, built for each document: only a load needs it, and it takes 0.2 MB. */
export const configSchema = () =>
  section('{ … }', {
    $schema: v.optional(v.string()),
    baseUrl: v.pipe(
      is.url(baseUrlProblem, 'the URL of the service: write it as "https://api.example.com"'),
      v.description('URL of the service: https, or http for a loopback host only. A base path is kept.'),
    ),
    credentials: section('{ "apiKey": …, "apiSecret": … }', {
      apiKey: required(v.nullable(secretSource()), 'Key; `null` only with `service.assertion.file`.'),
      apiSecret: required(v.nullable(secretSource()), 'Secret; `null` only if it is not sent.'),
      expiresAt: orNull(is.instant(), 'End of this pair; a date alone is the end of that day, UTC.'),
    }),
    request: request(),
    refresh: group('When the token is renewed.', {
      maxAge: span('Life assumed for a token that does not say its own', ['1m', '24h'], '15m'),
    }),
    retry: group('How a failed request is repeated.', {
      initialDelay: span('Delay after the first failure; it doubles with each', ['10ms', '1h'], '1s'),
      maxDelay: span('Longest delay (while there is no usable token, 1m at most)', ['100ms', '24h'], '5m'),
    }),
    tokenFiles: setting(is.list(tokenFile()), 'Files to which each token is written.', [{ path: 'token' }]),
    ipc: setting(socket(), 'The node-ipc socket.', {}),
    http: setting(
      is.sectionOr(v.literal(false), socket(), 'an object, or false for no HTTP'),
      'The HTTP socket, with the same keys as `ipc`; `false`: none.',
      {},
    ),
    alerts: group('Alerts about things that a person must repair.', {
      remindAfter: setting(is.list(is.duration('1s', '30d')), 'When it is repeated.', ['1h', '6h', '24h']),
      noTokenAfter: setting(
        v.nullable(is.duration('1s', '30d')),
        'Time without a usable token, while the host is awake, before an alert; `null`: never; 1s to 30d.',
        '10m',
      ),
      contact: orNull(is.line(200), 'Whom to call: a text that every alert and remedy repeats.'),
    }),
    service: orNull(service(), 'Another service than that of the interface description; `null`: that one.'),
    share: orNull(share(), 'One token for all hosts of the account, through Redis; `null`: each by itself.'),
    log: group('The log, on stderr.', {
      level: setting(is.oneOf(logLevels), 'The least urgent records in it.', 'info'),
      format: choice(['auto', 'text', 'json'], '`auto`: `text` in systemd and terminals, else `json`.'),
    }),
    runtimeDirectory: orNull(path(), 'Directory of sockets and token files, for a daemon without systemd.'),
    stateDirectory: orNull(path(), 'Directory of what outlives a restart, likewise.'),
  })

/** The settings with their defaults; durations in ms, modes as permission bits, servers as addresses. */
export type Settings = v.InferOutput<ReturnType<typeof configSchema>>
export type ServiceSettings = NonNullable<Settings['service']>
export type SecretSource = NonNullable<Settings['credentials']['apiKey']>

const request = () =>
  group('The request to the service.', {
    timeout: span('Longest time for one request, all of it', ['100ms', '10m'], '15s'),
    connectTimeout: span('Longest time for its connection, TLS included', ['100ms', '10m'], '5s'),
    caFile: orNull(path(), 'PEM file of further authorities; relative to the configuration file.'),
    trust: choice(['built-in', 'system', 'file'], 'Authorities: Node’s, the host’s, `caFile` alone.'),
    clientCertificate: orNull(
      section('{ "certFile": "client.pem", "key": { "file": "client.key" } }', {
        certFile: required(path(), 'PEM file of the certificate, with those up to its authority.'),
        key: required(secretSource(), 'Its private key without a passphrase: a secret source.'),
      }),
      'Certificate presented to the service (mutual TLS, RFC 8705); `null`: none.',
    ),
    proxy: orNull(
      is.sectionOr(
        v.literal(false),
        section('{ "url": "http://proxy.example.com:3128" }', {
          url: required(is.url(proxyUrlProblem, PROXY_SHAPE), 'URL of the proxy: http or https.'),
          user: orNull(is.line(255), 'User of its login.'),
          password: orNull(secretSource(), 'Password of its login: a secret source.'),
        }),
        'an object, false for no proxy, or null for that of HTTPS_PROXY',
      ),
      'Proxy to the service; `null`: that of `HTTPS_PROXY` and `NO_PROXY`; `false`: none.',
    ),
  })

const TEMPLATE_SHAPE =
  'the text to write, with {token} in the place of the token, ' +
  'and neither the path of a file nor ${accessToken}: write it as "token = {token}\\n"'

const tokenFile = () =>
  section('{ "path": "token" }', {
    path: required(path(), 'Where the token is written; relative to the runtime directory.'),
    format: choice(['raw', 'header', 'env', 'json', 'template'], 'The content: see below.'),
    template: orNull(
      is.formed(/\{token\}/, TEMPLATE_SHAPE, 'text with `{token}`'),
      'Text to write, in which each `{token}` is replaced by the token; with `format: "template"`.',
    ),
    mode: is.mode(0o400, 0o002, 'the daemon read, and not others write the file: write "0640"'),
    owner: orNull(is.account('user'), 'Owner, if the daemon is root; `null`: the daemon’s user.'),
    group: orNull(is.account('group'), 'Group; `null`: the daemon’s.'),
  })

const socket = () =>
  section('{ … }', {
    mode: is.mode(0o600, 0, 'its owner read and write the socket: write "0600" or "0660"'),
    group: orNull(is.account('group'), 'Group of the socket; `null`: the daemon’s.'),
    allow: group('Who may use the socket, beside root and the daemon’s user.', {
      users: setting(is.list(is.account('user')), 'Users that may use the socket, by name or number.', []),
      groups: setting(is.list(is.account('group')), 'Likewise, groups. Both empty: the mode decides.', []),
    }),
    maxConnections: setting(is.count(65_536), 'Connections at one time.', 512),
    maxConnectionsPerUser: setting(is.count(65_536), 'Connections of one user at one time.', 128),
    maxRequestsPerSecond: orNull(is.count(1_000_000), 'Requests a second on a connection; `null`: any.'),
  })

/** Path of the token endpoint of the interface description, after the base URL. */
export const ENDPOINT = '/token/external/jwt'

/** Names of an answer's fields, one within the other. */
function answerPath() {
  const shape = 'the path of a field, names joined by dots: write it as "token" or "data.token"'
  return v.pipe(
    is.formed(/^(?=.{1,255}$)[^.\s]+(?:\.[^.\s]+)*$/, shape),
    v.transform((text) => text.split('.')),
  )
}

const WORDS_SHAPE = 'words of the answer, and not empty: write them as "Account not found"'

const refusal = () =>
  section('{ "status": 404, "says": "Account not found", "reason": "account-not-found" }', {
    status: required(is.count(599, 300), 'HTTP status of the answer; 300 to 599.'),
    says: required(is.formed(/^(?=.{1,200}$).*\S/, WORDS_SHAPE), 'Words, case and white space aside.'),
    in: orNull(answerPath(), 'Path of the text that has them; `null`: anywhere in the answer.'),
    reason: required(is.oneOf(permanentReasons), 'What the answer means.'),
  })

/** Its defaults are the service of the interface description. */
export const service = () =>
  section('{ … }', {
    preset: orNull(is.oneOf(['oauth2']), 'Other defaults: client credentials (RFC 6749, section 4.4).'),
    tokenUrl: setting(
      is.url(tokenUrlProblem, TOKEN_URL_SHAPE),
      'Path (and query) of the token endpoint after `baseUrl`, or its whole URL.',
      ENDPOINT,
    ),
    send: choice(['json', 'form', 'headers', 'basic', 'basic-plain', 'assertion'], 'How the pair is sent.'),
    names: group('Names of those fields or headers; with `json`, `form` and `headers`.', {
      apiKey: setting(v.nullable(is.line(255)), 'Name of the key; `null`: it is not sent.', 'apiKey'),
      apiSecret: setting(v.nullable(is.line(255)), 'Likewise, of the secret.', 'apiSecret'),
    }),
    parameters: setting(is.values(), 'Further fields of the request; a value may be a secret source.', {}),
    headers: setting(is.values(), 'Further headers, likewise; not those that HTTP itself decides.', {}),
    token: setting(answerPath(), 'Path of the token in the answer: names joined by dots.', 'accessToken'),
    lifetime: orNull(answerPath(), 'Path of its life in seconds, a number or digits as text.'),
    refusals: setting(
      is.list(refusal()),
      'Answers that refuse the account for good, until a person acts; the list replaces the default.',
      [
        { status: 500, says: 'Your account is not active', in: 'detail', reason: 'account-inactive' },
        { status: 404, says: 'Account not found', in: 'detail', reason: 'account-not-found' },
      ],
    ),
    refusedBy: setting(
      is.list(is.count(599, 400)),
      'Statuses by which the API refuses a token; 400 to 599.',
      [401],
    ),
    use: group('How the API wants the token.', {
      header: setting(is.line(255), 'Header in which the API wants the token.', 'Authorization'),
      prefix: setting(
        is.formed(
          /^(?:[!-~][ -~]{0,63})?$/,
          'at most 64 visible ASCII characters, or "": write it as "Bearer " with its blank',
          'text, 0 to 64 visible ASCII characters',
        ),
        'What stands before the token in it; may be empty.',
        'Bearer ',
      ),
    }),
    assertion: orNull(
      assertion(),
      'With `send: "assertion"`: a JWT (RFC 7523), signed by `key` or in `file`.',
    ),
  })

const assertion = () =>
  section('{ "key": { "file": "assertion.pem" } }', {
    key: orNull(secretSource(), 'Private key that signs it, PEM or JWK: a secret source.'),
    algorithm: choice(['RS256', 'PS256', 'ES256', 'EdDSA'], 'Algorithm of the signature.'),
    keyId: orNull(is.line(255), '`kid` of its header; `null`: none.'),
    audience: orNull(is.line(2048), '`aud`; `null`: `tokenUrl`.'),
    lifetime: span('Time between `iat` and `exp`', ['10s', '1h'], '1m'),
    as: choice(['client', 'grant', 'exchange'], 'Proves the client, is the grant, is exchanged.'),
    claims: setting(
      is.record(v.unknown(), '{ "scope": "kyc" }'),
      'Further claims; `null` leaves one out.',
      {},
    ),
    header: setting(is.record(v.unknown(), '{ "x5t#S256": "…" }'), 'Fields of its header, likewise.', {}),
    file: orNull(path(), 'File of another program, read at each request; no part of the pair.'),
    type: orNull(is.line(255), 'Type of that one; `null`: that of a JWT in RFC 7523, RFC 8693.'),
  })

/** A server: an IPv6 address has no brackets here; `path` is that of a Unix socket. */
export type ServerAddress = { readonly host: string; readonly port: number } | { readonly path: string }

function parseServer(text: string): ServerAddress | undefined {
  if (/^\.{0,2}\/[^\p{Cc}]+$/u.test(text)) return { path: text }
  const [, host, digits] = /^(\[[0-9A-Fa-f:.]+\]|[^\s:/@[\]\p{Cc}]+):(\d{1,5})$/u.exec(text) ?? []
  const port = Number(digits)
  if (host === undefined || port < 1 || port > 65_535) return undefined
  return { host: host.replaceAll(/[[\]]/g, ''), port }
}

function servers() {
  const shape = '"host:port" or the path of a Unix socket, without "redis://" and without a password'
  const server = is.parsed(parseServer, shape, '`host:port` or path')
  return is.list(server, 'a list of 1 to 64 servers: write it as ["redis.example.com:6379"]', 1)
}

const share = () =>
  section('{ "servers": ["redis.example.com:6379"] }', {
    servers: required(servers(), 'Redis servers, each `host:port`; or the path of one Unix socket.'),
    sentinel: orNull(
      section('{ "name": "mymaster" }', {
        name: required(is.line(255), 'Name of the master.'),
        user: orNull(is.line(255), 'ACL user at the sentinels.'),
        password: orNull(secretSource(), 'Its password: a secret source.'),
      }),
      'If set, `servers` are sentinels; `null`: they are not.',
    ),
    cluster: setting(is.flag(), '`true`: `servers` are nodes of a cluster; one slot is used.', false),
    tls: setting(
      is.sectionOr(
        v.boolean(),
        section('{ … }', {
          caFile: orNull(path(), 'PEM file of authorities to trust.'),
          serverName: orNull(is.line(255), 'Name in the certificate of the servers.'),
          certFile: orNull(path(), 'PEM file of its own certificate.'),
          key: orNull(secretSource(), 'Its private key without a passphrase: a secret source.'),
        }),
        'true, false, or an object with caFile, serverName, certFile and key',
      ),
      'TLS to the servers; a Unix socket has none.',
      true,
    ),
    user: orNull(is.line(255), 'ACL user.'),
    password: orNull(secretSource(), 'Its password: a secret source.'),
    database: setting(is.count(15, 0), 'Number of the database; 0 to 15.', 0),
    prefix: setting(
      is.formed(
        /^[A-Za-z0-9._:-]{1,64}$/,
        '1 to 64 letters, digits, ".", "_", ":" or "-": write it as "kyc-tokend"',
        '1 to 64 of the characters `A-Za-z0-9._:-`',
      ),
      'Beginning of every key.',
      'kyc-tokend',
    ),
    key: orNull(secretSource(), 'A secret for the key of the seal, at least 16 bytes long.'),
    timeout: span('Longest time for one command', ['50ms', '10s'], '1s'),
    asks: setting(is.flag(), '`false`: this host never asks the service.', true),
    whenAlone: choice(['fetch', 'wait'], 'While the store is away; `wait`: an account has one live token.'),
  })
