// The fields of every answer, for kyc-tokend-protocol(7): the compiler holds them against src/protocol.ts.
import type {
  AlertTestResult,
  Fault,
  RefreshResult,
  RejectResult,
  ReloadResult,
  StatusResult,
  TokenResult,
} from '../../src/protocol.ts'

/** A field; `null` and `absent` say when it is so, and are there exactly if its type allows it. */
interface FieldText {
  /** Markdown. */
  readonly type: string
  readonly meaning: string
  readonly null?: string
  readonly absent?: string
  /** The fields of an object, or of each object of a list. */
  readonly fields?: Readonly<Record<string, FieldText>>
}
type Elements<V> = NonNullable<V> extends readonly (infer E)[] ? E : NonNullable<V>
type FieldOf<T, K extends keyof T> = FieldText &
  (null extends T[K] ? { readonly null: string } : { readonly null?: never }) &
  ({} extends Pick<T, K> ? { readonly absent: string } : { readonly absent?: never }) &
  (Elements<T[K]> extends object
    ? { readonly fields: FieldsOf<Elements<T[K]>> }
    : { readonly fields?: never })
/** A row for each field, and no other. */
type FieldsOf<T> = { readonly [K in keyof T]-?: FieldOf<T, K> }

const INSTANT = 'instant'
const REASON = 'reason'
/** Of fields that only daemons of this version and newer send. */
const TO_OTHERS = 'to others than root and the daemon’s user'

/** A row of a table. */
function field<More extends Pick<FieldText, 'null' | 'absent' | 'fields'> = {}>(
  type: string,
  meaning: string,
  more?: More,
) {
  return { type, meaning, ...more } as Pick<FieldText, 'type' | 'meaning'> & More
}

const token: FieldsOf<TokenResult> = {
  accessToken: field('text', 'the token'),
  tokenType: field('`Bearer`', 'how it is sent', { null: 'the API wants another prefix' }),
  header: field('text', 'the header for it'),
  prefix: field('text', 'the text before it'),
  obtainedAt: field(INSTANT, 'when the daemon received it'),
  expiresAt: field(INSTANT, 'when its life ends'),
  expirySource: field('`jwt`, `response`, `assumed`', 'who says so; `assumed`: nobody'),
  refreshAt: field(INSTANT, 'when the next refresh is planned'),
  baseUrl: field('text', 'its service; send it nowhere else'),
  refusedBy: field('list of integers', 'by which the API refuses it'),
  generation: field('integer', 'grows by one with each token'),
  fingerprint: field('16 hex digits', 'the beginning of the token’s SHA-256'),
  state: field('`starting`, `ready`, `degraded`, `expired`, `refused`', 'the state of the daemon'),
  stale: field('boolean', 'it is past its assumed life'),
}
const { accessToken: _, ...description } = token

const reject: FieldsOf<RejectResult> = {
  verdict: field('verdict', 'what the daemon does'),
  fingerprint: field('16 hex digits', 'the current token', { absent: 'there is none' }),
  retryAfterSeconds: field('integer', 'until the service is asked', {
    absent: 'another verdict',
  }),
}

const optional = <T extends Readonly<Record<string, FieldText>>>(fields: T, absent: string) =>
  Object.fromEntries(Object.entries(fields).map(([name, text]) => [name, { ...text, absent }])) as {
    readonly [K in keyof T]: T[K] & { readonly absent: string }
  }

const refresh: FieldsOf<RefreshResult> = {
  outcome: field('`ok`, `failed`', 'whether the service gave a token'),
  reason: field(REASON, 'why not; `stopping`: the daemon ended first', {
    absent: 'the outcome is `ok`',
  }),
  detail: field('text', 'in words', { absent: 'the outcome is `ok`' }),
  candidate: field('object', 'the candidate', {
    null: 'there was none, or it gave a token',
    fields: {
      reason: field(REASON, 'why it gave none'),
      detail: field('text', 'in words'),
    },
  }),
  ...optional(description, 'there is no token'),
}

const reload: FieldsOf<ReloadResult> = {
  outcome: field('`ok`, `faulty`, `failed`', '`faulty`: nothing is in force; `failed`: all but the pair'),
  problems: field('list of texts', 'with their remedies'),
  needsRestart: field('list of texts', 'settings'),
  pair: field('`in-use`, `refused`, `tried`', 'the candidate; `tried`: no token yet', {
    null: 'no other pair',
  }),
}

const alertTest: FieldsOf<AlertTestResult> = {
  outcome: field('`raised`, `refused`', '`refused`: an alert is raised already'),
  resolvesAt: field(INSTANT, 'when the test alert ends', { absent: 'the outcome is `refused`' }),
  detail: field('text', 'which alert is raised', { absent: 'the outcome is `raised`' }),
}

const socketCounts: FieldsOf<StatusResult['clients']['ipc']> = {
  connections: field('integer', 'connections now'),
  subscribers: field('integer', 'connections with a subscription'),
}

const status: FieldsOf<StatusResult> = {
  state: token.state,
  token: field('object', 'the fields of `token.result` but `accessToken`', {
    null: 'there is no usable token',
    fields: description,
  }),
  failure: field('object', 'the last one since the last success', {
    null: 'there is none',
    fields: {
      reason: field(REASON, 'its kind'),
      detail: field('text', 'in words'),
      status: field('integer', 'the HTTP status of the answer', { absent: 'there was no answer' }),
      since: field(INSTANT, 'when the failures began'),
      attempts: field('integer', 'failed attempts since then'),
      askedBy: field('text', 'the host that asked', { absent: 'this host asked' }),
    },
  }),
  nextAttemptAt: field(INSTANT, 'when the service is asked next', { null: 'not before an operator acts' }),
  candidate: field('object', 'a newer pair in the files', {
    null: 'no other pair',
    fields: {
      since: field(INSTANT, 'when it was found'),
      reason: field(REASON, 'why it gave no token', { null: 'not asked yet' }),
      detail: field('text', 'in words', { null: 'not asked yet' }),
      status: field('integer', 'the HTTP status of the answer', { absent: 'there was no answer' }),
      attempts: field('integer', 'attempts with it'),
      nextAttemptAt: field(INSTANT, 'when it is tried next', { null: 'not before an operator acts' }),
    },
  }),
  alert: field('object', 'the alert that is raised, not a rehearsal', {
    null: 'none is raised',
    fields: {
      reason: field('`account-inactive`, `account-not-found`, `rejected`, `no-token`', 'why it was raised'),
      since: field(INSTANT, 'since when'),
      remedy: field('text', 'what to do, with the commands'),
      contact: field('text', '`alerts.contact`', { null: 'it is not set' }),
      askedBy: field('text', 'the host that asked', { absent: 'this host asked' }),
    },
  }),
  files: field('list of objects', 'the token files', {
    fields: {
      path: field('path', 'absolute'),
      format: field('text', 'the `format` of the setting'),
      ok: field('boolean', 'false: the last write failed'),
      error: field('text', 'why it failed, with the remedy', { null: '`ok` is true' }),
      present: field('boolean', 'the file is there: a token is usable'),
      writtenAt: field(INSTANT, 'when it was last written', { null: 'not since the start' }),
      repairs: field('integer', 'how often it was restored'),
    },
  }),
  clients: field('object', 'the clients of both sockets', {
    fields: {
      ipc: field('object', 'of `ipc.sock`', { fields: socketCounts }),
      http: field('object', 'of `http.sock`', { null: '`http` is false', fields: socketCounts }),
    },
  }),
  service: field('object', 'the service', {
    fields: {
      baseUrl: field('text', 'its address'),
      lastRequestAt: field(INSTANT, 'when it was last asked', { null: 'never' }),
      lastSuccessAt: field(INSTANT, 'when it last gave a token', { null: 'never' }),
      requests: field('integer', 'requests since the start'),
    },
  }),
  daemon: field('object', 'the daemon itself', {
    fields: {
      version: field('text', 'its version'),
      pid: field('integer', 'its process'),
      startedAt: field(INSTANT, 'when it started'),
      configFile: field('path', 'the configuration that it read'),
      host: field('text', 'the host’s name'),
      configuration: field('object', 'the files against the running one', {
        fields: {
          state: field('`current`, `changed`, `faulty`', '`faulty`: a restart would fail'),
          problem: field('text', 'with its remedy', { null: 'there is none' }),
          pair: field('`refused`, `tried`', 'the problem is the pair', {
            absent: 'it is not',
          }),
        },
      }),
      credentials: field('object', 'the end of the pair', {
        null: 'it is not known',
        fields: {
          what: field('`credentials`, `certificate`', 'which of them'),
          expiresAt: field(INSTANT, 'when it ends'),
          daysLeft: field('integer', 'whole days left'),
        },
      }),
      stateProblem: field('text', 'why the state cannot be saved, with the remedy', {
        null: 'it can',
      }),
      pathProblems: field('list of texts', 'sockets that are opened too wide, with their remedies'),
    },
  }),
  share: field('object', 'the shared store', {
    null: 'this host does not share its token',
    fields: {
      state: field('`connected`, `alone`, `denied`', '`alone`: it cannot be used'),
      server: field('text', 'the server'),
      since: field(INSTANT, 'since when it is in this state'),
      askedBy: field('text', 'the host that asked last', { null: 'it is not known' }),
      lastError: field('text', 'the last error of the store', { null: 'there was none' }),
    },
  }),
  readers: field('list of objects', 'the users that took tokens', {
    absent: TO_OTHERS,
    fields: {
      uid: field('integer', 'the user'),
      name: field('text', 'its name on this host'),
      connections: field('integer', 'its connections now'),
      count: field('integer', 'tokens that it took'),
      lastAt: field(INSTANT, 'when it took the last one'),
      clients: field('list of texts', 'names that its clients give themselves'),
    },
  }),
}

const fault: FieldsOf<Fault> = {
  code: field('code', 'what is wrong'),
  message: field('text', 'one sentence for people, with the remedy'),
  reason: field(REASON, 'why the last attempt failed', {
    absent: 'there is none',
  }),
}

/** The fields of each answer, beside `id`. */
export const answerFields = {
  'token.result': token,
  'reject.result': reject,
  'refresh.result': refresh,
  'reload.result': reload,
  'alert.result': alertTest,
  'status.result': status,
  fault,
} satisfies Readonly<Record<string, Readonly<Record<string, FieldText>>>>

/** Of `refresh.result`, which has the fields of a token, too, they are in the table of that. */
export const tableFields = {
  ...answerFields,
  'refresh.result': Object.fromEntries(
    Object.entries(refresh).filter(([name]) => !Object.hasOwn(description, name)),
  ),
}

/** A row of the table for each field: its path, type, meaning, and when it is null or absent. */
export function fieldRows(fields: Readonly<Record<string, FieldText>>, prefix = ''): string[][] {
  return Object.entries(fields).flatMap(([name, { type, meaning, null: isNull, absent, fields: inner }]) => {
    const path = `${prefix}${name}`
    const whens = [
      ...(isNull === undefined ? [] : [`null: ${isNull}`]),
      ...(absent === undefined ? [] : [`absent: ${absent}`]),
    ]
    const row = [`\`${path}\``, type, [meaning, ...whens].join('; ')]
    // The fields of a token are in the table of token.result.
    const own =
      inner === undefined || path === 'token'
        ? []
        : fieldRows(inner, `${path}${type.startsWith('list') ? '[]' : ''}.`)
    return [row, ...own]
  })
}
