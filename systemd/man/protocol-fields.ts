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
  accessToken: field('text', ''),
  tokenType: field('`Bearer`', '', { null: 'the API wants another prefix' }),
  header: field('text', 'in which the API wants it'),
  prefix: field('text', 'before it'),
  obtainedAt: field(INSTANT, ''),
  expiresAt: field(INSTANT, ''),
  expirySource: field('`jwt`, `response`, `assumed`', 'the token says it, its answer, nobody'),
  refreshAt: field(INSTANT, ''),
  baseUrl: field('text', 'send it nowhere else'),
  refusedBy: field('list of integers', 'statuses by which the API refuses it'),
  generation: field('integer', 'counts tokens'),
  fingerprint: field('16 hex digits', 'of its SHA-256'),
  state: field('`starting`, `ready`, `degraded`, `expired`, `refused`', ''),
  stale: field('boolean', 'it is past its assumed life'),
}
const { accessToken: _, ...description } = token

const reject: FieldsOf<RejectResult> = {
  verdict: field('verdict', ''),
  fingerprint: field('16 hex digits', 'of the current token', { absent: 'there is none' }),
  retryAfterSeconds: field('integer', 'until the service is asked', {
    absent: 'another verdict',
  }),
}

const optional = <T extends Readonly<Record<string, FieldText>>>(fields: T, absent: string) =>
  Object.fromEntries(Object.entries(fields).map(([name, text]) => [name, { ...text, absent }])) as {
    readonly [K in keyof T]: T[K] & { readonly absent: string }
  }

const refresh: FieldsOf<RefreshResult> = {
  outcome: field('`ok`, `failed`', ''),
  reason: field(REASON, '`stopping`: the daemon ended first', {
    absent: 'the outcome is `ok`',
  }),
  detail: field('text', '', { absent: 'the outcome is `ok`' }),
  candidate: field('object', '', {
    null: 'there was none, or it gave a token',
    fields: {
      reason: field(REASON, ''),
      detail: field('text', ''),
    },
  }),
  ...optional(description, 'there is no token'),
}

const reload: FieldsOf<ReloadResult> = {
  outcome: field('`ok`, `faulty`, `failed`', 'in force is all, nothing, all but the pair'),
  problems: field('list of texts', 'with their remedies'),
  needsRestart: field('list of texts', ''),
  pair: field('`in-use`, `refused`, `tried`', '', {
    null: 'no other pair',
  }),
}

const alertTest: FieldsOf<AlertTestResult> = {
  outcome: field('`raised`, `refused`', ''),
  resolvesAt: field(INSTANT, '', { absent: 'the outcome is `refused`' }),
  detail: field('text', 'which alert stands', { absent: 'the outcome is `raised`' }),
}

const socketCounts: FieldsOf<StatusResult['clients']['ipc']> = {
  connections: field('integer', ''),
  subscribers: field('integer', ''),
}

const status: FieldsOf<StatusResult> = {
  state: token.state,
  token: field('object', 'as `token.result`, without `accessToken`', {
    null: 'none is usable',
    fields: description,
  }),
  failure: field('object', 'the last one since the last success', {
    null: 'none',
    fields: {
      reason: field(REASON, ''),
      detail: field('text', ''),
      status: field('integer', 'of HTTP', { absent: 'no answer' }),
      since: field(INSTANT, ''),
      attempts: field('integer', ''),
    },
  }),
  nextAttemptAt: field(INSTANT, '', { null: 'not before an operator acts' }),
  candidate: field('object', 'a newer pair in the files', {
    null: 'none',
    fields: {
      since: field(INSTANT, ''),
      reason: field(REASON, '', { null: 'not asked yet' }),
      detail: field('text', '', { null: 'not asked yet' }),
      status: field('integer', 'of HTTP', { absent: 'no answer' }),
      attempts: field('integer', ''),
      nextAttemptAt: field(INSTANT, '', { null: 'not before an operator acts' }),
    },
  }),
  alert: field('object', 'not a rehearsal', {
    null: 'none is raised',
    fields: {
      reason: field('`account-inactive`, `account-not-found`, `rejected`, `no-token`', ''),
      since: field(INSTANT, ''),
      remedy: field('text', ''),
      contact: field('text', '', { null: 'not set' }),
    },
  }),
  files: field('list of objects', 'the token files', {
    fields: {
      path: field('path', ''),
      format: field('text', ''),
      ok: field('boolean', 'false: the last write failed'),
      error: field('text', 'with the remedy', { null: '`ok` is true' }),
      present: field('boolean', ''),
      writtenAt: field(INSTANT, '', { null: 'it is not there' }),
      repairs: field('integer', ''),
    },
  }),
  clients: field('object', '', {
    fields: {
      ipc: field('object', '', { fields: socketCounts }),
      http: field('object', '', { null: '`http` is false', fields: socketCounts }),
    },
  }),
  service: field('object', '', {
    fields: {
      baseUrl: field('text', ''),
      lastRequestAt: field(INSTANT, '', { null: 'never' }),
      lastSuccessAt: field(INSTANT, '', { null: 'never' }),
      requests: field('integer', 'since the start'),
    },
  }),
  daemon: field('object', '', {
    fields: {
      version: field('text', ''),
      pid: field('integer', ''),
      startedAt: field(INSTANT, ''),
      configFile: field('path', ''),
      host: field('text', ''),
      configuration: field('object', 'the files against the running one', {
        fields: {
          state: field('`current`, `changed`, `faulty`', 'with the last one a restart would fail'),
          problem: field('text', 'with its remedy', { null: 'none' }),
          pair: field('`refused`, `tried`', 'the problem is the pair', {
            absent: 'it is not',
          }),
        },
      }),
      credentials: field('object', 'the end of the pair', {
        null: 'not known',
        fields: {
          what: field('`credentials`, `certificate`', ''),
          expiresAt: field(INSTANT, ''),
          daysLeft: field('integer', ''),
        },
      }),
      stateProblem: field('text', 'why the state cannot be saved', {
        null: 'it can',
      }),
      pathProblems: field('list of texts', 'sockets that are opened too wide'),
    },
  }),
  share: field('object', 'the shared store', {
    null: 'this host does not share its token',
    fields: {
      state: field('`connected`, `alone`, `denied`', ''),
      server: field('text', ''),
      since: field(INSTANT, ''),
      askedBy: field('text', 'the host that asked last', { null: 'not known' }),
      lastError: field('text', '', { null: 'none' }),
    },
  }),
  readers: field('list of objects', 'the users that took tokens', {
    absent: TO_OTHERS,
    fields: {
      uid: field('integer', ''),
      name: field('text', ''),
      connections: field('integer', ''),
      count: field('integer', 'tokens that it took'),
      lastAt: field(INSTANT, ''),
      clients: field('list of texts', 'their own names'),
    },
  }),
}

const fault: FieldsOf<Fault> = {
  code: field('code', ''),
  message: field('text', 'for people, with the remedy'),
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

/** Each field by its path, with its type, and its meaning with when it is null or absent. */
export function fieldFacts(
  fields: Readonly<Record<string, FieldText>>,
  prefix = '',
): { path: string; type: string; meaning: string }[] {
  return Object.entries(fields).flatMap(([name, { fields: inner, ...text }]) => {
    const path = `${prefix}${name}`
    const { type } = text
    const fact = { path, type, meaning: wordsOf(text) }
    // The fields of a token are in the table of token.result.
    const isElsewhere = inner === undefined || path === 'token'
    const below = `${path}${type.startsWith('list') ? '[]' : ''}.`
    return [fact, ...(isElsewhere ? [] : fieldFacts(inner, below))]
  })
}

/** The fields of an answer as text, a level deeper in each object; fields without a text share a line. */
export function outlineOf(fields: Readonly<Record<string, FieldText>>, indent = ''): string[] {
  const lines: string[] = []
  let plain: string[] = []
  const endLine = (): void => {
    if (plain.length > 0) lines.push(`${indent}${plain.join(', ')}`)
    plain = []
  }
  for (const [name, { type, fields: inner, ...text }] of Object.entries(fields)) {
    const words = wordsOf({ type, ...text })
    const label = type.startsWith('list of objects') ? `${name}[]` : name
    // The fields of a token are those of token.result.
    const below = inner === undefined || name === 'token' ? [] : outlineOf(inner, `${indent}  `)
    if (words === '' && below.length === 0) plain.push(label)
    else {
      endLine()
      lines.push(`${indent}${label}${words}`, ...below)
    }
  }
  endLine()
  return lines
}

/** When a field is null or absent, then its values, if they are few, and its meaning. */
function wordsOf({ type, meaning, null: isNull, absent }: Omit<FieldText, 'fields'>): string {
  const values = type.startsWith('`') ? type : ''
  const whens = [isNull && `null: ${isNull}`, absent && `absent: ${absent}`].filter(Boolean).join('; ')
  const words = [values, meaning].filter(Boolean).join('; ')
  return `${whens && ` (${whens})`}${words && `: ${words}`}`.replaceAll('`', '')
}
