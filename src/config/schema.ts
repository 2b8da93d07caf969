// The one description of the configuration file. Its types, messages, JSON Schema and manual page come from it.
import * as v from 'valibot'
import { parseInstant } from '../lib/instant.ts'
import { logLevels } from '../lib/log.ts'
import { permanentReasons } from '../token/outcome.ts'
import {
  baseUrlProblem,
  normaliseBaseUrl,
  PROXY_SHAPE,
  proxyUrlProblem,
  TOKEN_URL_SHAPE,
  tokenUrlProblem,
} from './base-url.ts'
import {
  account,
  count,
  dependentSetting,
  duration,
  flag,
  group,
  list,
  octal,
  parseServer,
  oneOf,
  orNull,
  path,
  rawCheck,
  required,
  secretSource,
  formed,
  values,
  claims,
  line,
  section,
  sectionOr,
  setting,
  span,
} from './schema-parts.ts'
import { presetNames, STANDARD } from './service-presets.ts'

const EXPIRY_SHAPE =
  'must be a date, or a date with time and zone: write it as "2027-03-01" or "2027-03-01T12:00:00Z"'
const SERVERS_SHAPE = 'must be a list of 1 to 64 servers: write it as ["redis.example.com:6379"]'
/** The default of `retry.initialDelay`, unless `retry.maxDelay` is shorter. */
export const STANDARD_INITIAL_DELAY = '1s'

const tokenFile = () =>
  section({
    path: required(path(), 'Where the token is written; relative to the runtime directory.'),
    format: setting(
      oneOf(['raw', 'header', 'env', 'json', 'template']),
      '`raw`: the token alone. `header`: for `curl -H @file`. `env`: for `EnvironmentFile=`. `json`: with its instants. `template`: as in `template`.',
      'raw',
    ),
    template: orNull(
      path(),
      'File with the text to write, in which `${accessToken}`, `${expiresAt}`, `${obtainedAt}`, `${fingerprint}` and `${baseUrl}` are filled in and `$${` is a literal `${`; relative to the configuration file.',
    ),
    mode: setting(
      octal(
        { required: 0o400, forbidden: 0o002 },
        'must let its owner, the daemon, read the file, and must not let others write the file: write "0600" or "0640"',
      ),
      'Permission bits of the file.',
      '0600',
    ),
    owner: orNull(account('user'), 'Owner; `null`: the daemon’s user.'),
    group: orNull(account('group'), 'Group; `null`: as it is created (a setgid directory gives its own).'),
  })

const socket = (name: string) =>
  section({
    path: setting(path(), 'The socket, at most 107 bytes long; relative to the runtime directory.', name),
    mode: setting(
      octal({ required: 0o600 }, 'must let its owner read and write the socket: write "0600" or "0660"'),
      'Permission bits of the socket.',
      '0600',
    ),
    group: orNull(account('group'), 'Group of the socket; `null`: as it is created.'),
    allow: group('Who may use the socket, beside root and the daemon’s user.', {
      users: setting(list(account('user')), 'Users that may use the socket, by name or number.', []),
      groups: setting(
        list(account('group')),
        'Groups that may use it, by name or number. With both lists empty its mode alone decides.',
        [],
      ),
    }),
    maxConnections: setting(count(65_536), 'Connections at one time.', 1024),
    maxConnectionsPerUser: setting(count(65_536), 'Connections of one user at one time.', 128),
    maxRequestsPerSecond: orNull(count(1_000_000), 'Requests a second on one connection; `null`: no limit.'),
  })

const server = () => {
  const shape = 'must be "host:port" or the path of a Unix socket, without "redis://" and without a password'
  return v.pipe(
    v.string(shape),
    v.rawTransform(({ dataset, addIssue, NEVER }) => {
      const address = parseServer(dataset.value)
      if (address === undefined) addIssue({ message: shape })
      return address ?? NEVER
    }),
  )
}

const share = () =>
  section(
    {
      servers: required(
        v.pipe(list(server(), SERVERS_SHAPE), v.minLength(1, SERVERS_SHAPE)),
        'Redis servers, each `host:port`; or the path of one Unix socket.',
      ),
      sentinel: orNull(
        section(
          {
            name: required(name('mymaster'), 'Name of the master.'),
            user: orNull(line(255), 'ACL user at the sentinels.'),
            password: orNull(secretSource(), 'Its password: a secret source.'),
          },
          '{ "name": "mymaster" }',
        ),
        'If set, `servers` are sentinels; `null`: they are not.',
      ),
      cluster: setting(flag(), '`true`: `servers` are nodes of a cluster; one slot is used.', false),
      tls: dependentSetting(
        sectionOr(
          v.boolean(),
          section({
            caFile: orNull(path(), 'PEM file of authorities to trust.'),
            serverName: orNull(line(255), 'Name in the certificate of the servers.'),
            certFile: orNull(path(), 'PEM file of the certificate that is presented.'),
            key: orNull(secretSource(), 'Its private key without a passphrase: a secret source.'),
            keyFile: orNull(path(), 'The file of that key, as versions before 2.0.0 have it.'),
          }),
          'must be true, false, or an object with caFile, serverName, certFile and key',
        ),
        'TLS to the servers; or an object with `caFile`, `serverName`, `certFile` and `key`. A Unix socket has none.',
        true,
      ),
      user: orNull(line(255), 'ACL user.'),
      password: orNull(secretSource(), 'Its password: a secret source.'),
      database: setting(count(15, 0), 'Number of the database; 0 to 15.', 0),
      prefix: setting(
        formed(/^[A-Za-z0-9._:-]{1,64}$/, 'must be 1 to 64 letters, digits, ".", "_", ":" or "-"'),
        'Beginning of every key and channel.',
        'kyc-tokend',
      ),
      key: orNull(secretSource(), 'A secret that is mixed into the key of the seal, at least 16 bytes long.'),
      timeout: span('Longest time for one command', ['50ms', '10s'], '1s'),
      host: orNull(line(255), 'How this host is named to the others; `null`: its host name.'),
      asks: setting(flag(), '`false`: this host never asks the service.', true),
      whenAlone: setting(
        oneOf(['fetch', 'wait']),
        'While the store cannot be reached: `fetch` by itself, spread over time; or `wait`, if an account has one live token.',
        'fetch',
      ),
    },
    '{ "servers": ["redis.example.com:6379"] }',
  )

const answerPath = () => {
  const shape = 'must be the path of a field, names joined by dots: write it as "token" or "data.token"'
  return v.pipe(line(255, shape), v.regex(/^[^.\s]+(?:\.[^.\s]+)*$/, shape))
}
const saidWords = () => {
  const shape = 'must be words of the answer, and not empty: write them as "Account not found"'
  return v.pipe(line(200, shape), v.regex(/\S/, shape))
}
/** `example`: how it is written. */
const name = (example = 'client_id') =>
  line(255, `must be a name that is not empty: write it as "${example}"`)
const errorStatus = () => count(599, 400)

const service = () =>
  section({
    preset: orNull(
      oneOf(presetNames),
      'Defaults of the other keys: `oauth2` for the client credentials grant (RFC 6749, section 4.4), which needs `tokenUrl`.',
    ),
    tokenUrl: dependentSetting(
      v.pipe(line(2048, TOKEN_URL_SHAPE), rawCheck(tokenUrlProblem)),
      'Path (and query) of the token endpoint after `baseUrl`, or its whole URL: https, or http for a loopback host.',
      STANDARD.tokenUrl,
    ),
    send: dependentSetting(
      oneOf(['json', 'form', 'headers', 'basic', 'basic-plain', 'assertion']),
      'How key and secret are sent: fields of a JSON object (`json`) or of a form (`form`), `headers`, HTTP Basic with `parameters` as a form (`basic`; `basic-plain`: without form-encoding them first), or a signed `assertion` in a form.',
      STANDARD.send,
    ),
    names: dependentSetting(
      section({
        apiKey: dependentSetting(
          v.nullable(name()),
          'Name of the field or header with the key; `null`: it is not sent.',
          STANDARD.names.apiKey,
        ),
        apiSecret: dependentSetting(
          v.nullable(name()),
          'Name of the field or header with the secret; `null`: it is not sent.',
          STANDARD.names.apiSecret,
        ),
      }),
      'Names of those fields or headers; with `json`, `form` and `headers`.',
      {},
    ),
    parameters: dependentSetting(
      values(),
      'Further fields of the request: each a text, a number, true or false, or a secret source.',
      {},
    ),
    headers: dependentSetting(
      values(),
      'Further headers, likewise; not `Authorization`, `Host`, `Content-…` and others that the request decides.',
      {},
    ),
    token: dependentSetting(
      answerPath(),
      'Path of the token in the JSON object of the answer, its names joined by dots.',
      STANDARD.token,
    ),
    lifetime: dependentSetting(
      v.nullable(answerPath()),
      'Path of its life in seconds, a number or digits as text; `null`: the answer has none.',
      null,
    ),
    expires: dependentSetting(
      v.nullable(answerPath()),
      'Path of the instant at which it ends: ISO 8601 with a zone, or seconds or ms since 1970; `null`: the answer has none.',
      null,
    ),
    refusals: dependentSetting(
      list(
        section({
          status: required(
            count(599, 200),
            'HTTP status of the answer; 200 to 599. One under 300 needs `in`, and is looked for before the token.',
          ),
          says: required(saidWords(), 'Words that are looked for, case and white space aside.'),
          in: orNull(answerPath(), 'Path of the text that has them; `null`: anywhere in the answer.'),
          reason: required(oneOf(permanentReasons), '`account-inactive` or `account-not-found`.'),
        }),
      ),
      'Answers that refuse the account for good, until a person acts; the list replaces the default.',
      [...STANDARD.refusals],
    ),
    refusedBy: dependentSetting(
      list(errorStatus()),
      'Statuses by which the API, not the token endpoint, says that a token is refused; 400 to 599.',
      [...STANDARD.refusedBy],
    ),
    use: dependentSetting(
      section({
        header: dependentSetting(
          name('X-Api-Token'),
          'Header in which the API wants the token.',
          STANDARD.use.header,
        ),
        prefix: dependentSetting(
          formed(
            /^(?:[!-~][ -~]{0,63})?$/,
            'must be at most 64 visible ASCII characters, or "": write it as "Bearer " with its blank',
          ),
          'What stands before the token in it; may be empty.',
          STANDARD.use.prefix,
        ),
      }),
      'How the API wants the token.',
      {},
    ),
    assertion: dependentSetting(
      v.nullable(
        section(
          {
            key: required(secretSource(), 'Private key that signs it, PEM or JWK: a secret source.'),
            algorithm: setting(
              oneOf(['RS256', 'PS256', 'ES256', 'EdDSA']),
              'Algorithm of the signature.',
              'RS256',
            ),
            keyId: orNull(line(255), '`kid` of its header; `null`: none.'),
            audience: orNull(line(2048), '`aud`; `null`: `tokenUrl`.'),
            lifetime: span('Time between `iat` and `exp`', ['10s', '1h'], '1m'),
            as: setting(
              oneOf(['client', 'grant']),
              '`client`: it authenticates the client (private_key_jwt; RFC 7523, section 2.2). `grant`: it is the grant (section 2.1).',
              'client',
            ),
            claims: setting(claims(), 'Further claims, which replace its own.', {}),
          },
          '{ "key": { "file": "assertion.pem" } }',
        ),
      ),
      'With `send: "assertion"`: a JWT (RFC 7523) that the daemon signs; its `iss` and `sub` are the key.',
      null,
    ),
  })

/** The schema. It is built for each document and not kept, because only a load needs it and it takes 0.2 MB. */
export const configSchema = () =>
  section({
    $schema: v.optional(v.string('must be a string')),
    baseUrl: v.pipe(
      v.string('must be the URL of the service: write it as "https://api.example.com"'),
      rawCheck(baseUrlProblem),
      v.transform(normaliseBaseUrl),
      v.description('URL of the service: https, or http for a loopback host only. A base path is kept.'),
      v.examples(['https://api.example.com']),
    ),
    credentials: section(
      {
        apiKey: required(secretSource(), 'API key of the account: a secret source.'),
        apiSecret: required(
          v.nullable(secretSource()),
          'API secret of the account: a secret source; `null` only if it is not sent.',
        ),
        expiresAt: setting(
          v.nullable(
            v.pipe(
              v.string(EXPIRY_SHAPE),
              v.rawTransform(({ dataset, addIssue, NEVER }) => {
                const instant = parseInstant(dataset.value)
                if (instant === undefined) addIssue({ message: EXPIRY_SHAPE })
                return instant ?? NEVER
              }),
            ),
          ),
          'When the service ends this pair: a date (it ends with that day, UTC), or a date with time and zone; `null`: not known.',
          null,
        ),
      },
      '{ "apiKey": …, "apiSecret": … }',
    ),
    request: group('The request to the service.', {
      timeout: span('Longest time for one request, from first to last byte', ['100ms', '10m'], '15s'),
      connectTimeout: span('Longest time for its connection, TLS included', ['100ms', '10m'], '5s'),
      caFile: orNull(path(), 'PEM file of further authorities to trust; relative to the configuration file.'),
      trust: setting(
        oneOf(['built-in', 'system', 'file']),
        '`built-in`: Node’s list of authorities. `system`: the host’s (`$SSL_CERT_FILE`, else `/etc/ssl/certs/ca-certificates.crt`). `file`: `caFile` alone.',
        'built-in',
      ),
      clientCertificate: orNull(
        section(
          {
            certFile: required(
              path(),
              'PEM file of the certificate, with those between it and its authority.',
            ),
            key: required(secretSource(), 'Its private key without a passphrase: a secret source.'),
          },
          '{ "certFile": "client.pem", "key": { "file": "client.key" } }',
        ),
        'Certificate that is presented to the service (mutual TLS, RFC 8705); `null`: none.',
      ),
      proxy: setting(
        v.nullable(
          sectionOr(
            v.literal(false),
            section(
              {
                url: required(
                  v.pipe(line(2048, PROXY_SHAPE), rawCheck(proxyUrlProblem)),
                  'URL of the proxy: http or https.',
                ),
                user: orNull(line(255), 'User of its login; `null`: it wants none.'),
                password: orNull(secretSource(), 'Password of its login: a secret source.'),
              },
              '{ "url": "http://proxy.example.com:3128" }',
            ),
            'must be an object, false for no proxy, or null for that of HTTPS_PROXY',
          ),
        ),
        'Proxy between this host and the service; `null`: that of `HTTPS_PROXY` and `NO_PROXY`; `false`: none.',
        null,
      ),
    }),
    refresh: group('When the token is renewed.', {
      maxAge: span('Life assumed for a token that does not say its own', ['1m', '24h'], '15m'),
    }),
    retry: group('How a failed request is repeated.', {
      initialDelay: dependentSetting(
        duration('10ms', '1h'),
        'Delay after the first failure; it doubles with each further one; 10ms to 1h.',
        STANDARD_INITIAL_DELAY,
      ),
      maxDelay: span('Longest delay (while there is no usable token, 1m at most)', ['100ms', '24h'], '5m'),
    }),
    tokenFiles: setting(list(tokenFile()), 'Files that the token is written to, at each change.', [
      { path: 'token' },
    ]),
    ipc: setting(socket('ipc.sock'), 'The node-ipc socket.', {}),
    http: setting(
      sectionOr(v.literal(false), socket('http.sock'), 'must be an object, or false for no HTTP'),
      'The HTTP socket, with the same keys as `ipc`; `false`: none.',
      {},
    ),
    alerts: group('Alerts about things that a person must repair.', {
      remindAfter: setting(
        list(duration('1s', '30d')),
        'How long after an alert was raised it is repeated; 1s to 30d each.',
        ['1h', '6h', '24h'],
      ),
      noTokenAfter: setting(
        v.nullable(duration('1s', '30d')),
        'How long there may be no usable token before an alert is raised, whatever the reason; 1s to 30d, `null`: never.',
        '10m',
      ),
      contact: orNull(line(200), 'Whom to call: a text that every alert and remedy repeats.'),
    }),
    service: orNull(service(), 'Another service than that of the interface description; `null`: that one.'),
    share: orNull(share(), 'One token for all hosts of the account, through Redis; `null`: each by itself.'),
    log: group('The log, on stderr.', {
      level: setting(oneOf(logLevels), 'The least urgent records that are written; syslog’s levels.', 'info'),
      format: setting(
        oneOf(['auto', 'journal', 'text', 'json']),
        '`auto`: `journal` under systemd, `text` on a terminal, else `json`.',
        'auto',
      ),
    }),
    runtimeDirectory: orNull(
      path(),
      'Directory of sockets and token files; `null`: by who runs the daemon. Relative to the configuration file.',
    ),
    stateDirectory: orNull(
      path(),
      'Directory of what outlives a restart; `null`: by who runs the daemon. Relative to the configuration file.',
    ),
  })

/** A configuration with its defaults; durations in ms, modes as permission bits, servers as addresses. */
export type Settings = v.InferOutput<ReturnType<typeof configSchema>>
export type SecretSource = Settings['credentials']['apiKey']
