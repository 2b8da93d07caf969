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
  tokenType: field('`Bearer`', 'how the token is sent', { null: 'the API wants another prefix' }),
  header: field('text', 'the header in which the API wants the token'),
  prefix: field('text', 'the text before the token in it'),
  obtainedAt: field(INSTANT, 'when the daemon received it'),
  expiresAt: field(INSTANT, 'when it expires, or when its assumed life ends'),
  expirySource: field(
    '`jwt`, `response`, `assumed`',
    'who says so: the token, the answer with it, or neither (`refresh.maxAge`)',
  ),
  refreshAt: field(INSTANT, 'when the next refresh is planned'),
  baseUrl: field('text', 'its service: send it nowhere else'),
  refusedBy: field('list of integers', 'the statuses by which the API refuses the token'),
  generation: field('integer', 'grows by one with each token'),
  fingerprint: field('16 hex digits', 'the beginning of the token’s SHA-256'),
  state: field(
    '`starting`, `ready`, `degraded`, `expired`, `refused`',
    'the state of the daemon: kyc-tokend(8)',
  ),
  stale: field('boolean', 'it is past its assumed life, and there is no better one'),
}
const { accessToken: _, ...description } = token

const reject: FieldsOf<RejectResult> = {
  verdict: field('verdict', 'what the daemon does about the report: below'),
  fingerprint: field('16 hex digits', 'the current token', { absent: 'there is none' }),
  retryAfterSeconds: field('integer', 'the time until the service is asked for it', {
    absent: 'the verdict is neither `held` nor `unchanged`',
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
  detail: field('text', 'the same in words', { absent: 'the outcome is `ok`' }),
  candidate: field('object', 'another pair in the files, asked first', {
    null: 'there was none, or it gave a token',
    fields: {
      reason: field(REASON, 'why it gave none'),
      detail: field('text', 'the same in words'),
    },
  }),
  ...optional(description, 'there is no token'),
}

const reload: FieldsOf<ReloadResult> = {
  outcome: field(
    '`ok`, `faulty`, `failed`',
    '`faulty`: nothing was taken over. `failed`: the settings are in use, and another pair in the files is not',
  ),
  problems: field('list of texts', 'the faults, or why the pair is not in use, each with its remedy'),
  needsRestart: field('list of texts', 'changed settings that need a restart'),
  pair: field('`in-use`, `refused`, `tried`', 'another pair in the files; `tried`: no answer yet', {
    null: 'the files hold the pair that is in use',
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
  failure: field('object', 'the last failure since the last success', {
    null: 'the last attempt gave a token, or there was none yet',
    fields: {
      reason: field(REASON, 'what kind of failure: kyc-tokend(8)'),
      detail: field('text', 'the same in words, with the service’s own'),
      status: field('integer', 'the HTTP status of the answer', { absent: 'there was no answer' }),
      since: field(INSTANT, 'when the failures began'),
      attempts: field('integer', 'failed attempts since then; a wait for another host or the store is none'),
      askedBy: field('text', 'the host of the fleet that asked the service', { absent: 'this host asked' }),
    },
  }),
  nextAttemptAt: field(INSTANT, 'when the service is asked next', { null: 'not before an operator acts' }),
  candidate: field('object', 'another pair in the files', {
    null: 'the files hold the pair that is in use',
    fields: {
      since: field(INSTANT, 'when it was found'),
      reason: field(REASON, 'why it gave no token', { null: 'it was not asked with yet' }),
      detail: field('text', 'the same in words', { null: 'it was not asked with yet' }),
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
      askedBy: field('text', 'the host of the fleet that asked the service', { absent: 'this host asked' }),
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
      configuration: field('object', 'the configuration on disk, compared with the one in use', {
        fields: {
          state: field(
            '`current`, `changed`, `faulty`',
            '`changed`: a reload would change something. `faulty`: a restart would fail',
          ),
          problem: field('text', 'the faults with their remedies', { null: 'there is none' }),
          pair: field('`refused`, `tried`', 'the problem is another pair in the files', {
            absent: 'it is not',
          }),
        },
      }),
      credentials: field('object', 'the end of the pair or the client certificate', {
        null: 'it is not known',
        fields: {
          what: field('`credentials`, `certificate`', 'which of them'),
          expiresAt: field(INSTANT, 'when it ends'),
          daysLeft: field('integer', 'whole days left; 0: today, or it has ended'),
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
      state: field(
        '`connected`, `alone`, `denied`',
        '`alone`: the store cannot be used. `denied`: it refuses access',
      ),
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
      count: field('integer', 'how many tokens it took since the start'),
      lastAt: field(INSTANT, 'when it took the last one'),
      clients: field('list of texts', 'names that its clients give themselves, at most 8'),
    },
  }),
}

const fault: FieldsOf<Fault> = {
  code: field('code', 'what is wrong: below'),
  message: field('text', 'one sentence for people, with the remedy'),
  reason: field(REASON, 'why the last attempt failed, or why there was none', {
    absent: 'no attempt has failed, or the fault is another',
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
