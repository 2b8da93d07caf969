// The one description of the configuration file: its types, its messages, its JSON Schema and its table of settings.
import * as z from 'zod'

import { parseDuration } from '../lib/duration.ts'
import { logLevels } from '../lib/log.ts'
import { objectionToBaseUrl } from './base-url.ts'
import { defaults } from './defaults.ts'
import { keyPath, printable, type Fault } from './faults.ts'
import { nearestName } from './nearest.ts'

// Nothing is compiled at run time: the daemon runs where that is forbidden.
z.config({ jitless: true })

/** A sentence for a value that is there and wrong; one that is not there is missing. */
const says = (sentence: string) => (issue: { input?: unknown }) =>
  issue.input === undefined ? `is missing: it ${sentence}` : sentence

/** A setting that may be left out, with what it means and what holds then. */
function setting<T extends z.ZodType>(schema: T, description: string, standard: unknown) {
  return schema.optional().meta({ description, default: standard })
}

function duration(from: string, to: string) {
  const shape = says('must be a duration with its unit, in quotes: write "500ms", "30s", "15m", "1h" or "1d"')
  const isInRange = (text: string): boolean => {
    const ms = parseDuration(text) ?? Number.NaN
    return ms >= parseDuration(from)! && ms <= parseDuration(to)!
  }
  return z
    .string({ error: shape })
    .regex(/^\d+(\.\d+)?(ms|s|m|h|d)$/, { abort: true, error: shape })
    .refine(isInRange, { error: `must be from "${from}" to "${to}"` })
}

const octal = (granted: number, sentence: string) => {
  const shape = says('must be permission bits as a string of octal digits: write "0600" or "0640", in quotes')
  return z
    .string({ error: shape })
    .regex(/^0?[0-7]{3}$/, { abort: true, error: shape })
    .refine((text) => (Number.parseInt(text, 8) & granted) === granted, { error: sentence })
}

const path = (sentence = 'must be a path: write it as a string') =>
  z
    .string({ error: says(sentence) })
    .min(1, { error: sentence, abort: true })
    .refine((text) => !text.includes('\0'), {
      error: 'must not hold a NUL character: remove it',
      abort: true,
    })
    .refine((text) => !text.startsWith('~'), {
      error:
        'must not begin with "~", which only a shell expands: write the whole path, or "./~…" for that very name',
    })

const count = (to: number) => {
  const error = says(`must be a whole number from 1 to ${to}`)
  return z.int({ error }).min(1, { error }).max(to, { error })
}

/** The largest id but one: the largest means "none" to the kernel. */
const MAX_ID = 2 ** 32 - 2
const account = (kind: 'user' | 'group') => {
  const error = says(`must be the name or the number of a ${kind}`)
  const name = z.string().regex(/^(?!-)[^\s:,/\p{Cc}]+$/u, { error })
  return z.union([name, z.int().min(0, { error }).max(MAX_ID, { error })], { error })
}

const oneOf = <const T extends string>(choices: readonly T[]) =>
  z.enum(choices, { error: says(`must be one of ${choices.map((choice) => `"${choice}"`).join(', ')}`) })

const SECRET_SHAPE =
  'must be a secret source: write a string that is not empty, or exactly one of { "file": PATH }, { "credential": NAME } and { "env": NAME }'
const secretSource = (description: string) =>
  z
    .union(
      [
        z.string().min(1),
        z.strictObject({ file: path().meta({ description: 'A file that holds the secret.' }) }),
        z.strictObject({
          credential: z
            .string()
            .regex(/^(?!\.{1,2}$)[A-Za-z0-9._@:-]{1,255}$/)
            .meta({ description: 'Name of a systemd credential (`LoadCredential=`).' }),
        }),
        z.strictObject({
          env: z
            .string()
            .regex(/^[A-Za-z_][A-Za-z0-9_]*$/)
            .meta({ description: 'Name of an environment variable.' }),
        }),
      ],
      { error: says(SECRET_SHAPE) },
    )
    .meta({ description })

function section<T extends z.ZodRawShape>(shape: T, written = '{ … }') {
  return z.strictObject(shape, { error: says(`must be an object: write it as ${written}`) })
}

function list<T extends z.ZodType>(element: T) {
  const error = 'must be a list: write it as [ … ]'
  return z
    .array(element, { error: says(error) })
    .max(64, { error: 'has too many entries: 64 are the most there can be' })
}

const tokenFile = section({
  path: path().meta({ description: 'Where the token is written; relative to the runtime directory.' }),
  format: setting(
    oneOf(['raw', 'header', 'env', 'json']),
    '`raw`: the token alone. `header`: for `curl -H @file`. `env`: for `EnvironmentFile=`. `json`: with its instants.',
    defaults.tokenFile.format,
  ),
  mode: setting(
    octal(0o400, 'must let its owner, the daemon, read the file: write "0600"').refine(
      (text) => (Number.parseInt(text, 8) & 0o002) === 0,
      { error: 'must not let others write the file: write "0640" or "0600"' },
    ),
    'Permission bits of the file.',
    defaults.tokenFile.mode,
  ),
  owner: setting(account('user').nullable(), 'Owner; `null`: the daemon’s user.', defaults.tokenFile.owner),
  group: setting(
    account('group').nullable(),
    'Group; `null`: as the file is created (a setgid directory gives its own).',
    defaults.tokenFile.group,
  ),
})

const socket = (standard: { path: string }) =>
  section({
    path: setting(
      path(),
      'The socket, at most 107 bytes long; relative to the runtime directory.',
      standard.path,
    ),
    mode: setting(
      octal(0o600, 'must let its owner read and write the socket: write "0600" or "0660"'),
      'Permission bits of the socket.',
      defaults.socket.mode,
    ),
    group: setting(
      account('group').nullable(),
      'Group of the socket; `null`: as it is created.',
      defaults.socket.group,
    ),
    allow: setting(
      section({
        users: setting(
          list(account('user')),
          'Users that may use the socket, by name or number.',
          defaults.socket.allow.users,
        ),
        groups: setting(
          list(account('group')),
          'Groups that may use it, by name or number. With both lists empty its mode alone decides.',
          defaults.socket.allow.groups,
        ),
      }),
      'Who may use the socket, beside root and the daemon’s user.',
      defaults.socket.allow,
    ),
    maxConnections: setting(count(65_536), 'Connections at one time.', defaults.socket.maxConnections),
    maxConnectionsPerUser: setting(
      count(65_536),
      'Connections of one user at one time.',
      defaults.socket.maxConnectionsPerUser,
    ),
    maxRequestsPerSecond: setting(
      count(1_000_000).nullable(),
      'Requests per second on one connection; `null`: no limit.',
      defaults.socket.maxRequestsPerSecond,
    ),
  })

const configSchema = section({
  $schema: z.string({ error: 'must be a string' }).optional(),
  baseUrl: z
    .string({ error: says('must be the URL of the service: write it as "https://api.example.com"') })
    .superRefine((text, context) => {
      const objection = objectionToBaseUrl(text)
      if (objection !== undefined) context.addIssue({ code: 'custom', message: objection })
    })
    .meta({
      description: 'URL of the service: https, or http for a loopback host only. A base path is kept.',
      examples: ['https://api.example.com'],
    }),
  credentials: section(
    {
      apiKey: secretSource('API key of the account: a secret source.'),
      apiSecret: secretSource('API secret of the account: a secret source.'),
    },
    '{ "apiKey": …, "apiSecret": … }',
  ),
  request: setting(
    section({
      timeout: setting(
        duration('100ms', '10m'),
        'Longest time for one request, from first to last byte; 100ms to 10m.',
        defaults.request.timeout,
      ),
      connectTimeout: setting(
        duration('100ms', '10m'),
        'Longest time for its connection, TLS included; 100ms to 10m.',
        defaults.request.connectTimeout,
      ),
      caFile: setting(
        path().nullable(),
        'PEM file of authorities to trust beside the built-in ones; relative to the configuration file.',
        defaults.request.caFile,
      ),
    }),
    'The request to the service.',
    {},
  ),
  refresh: setting(
    section({
      maxAge: setting(
        duration('1m', '24h'),
        'Life assumed for a token that does not say its own; 1m to 24h.',
        defaults.refresh.maxAge,
      ),
    }),
    'When the token is renewed.',
    {},
  ),
  retry: setting(
    section({
      initialDelay: setting(
        duration('10ms', '1h'),
        'Delay after the first failure; it doubles with each further one; 10ms to 1h.',
        defaults.retry.initialDelay,
      ),
      maxDelay: setting(
        duration('100ms', '24h'),
        'Longest delay (while there is no usable token, 1m at most); 100ms to 24h.',
        defaults.retry.maxDelay,
      ),
    }),
    'How a failed request is repeated.',
    {},
  ),
  tokenFiles: setting(
    list(tokenFile),
    'Files that the token is written to, at each change.',
    defaults.tokenFiles,
  ),
  ipc: setting(socket(defaults.ipc), 'The node-ipc socket.', {}),
  http: setting(
    z.union([z.literal(false), socket(defaults.http)], {
      error: says('must be an object, or false for no HTTP'),
    }),
    'The HTTP socket, with the same keys as `ipc`; `false`: none.',
    {},
  ),
  alerts: setting(
    section({
      remindAfter: setting(
        list(duration('1s', '30d')),
        'How long after an alert was raised it is repeated; 1s to 30d each.',
        defaults.alerts.remindAfter,
      ),
    }),
    'Alerts about things that a person must mend.',
    {},
  ),
  log: setting(
    section({
      level: setting(
        oneOf(logLevels),
        'The least urgent records that are written (syslog’s levels).',
        defaults.log.level,
      ),
      format: setting(
        oneOf(['auto', 'journal', 'text', 'json']),
        '`auto`: `journal` under systemd, `text` on a terminal, else `json`.',
        defaults.log.format,
      ),
    }),
    'The log, on stderr.',
    {},
  ),
  runtimeDirectory: setting(
    path().nullable(),
    'Directory of sockets and token files; `null`: by who runs the daemon. Relative to the configuration file.',
    null,
  ),
  stateDirectory: setting(
    path().nullable(),
    'Directory of what outlives a restart; `null`: by who runs the daemon. Relative to the configuration file.',
    null,
  ),
})

/** A configuration file, as it may be written. */
export type ConfigInput = z.input<typeof configSchema>

export interface Judgement {
  readonly faults: readonly Fault[]
  /** Where the values are that cannot be used. */
  readonly faultyPaths: readonly (readonly PropertyKey[])[]
}

/** All that is wrong with the shape of a document. */
export function judgeDocument(document: unknown): Judgement {
  const issues = (configSchema.safeParse(document).error?.issues ?? []).flatMap((issue) =>
    plainIssues(issue, document),
  )
  const faults = issues.flatMap(faultsOf)
  const isFirst = (fault: Fault, index: number): boolean =>
    faults.findIndex(({ at, sentence }) => at === fault.at && sentence === fault.sentence) === index
  return {
    faults: faults.filter(isFirst),
    faultyPaths: issues.filter(({ code }) => code !== 'unrecognized_keys').map((issue) => issue.path),
  }
}

type Issue = z.core.$ZodIssue

/**
 * Of the alternatives of `http`, an object means the socket: its own faults are told, not that neither fits. Of a
 * secret source nothing is told but how to write one: whatever was put there may be the secret, names of keys too.
 */
function plainIssues(issue: Issue, document: unknown): Issue[] {
  const [first, ...rest] = issue.path
  if (first === 'credentials' && rest.length > 0) {
    const message = issue.code === 'invalid_union' ? issue.message : SECRET_SHAPE
    return [{ code: 'custom', path: issue.path.slice(0, 2), message }]
  }
  if (issue.code !== 'invalid_union' || first !== 'http' || rest.length > 0) return [issue]
  const value = (document as { http: unknown }).http
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [issue]
  return (issue.errors.at(-1) ?? []).map((inner) => ({ ...inner, path: [...issue.path, ...inner.path] }))
}

function faultsOf(issue: Issue): Fault[] {
  if (issue.code !== 'unrecognized_keys') return [{ at: keyPath(issue.path), sentence: issue.message }]
  return issue.keys.map((key) => ({
    at: keyPath([...issue.path, nameable(key)]),
    sentence: `is an unknown key: ${whatIsMeant(key, issue.path)}`,
  }))
}

function nameable(key: string): string {
  return /^[\w$-]{1,64}$/.test(key) ? key : printable(key)
}

/** Made at the first unknown key: it takes some milliseconds. */
let knownKeys: string[] | undefined

function whatIsMeant(key: string, parent: readonly PropertyKey[]): string {
  knownKeys ??= settingRows().map((row) => row.key)
  const known = knownKeys
  const prefix = keyPath(parent.map((segment) => (typeof segment === 'number' ? '[]' : segment)))
    .replaceAll('.[]', '[]')
    .replace(/^http\b/, 'ipc')
  const here = known
    .filter((name) => prefix === '' || name.startsWith(`${prefix}.`))
    .map((name) => (prefix === '' ? name : name.slice(prefix.length + 1)).replace(/[.[].*$/, ''))
  const names = [...new Set(here)]
  const near = nearestName(key, names)
  if (near !== undefined) return `did you mean "${near}"?`
  const elsewhere = known.find((name) => name.toLowerCase().endsWith(`.${key.toLowerCase()}`))
  if (elsewhere !== undefined) return `did you mean "${elsewhere}"?`
  return `remove it; known here are ${names.join(', ')}`
}

/** The JSON Schema of the file, for editors (draft 7, which they know best). */
export function configJsonSchema(): Record<string, unknown> {
  const { $schema, ...rest } = z.toJSONSchema(configSchema, { io: 'input', target: 'draft-7' })
  return { $schema, title: 'Configuration of kyc-tokend', ...rest }
}

export interface SettingRow {
  /** Key path; `tokenFiles[].mode` is that of each entry. */
  readonly key: string
  /** The default as JSON; undefined: the setting is required. */
  readonly default: string | undefined
  readonly meaning: string
}

interface SchemaNode {
  readonly description?: string
  readonly default?: unknown
  readonly properties?: Record<string, SchemaNode>
  readonly items?: SchemaNode
}

/** Every setting with its default and meaning, in the order of the file. The keys of `http` are those of `ipc`. */
export function settingRows(): SettingRow[] {
  return rowsOf(configJsonSchema(), '')
}

function rowsOf(node: SchemaNode, prefix: string): SettingRow[] {
  return Object.entries(node.properties ?? {})
    .filter(([name]) => name !== '$schema')
    .flatMap(([name, child]) => rowsOfSetting(child, prefix === '' ? name : `${prefix}.${name}`))
}

function rowsOfSetting(node: SchemaNode, key: string): SettingRow[] {
  if (node.properties !== undefined) return rowsOf(node, key)
  const standard = node.default === undefined ? undefined : JSON.stringify(node.default)
  const row = { key, default: standard, meaning: node.description ?? '' }
  return node.items?.properties === undefined ? [row] : [row, ...rowsOf(node.items, `${key}[]`)]
}
