// The one description of the configuration file: its types, messages, JSON Schema and manual come from it.
import * as v from 'valibot'
import { logLevels } from '../lib/log.ts'
import { baseUrlProblem, normaliseBaseUrl, PROXY_SHAPE, proxyUrlProblem } from './base-url.ts'
import { keyPath, type ConfigIssue } from './issues.ts'
import {
  account,
  count,
  duration,
  formed,
  group,
  instant,
  list,
  octal,
  oneOf,
  orNull,
  path,
  rawCheck,
  required,
  secretSource,
  line,
  section,
  sectionOr,
  setting,
  span,
  valueKind,
} from './schema-parts.ts'
import { serviceSetting } from './schema-service.ts'
import { share } from './schema-share.ts'

const tokenFile = () =>
  section({
    path: required(path(), 'Where the token is written; relative to the runtime directory.'),
    format: setting(
      oneOf(['raw', 'header', 'env', 'json', 'template']),
      '`raw`: the token alone. `header`: for `curl -H @file`. `env`: for `EnvironmentFile=`. ' +
        '`json`: with its instants. `template`: as in `template`.',
      'raw',
    ),
    template: orNull(
      formed(/\{token\}/, 'must be the text to write, with {token} where the token belongs (not a file)'),
      'The text to write, with `{token}` where the token belongs.',
    ),
    mode: setting(
      octal(
        { required: 0o400, forbidden: 0o002 },
        'must let its owner, the daemon, read the file, and must not let others write the file: ' +
          'write "0600" or "0640"',
      ),
      'Permission bits of the file.',
      '0600',
    ),
    owner: orNull(account('user'), 'Owner; `null`: the daemon’s user. Under the shipped unit leave it out.'),
    group: orNull(
      account('group'),
      'Group; `null`: as it is created. Under the shipped unit make the directory setgid instead.',
    ),
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

/** The schema, built for each document: only a load needs it, and it takes 0.2 MB. */
export const configSchema = () =>
  section({
    $schema: v.optional(v.string('must be a string')),
    baseUrl: v.pipe(
      v.string('must be the URL of the service: write it as "https://api.example.com"'),
      rawCheck(baseUrlProblem),
      v.transform(normaliseBaseUrl),
      v.description('URL of the service: https, or http for a loopback host only. A base path is kept.'),
      v.examples(['https://api.example.com']),
      valueKind('URL'),
    ),
    credentials: section(
      {
        apiKey: required(
          v.nullable(secretSource()),
          'API key of the account: a secret source; `null` only with `service.assertion.file`.',
        ),
        apiSecret: required(
          v.nullable(secretSource()),
          'API secret of the account: a secret source; `null` only if it is not sent.',
        ),
        expiresAt: setting(
          v.nullable(instant()),
          'When the service ends this pair; a date alone is the end of that day, UTC.',
          null,
        ),
      },
      '{ "apiKey": …, "apiSecret": … }',
    ),
    request: group('The request to the service.', {
      timeout: span('Longest time for one request, all of it', ['100ms', '10m'], '15s'),
      connectTimeout: span('Longest time for its connection, TLS included', ['100ms', '10m'], '5s'),
      caFile: orNull(path(), 'PEM file of further authorities; relative to the configuration file.'),
      trust: setting(
        oneOf(['built-in', 'system', 'file']),
        '`built-in`: Node’s list of authorities. ' +
          '`system`: the host’s (`$SSL_CERT_FILE`, else `/etc/ssl/certs/ca-certificates.crt`). ' +
          '`file`: `caFile` alone.',
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
        'Certificate presented to the service (mutual TLS, RFC 8705); `null`: none.',
      ),
      proxy: setting(
        v.nullable(
          sectionOr(
            v.literal(false),
            section(
              {
                url: required(
                  v.pipe(line(2048, PROXY_SHAPE), rawCheck(proxyUrlProblem), valueKind('URL')),
                  'URL of the proxy: http or https.',
                ),
                user: orNull(line(255), 'User of its login.'),
                password: orNull(secretSource(), 'Password of its login: a secret source.'),
              },
              '{ "url": "http://proxy.example.com:3128" }',
            ),
            'must be an object, false for no proxy, or null for that of HTTPS_PROXY',
          ),
        ),
        'Proxy between this host and the service; `null`: that of `HTTPS_PROXY` and `NO_PROXY`; ' +
          '`false`: none.',
        null,
      ),
    }),
    refresh: group('When the token is renewed.', {
      maxAge: span('Life assumed for a token that does not say its own', ['1m', '24h'], '15m'),
    }),
    retry: group('How a failed request is repeated.', {
      initialDelay: setting(
        duration('10ms', '1h'),
        'Delay after the first failure; it doubles with each, up to `maxDelay`; 10ms to 1h.',
        '1s',
      ),
      maxDelay: span('Longest delay (while there is no usable token, 1m at most)', ['100ms', '24h'], '5m'),
    }),
    tokenFiles: setting(list(tokenFile()), 'Files to which each token is written.', [{ path: 'token' }]),
    ipc: setting(socket('ipc.sock'), 'The node-ipc socket.', {}),
    http: setting(
      sectionOr(v.literal(false), socket('http.sock'), 'must be an object, or false for no HTTP'),
      'The HTTP socket, with the same keys as `ipc`; `false`: none.',
      {},
    ),
    alerts: group('Alerts about things that a person must repair.', {
      remindAfter: setting(
        list(duration('1s', '30d')),
        'When an alert is repeated, counted from its start.',
        ['1h', '6h', '24h'],
      ),
      noTokenAfter: setting(
        v.nullable(duration('1s', '30d')),
        'How long there may be no usable token, while the host is awake, before an alert; ' +
          '`null`: never; 1s to 30d.',
        '10m',
      ),
      contact: orNull(line(200), 'Whom to call: a text that every alert and remedy repeats.'),
    }),
    service: serviceSetting(),
    share: orNull(share(), 'One token for all hosts of the account, through Redis; `null`: each by itself.'),
    log: group('The log, on stderr.', {
      level: setting(oneOf(logLevels), 'The least urgent records in it.', 'info'),
      format: setting(
        oneOf(['auto', 'text', 'json']),
        '`auto`: `text` under systemd and on a terminal, else `json`. Under systemd a line begins with its priority.',
        'auto',
      ),
    }),
    runtimeDirectory: orNull(
      path(),
      'Directory of sockets and token files; `null`: by who runs the daemon. ' +
        'Relative to the configuration file.',
    ),
    stateDirectory: orNull(
      path(),
      'Directory of what outlives a restart; `null`: by who runs the daemon. ' +
        'Relative to the configuration file.',
    ),
  })

/** A configuration with its defaults; durations in ms, modes as permission bits, servers as addresses. */
export type Settings = v.InferOutput<ReturnType<typeof configSchema>>
export type SecretSource = NonNullable<Settings['credentials']['apiKey']>

/** The settings, or the faults of the document's shape: one for each key path, without any value. */
export function validateDocument(document: unknown): {
  faults: ConfigIssue[]
  settings: Settings | undefined
} {
  const { success, output, issues } = v.safeParse(configSchema(), document, { abortPipeEarly: true })
  if (success) return { faults: [], settings: output }
  const faults = issues.map((issue) => ({
    at: keyPath((issue.path ?? []).map(({ key }) => key as PropertyKey)),
    sentence: issue.message,
  }))
  return { faults, settings: undefined }
}
