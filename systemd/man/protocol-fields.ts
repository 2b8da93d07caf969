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
/** The fields that only daemons of this version and newer have. */
const BEFORE_2_0 = 'from a daemon before 2.0.0'
const BEFORE_2_1 = 'from a daemon before 2.1.0'
const TO_OTHERS = 'to others than root and the daemon’s user'

const token: FieldsOf<TokenResult> = {
  accessToken: { type: 'text', meaning: 'the token' },
  tokenType: { type: '`Bearer`', meaning: 'how the token is sent', null: 'the API wants another prefix' },
  header: { type: 'text', meaning: 'the header in which the API wants the token', absent: BEFORE_2_0 },
  prefix: { type: 'text', meaning: 'what stands before the token in that header', absent: BEFORE_2_0 },
  obtainedAt: { type: INSTANT, meaning: 'when the daemon received it' },
  expiresAt: { type: INSTANT, meaning: 'when it expires, or when its assumed life ends' },
  expirySource: {
    type: '`jwt`, `response`, `assumed`',
    meaning: 'who says when it expires: the token, the answer with it, or neither (`refresh.maxAge`)',
  },
  refreshAt: { type: INSTANT, meaning: 'when the next refresh is planned' },
  baseUrl: { type: 'text', meaning: 'the service that the token is for: send it nowhere else' },
  refusedBy: {
    type: 'list of integers',
    meaning: 'the statuses by which the API says that the token is refused',
    absent: BEFORE_2_0,
  },
  generation: { type: 'integer', meaning: 'the number of the token; it grows by one with each' },
  fingerprint: { type: '16 hex digits', meaning: 'the beginning of the token’s SHA-256' },
  state: {
    type: '`starting`, `ready`, `degraded`, `expired`, `refused`',
    meaning: 'the state of the daemon: kyc-tokend(8)',
  },
  stale: { type: 'boolean', meaning: 'true: the token is past its assumed life, and there is no better one' },
}
const { accessToken: _, ...description } = token

const reject: FieldsOf<RejectResult> = {
  verdict: { type: 'verdict', meaning: 'what the daemon does about the report: below' },
  fingerprint: { type: '16 hex digits', meaning: 'the current token', absent: 'there is none' },
  retryAfterSeconds: {
    type: 'integer',
    meaning: 'the time until the service is asked because of the report',
    absent: 'the verdict is neither `held` nor `unchanged`',
  },
}

const optional = <T extends Readonly<Record<string, FieldText>>>(fields: T, absent: string) =>
  Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, { ...field, absent }])) as {
    readonly [K in keyof T]: T[K] & { readonly absent: string }
  }

const refresh: FieldsOf<RefreshResult> = {
  outcome: { type: '`ok`, `failed`', meaning: 'whether the service gave a token' },
  reason: {
    type: REASON,
    meaning: 'why it gave none; `stopping`: the daemon ends before the attempt does',
    absent: 'the outcome is `ok`',
  },
  detail: { type: 'text', meaning: 'the same in words', absent: 'the outcome is `ok`' },
  candidate: {
    type: 'object',
    meaning: 'another pair in the files was asked first, and gave no token',
    null: 'no other pair was asked, or it gave a token',
    absent: BEFORE_2_1,
    fields: {
      reason: { type: REASON, meaning: 'why it gave none' },
      detail: { type: 'text', meaning: 'the same in words' },
    },
  },
  ...optional(description, 'there is no token'),
}

const reload: FieldsOf<ReloadResult> = {
  outcome: {
    type: '`ok`, `faulty`, `failed`',
    meaning:
      '`ok`: settings and pair are in use. `faulty`: nothing was taken over. `failed`: the settings are in ' +
      'use, and another pair in the files is not',
  },
  problems: {
    type: 'list of texts',
    meaning: 'the faults, or why the pair is not in use, each with its remedy',
  },
  needsRestart: { type: 'list of texts', meaning: 'changed settings that take effect at a restart alone' },
  pair: {
    type: '`in-use`, `refused`, `tried`',
    meaning: 'what became of another pair in the files; `tried`: there is no answer yet',
    null: 'the files hold the pair that is in use',
  },
}

const alertTest: FieldsOf<AlertTestResult> = {
  outcome: { type: '`raised`, `refused`', meaning: '`refused`: an alert is raised already' },
  resolvesAt: { type: INSTANT, meaning: 'when the test alert ends', absent: 'the outcome is `refused`' },
  detail: { type: 'text', meaning: 'which alert is raised', absent: 'the outcome is `raised`' },
}

const socketCounts: FieldsOf<StatusResult['clients']['ipc']> = {
  connections: { type: 'integer', meaning: 'connections now' },
  subscribers: { type: 'integer', meaning: 'connections with a subscription' },
}

const status: FieldsOf<StatusResult> = {
  state: token.state,
  token: {
    type: 'object',
    meaning: 'the fields of `token.result` but `accessToken`',
    null: 'there is no usable token',
    fields: description,
  },
  failure: {
    type: 'object',
    meaning: 'the last failure since the last success',
    null: 'the last attempt gave a token, or there was none yet',
    fields: {
      reason: { type: REASON, meaning: 'what kind of failure: kyc-tokend(8)' },
      detail: { type: 'text', meaning: 'the same in words, with the service’s own' },
      status: { type: 'integer', meaning: 'the HTTP status of the answer', absent: 'there was no answer' },
      since: { type: INSTANT, meaning: 'when the failures began' },
      attempts: {
        type: 'integer',
        meaning: 'failed attempts since then; a refusal is one, a wait for another host or the store none',
      },
      askedBy: {
        type: 'text',
        meaning: 'the host of the fleet that asked the service',
        absent: 'this host asked',
      },
    },
  },
  nextAttemptAt: {
    type: INSTANT,
    meaning: 'when the service is asked next',
    null: 'not before an operator acts',
  },
  candidate: {
    type: 'object',
    meaning: 'another pair in the files, which comes into use by giving a token',
    null: 'the files hold the pair that is in use',
    absent: BEFORE_2_1,
    fields: {
      since: { type: INSTANT, meaning: 'when it was found' },
      reason: { type: REASON, meaning: 'why it gave no token', null: 'it was not asked with yet' },
      detail: { type: 'text', meaning: 'the same in words', null: 'it was not asked with yet' },
      status: { type: 'integer', meaning: 'the HTTP status of the answer', absent: 'there was no answer' },
      attempts: { type: 'integer', meaning: 'attempts with it' },
      nextAttemptAt: { type: INSTANT, meaning: 'when it is tried next', null: 'not before an operator acts' },
    },
  },
  tokensEndEarly: {
    type: 'object',
    meaning: 'clients reported tokens that were younger than `refresh.maxAge`',
    absent: 'they did not',
    fields: {
      agesSeconds: { type: 'list of integers', meaning: 'the ages of those tokens, the last ten' },
      maxAge: { type: 'duration', meaning: 'the `refresh.maxAge` that would fit' },
    },
  },
  alert: {
    type: 'object',
    meaning: 'the alert that is raised; a rehearsal is not shown',
    null: 'none is raised',
    fields: {
      reason: {
        type: '`account-inactive`, `account-not-found`, `rejected`, `no-token`',
        meaning: 'why it was raised',
      },
      since: { type: INSTANT, meaning: 'since when' },
      remedy: { type: 'text', meaning: 'what to do, with the commands' },
      contact: { type: 'text', meaning: '`alerts.contact`', null: 'it is not set' },
      askedBy: {
        type: 'text',
        meaning: 'the host of the fleet that asked the service',
        absent: 'this host asked',
      },
    },
  },
  files: {
    type: 'list of objects',
    meaning: 'the token files',
    fields: {
      path: { type: 'path', meaning: 'absolute' },
      format: { type: 'text', meaning: 'the `format` of the setting' },
      ok: { type: 'boolean', meaning: 'false: the last write failed' },
      error: { type: 'text', meaning: 'why it failed, with the remedy', null: '`ok` is true' },
      present: { type: 'boolean', meaning: 'false while no token is usable: then the file is absent' },
      writtenAt: {
        type: INSTANT,
        meaning: 'when it was last written',
        null: 'not since the start of the daemon',
      },
      repairs: { type: 'integer', meaning: 'how often another program changed it, and it was restored' },
    },
  },
  clients: {
    type: 'object',
    meaning: 'the clients of both sockets',
    fields: {
      ipc: { type: 'object', meaning: 'of `ipc.sock`', fields: socketCounts },
      http: { type: 'object', meaning: 'of `http.sock`', null: '`http` is false', fields: socketCounts },
      limited: {
        type: 'list of objects',
        meaning: 'who was over a limit of connections since the start, the last first',
        absent: `${BEFORE_2_1}, and ${TO_OTHERS}`,
        fields: {
          socket: { type: '`ipc`, `http`, `metrics`', meaning: 'at which socket' },
          uid: { type: 'integer', meaning: 'the user', null: 'over TCP, where the kernel names none' },
          setting: {
            type: '`maxConnections`, `maxConnectionsPerUser`, `LimitNOFILE`',
            meaning: 'which limit',
          },
          limit: { type: 'integer', meaning: 'its value' },
          count: { type: 'integer', meaning: 'connections that were closed without an answer' },
          lastAt: { type: INSTANT, meaning: 'when the last one was' },
        },
      },
    },
  },
  service: {
    type: 'object',
    meaning: 'the service',
    fields: {
      baseUrl: { type: 'text', meaning: 'its address' },
      lastRequestAt: {
        type: INSTANT,
        meaning: 'when it was last asked, also before the start',
        null: 'never',
      },
      lastSuccessAt: {
        type: INSTANT,
        meaning: 'when it last gave a token, also before the start',
        null: 'never',
      },
      requests: { type: 'integer', meaning: 'requests since the start of the daemon' },
    },
  },
  daemon: {
    type: 'object',
    meaning: 'the daemon itself',
    fields: {
      version: { type: 'text', meaning: 'its version' },
      pid: { type: 'integer', meaning: 'its process' },
      startedAt: { type: INSTANT, meaning: 'when it started' },
      configFile: { type: 'path', meaning: 'the configuration that it read' },
      host: { type: 'text', meaning: 'the host’s name' },
      configuration: {
        type: 'object',
        meaning: 'the configuration on disk, compared with the one in use',
        fields: {
          state: {
            type: '`current`, `changed`, `faulty`',
            meaning: '`changed`: a reload would change something. `faulty`: a restart would fail',
          },
          problem: { type: 'text', meaning: 'the faults with their remedies', null: 'there is none' },
          pair: {
            type: '`refused`, `tried`',
            meaning: 'the problem is another pair in the files: the service refused it, or it is being tried',
            absent: 'it is not',
          },
        },
      },
      credentials: {
        type: 'object',
        meaning: 'when the pair or the client certificate ends, whichever is first',
        null: 'it is not known',
        absent: BEFORE_2_0,
        fields: {
          what: { type: '`pair`, `certificate`', meaning: 'which of them' },
          expiresAt: { type: INSTANT, meaning: 'when it ends' },
          daysLeft: { type: 'integer', meaning: 'whole days until then; 0: it has ended, or ends today' },
        },
      },
      stateProblem: {
        type: 'text',
        meaning: 'why the state for a restart cannot be saved, with the remedy',
        null: 'it can',
      },
      sockets: {
        type: 'list of objects',
        meaning: 'the sockets at which it listens',
        absent: `${BEFORE_2_1}, and ${TO_OTHERS}`,
        fields: {
          name: { type: '`ipc`, `http`, `metrics`, `credential`', meaning: 'its `FileDescriptorName=`' },
          path: { type: 'path', meaning: 'its path; empty over TCP' },
        },
      },
      pathProblems: {
        type: 'list of texts',
        meaning: 'paths that lock clients out, or that the daemon cannot use, each with its remedy',
        absent: 'there are none',
      },
    },
  },
  share: {
    type: 'object',
    meaning: 'the shared store',
    null: 'this host does not share its token',
    fields: {
      state: {
        type: '`connected`, `alone`, `denied`',
        meaning: '`alone`: the store cannot be used. `denied`: it refuses access',
      },
      server: { type: 'text', meaning: 'the server' },
      since: { type: INSTANT, meaning: 'since when it is in this state' },
      hosts: { type: 'integer', meaning: 'hosts that listen', null: 'it is not known' },
      askedBy: { type: 'text', meaning: 'the host that asked last', null: 'it is not known' },
      lastError: { type: 'text', meaning: 'the last error of the store', null: 'there was none' },
    },
  },
  readers: {
    type: 'list of objects',
    meaning: 'who took the token last, at most 20',
    absent: TO_OTHERS,
    fields: {
      uid: { type: 'integer', meaning: 'the user' },
      client: { type: 'text', meaning: 'the name that it gives itself, or the unit', null: 'it gives none' },
      transport: { type: '`ipc`, `http`, `credential`', meaning: 'at which socket' },
      pid: { type: 'integer', meaning: 'the process that took it last' },
      lastAt: { type: INSTANT, meaning: 'when it was last taken' },
      count: { type: 'integer', meaning: 'how often since the start' },
    },
  },
}

const fault: FieldsOf<Fault> = {
  code: { type: 'code', meaning: 'what is wrong: below' },
  message: { type: 'text', meaning: 'one sentence for people, with the remedy' },
  reason: {
    type: REASON,
    meaning: 'why the last attempt failed',
    absent: 'no attempt has failed, or the fault is another',
  },
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
