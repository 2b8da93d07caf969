// The rules of the contract that hold for every run, over what a real daemon logged: each process by itself, by its
// records in their order. What the log does not say (files that were written, another configuration at a start) allows
// what depends on it.

/** The rules, by the names that they have here. */
export const RULES = {
  'one-at-a-time': 'two requests at once',
  refused: 'a request after a refusal that nobody has ended',
  'client-pace': 'two requests that clients caused too soon after each other',
  'good-token': 'a good token is not served',
  expired: 'a token past its end is handed out',
  number: 'two tokens have one number',
  'alert-missing': 'what an operator must know of raises no alert',
  'alert-once': 'an alert is raised twice',
  'alert-rank': 'an alert that is outranked is raised',
  'alert-end': 'an alert ends that was not raised',
  'trial-once': 'one trial has two records',
} as const

/** Reports the rule unless the claim holds; `detail`: by what it is broken. */
type Check = (isHeld: boolean, rule: keyof typeof RULES, detail?: string) => void

/** A record: its fields as they were logged, in JSON or as texts. */
export interface Logged {
  /** On the wall clock, in ms. */
  readonly atMs: number
  readonly event: string
  readonly fields: Readonly<Record<string, unknown>>
}

const CLIENT_PACE_MS = 30_000
/** Instants are logged in seconds or milliseconds, and a record is written a moment after what it is about. */
const GRAIN_MS = 1_000
/** One trial is told in one step. The next one, by an act, takes a request and a save. */
const ONE_STEP_MS = 20
/** The causes by which somebody ends a refusal. */
const ACTS = new Set(['operator', 'reload'])

/** The sentences of the rules that the records of one process do not keep to. */
export function brokenByRecords(records: readonly Logged[]): string[] {
  const broken = new Set<string>()
  const note = createNote((isHeld, rule, detail) => {
    if (!isHeld) broken.add(detail === undefined ? RULES[rule] : `${RULES[rule]} (${detail})`)
  })
  // Without debug records what came of the attempts has to do.
  const hasAttempts = records.some(({ event }) => event === 'attempt')
  for (const record of records) {
    if (!hasAttempts) for (const attempt of attemptsOf(record)) note(attempt)
    note(record)
  }
  return [...broken]
}

/** The attempt that this record is about, if it is about one. */
function attemptsOf({ atMs, event, fields }: Logged): Logged[] {
  const { cause, reason, reminder } = fields
  const attempt = (outcome: string, because: unknown): Logged[] => [
    { atMs, event: 'attempt', fields: { outcome, cause: because, tookMs: because === 'fleet' ? null : 0 } },
  ]
  if (event === 'token-obtained') return attempt('ok', cause)
  if (event === 'fetch-failed') return attempt('transient', cause)
  const isFirst = event === 'alert' && reminder === undefined
  return isFirst && String(reason).startsWith('account-') ? attempt('permanent', 'operator') : []
}

/** Returns the function that hears of each record. */
function createNote(check: Check): (record: Logged) => void {
  const requests = createLoggedRequests(check)
  const alerts = createLoggedAlerts(check)
  let generation = 0
  let untried: { readonly atMs: number; readonly error: unknown } | null = null

  return (record) => {
    const { atMs, event, fields } = record
    requests(record)
    alerts(record)
    if (event === 'token-obtained') {
      const number = Number(fields['generation'])
      check(number > generation, 'number', `${number} after ${generation}`)
      check(Date.parse(String(fields['expiresAt'])) > atMs - GRAIN_MS, 'expired', `token ${number}`)
    }
    if (fields['generation'] !== undefined) generation = Math.max(generation, Number(fields['generation']))
    if (event === 'token-expired') {
      const endMs = Date.parse(String(fields['expiredAt']))
      check(endMs <= atMs + GRAIN_MS, 'good-token', `logged as expired before ${String(fields['expiredAt'])}`)
    }
    if (event !== 'credentials-not-taken-over') return
    const { error } = fields
    check(untried?.error !== error || atMs - untried!.atMs > ONE_STEP_MS, 'trial-once')
    untried = { atMs, error }
  }
}

function createLoggedRequests(check: Check): (record: Logged) => void {
  let endedMs = -Infinity
  let clientMs = -Infinity
  let isRefused = false

  return ({ atMs, event, fields }) => {
    if (event === 'reloaded' || event === 'credentials-taken-over') isRefused = false
    if (event !== 'attempt') return
    const cause = String(fields['cause'])
    if (fields['tookMs'] !== null) {
      const askedMs = atMs - Number(fields['tookMs'])
      check(askedMs >= endedMs - GRAIN_MS, 'one-at-a-time', cause)
      check(!isRefused || ACTS.has(cause), 'refused', cause)
      const agoMs = askedMs - clientMs
      check(cause !== 'client' || agoMs >= CLIENT_PACE_MS - GRAIN_MS, 'client-pace', `${agoMs} ms`)
      if (cause === 'client') clientMs = askedMs
      endedMs = atMs
    }
    if (fields['outcome'] !== 'postponed') isRefused = fields['outcome'] === 'permanent'
  }
}

function createLoggedAlerts(check: Check): (record: Logged) => void {
  /** Undefined: a former process may have raised one. */
  let raised: string | null | undefined
  let isRefused = false
  /** A refusal whose alert has not come yet. */
  let owedMs = Infinity

  function alert({ reason, reminder }: Logged['fields']): void {
    const name = String(reason)
    if (reminder === undefined) check(raised !== name, 'alert-once', name)
    check(name !== 'no-token' || !isRefused, 'alert-rank')
    raised = name
    if (name.startsWith('account-')) owedMs = Infinity
  }

  return ({ atMs, event, fields }) => {
    check(atMs < owedMs + GRAIN_MS, 'alert-missing', 'refused')
    if (atMs >= owedMs + GRAIN_MS) owedMs = Infinity
    if (event === 'alert') alert(fields)
    else if (event === 'alert-resolved') {
      check(raised !== null, 'alert-end', String(fields['reason']))
      raised = null
    } else if (event === 'attempt' && fields['outcome'] !== 'postponed') {
      isRefused = fields['outcome'] === 'permanent'
      if (fields['outcome'] === 'ok') raised ??= null
      if (isRefused && raised !== undefined && !String(raised).startsWith('account-')) owedMs = atMs
      else if (!isRefused) owedMs = Infinity
    } else if (event === 'reloaded' || event === 'credentials-taken-over')
      [isRefused, owedMs] = [false, Infinity]
  }
}

// ---- where records come from

/** The records among these lines of stderr: those in JSON, which have their time. */
export function recordsOfLines(text: string): Logged[] {
  return text
    .split('\n')
    .map((line) => line.replace(/^<\d>/, ''))
    .filter((line) => line.startsWith('{"time":') && line.endsWith('}'))
    .map((line) => JSON.parse(line) as Record<string, unknown>)
    .map(({ time, event, ...fields }) => ({ atMs: Date.parse(String(time)), event: String(event), fields }))
}

/** The records in the output of `journalctl -o json`, by unit and process: a message is the line of a record. */
export function recordsOfJournal(text: string): Map<string, Logged[]> {
  const processes = new Map<string, Logged[]>()
  for (const line of text.split('\n').filter((one) => one.startsWith('{'))) {
    const entry = JSON.parse(line) as Record<string, string | undefined>
    const fields = fieldsOf(entry['MESSAGE'])
    if (typeof fields['event'] !== 'string') continue
    const name = `${entry['_SYSTEMD_UNIT']} ${entry['_PID']}`
    const record = {
      atMs: Number(entry['__REALTIME_TIMESTAMP']) / 1_000,
      event: fields['event'],
      fields,
    }
    processes.set(name, [...(processes.get(name) ?? []), record])
  }
  return processes
}

/** The fields of a line in JSON, or in text: `name=value` or `name="value"` after the sentence. */
function fieldsOf(message: unknown): Record<string, unknown> {
  if (typeof message !== 'string') return {}
  if (message.startsWith('{"time":')) return JSON.parse(message) as Record<string, unknown>
  const pairs = message.matchAll(/ (\w+)=(?:("(?:[^"\\]|\\.)*")|(\S*))/g)
  return Object.fromEntries(
    Array.from(pairs, ([, name = '', quoted, plain]) => [
      name,
      quoted === undefined ? plain : JSON.parse(quoted),
    ]),
  )
}
