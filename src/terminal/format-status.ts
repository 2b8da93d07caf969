// The status for people: first what is wrong and the next step, then a row for each part, fit for the
// terminal.
import type { Writable } from 'node:stream'
import { styleText } from 'node:util'
import { allowsColour, asSentence, escapeUnsafeIn, wrap } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { createRemedies, isNamedFault, type NamedFault, type Place } from '../host/remedy.ts'
import type { Phase, StatusResult } from '../protocol.ts'
import { isTerminal } from './prompt.ts'

type Colour = 'red' | 'yellow' | 'green' | 'dim' | 'bold'
interface View {
  /** The wall clock's time. */
  readonly nowMs: number
  readonly ink: (colour: Colour, text: string) => string
  /** An instant, relative and absolute, in UTC. */
  readonly ago: (instant: string) => string
  /** Of an instant of today, the time alone. */
  readonly absolute: (instant: string) => string
}
const BAR_WIDTH = 20
const LABEL_WIDTH = 10
const INDENT = 2 + LABEL_WIDTH
/** The status by which most services refuse a token. */
const USUAL_REFUSAL = '401'
const MAX_READERS = 5

const phases: Readonly<Record<Phase, { colour: Colour; meaning: string }>> = {
  ready: { colour: 'green', meaning: 'the token is good and is refreshed in time' },
  degraded: { colour: 'yellow', meaning: 'the token is good, but refreshing it fails' },
  starting: { colour: 'yellow', meaning: 'there is no token yet' },
  expired: { colour: 'red', meaning: 'the token has expired and there is no other' },
  refused: { colour: 'red', meaning: 'the service refuses the account' },
}

/** The state of a newer daemon is shown as it is. */
const UNKNOWN_PHASE = { colour: 'yellow', meaning: 'this command does not know this state' } as const

interface Screen {
  readonly hasColour: boolean
  /** Infinite if lines may be as long as they are. */
  readonly columns: number
}

export function screenOf(stdout: Writable & { columns?: number }, env: NodeJS.ProcessEnv): Screen {
  if (!isTerminal(stdout)) return { hasColour: false, columns: Infinity }
  return { hasColour: allowsColour(env), columns: stdout.columns || 80 }
}

/** Lines of text, wrapped to fit `columns`. */
export function formatStatus(
  result: StatusResult,
  options: Screen & { nowMs: number; place: Place },
): string {
  const status = escapeUnsafeIn(result)
  const { nowMs, hasColour, columns, place } = options
  const ink: View['ink'] = (colour, text) =>
    hasColour ? styleText(colour, text, { validateStream: false }) : text
  const today = new Date(nowMs).toISOString().slice(0, 10)
  const absolute = (instant: string): string => `${instant.slice(instant.startsWith(today) ? 11 : 0, 19)}Z`
  const ago = (instant: string): string =>
    `${formatDuration(nowMs - Date.parse(instant))} ago (${absolute(instant)})`
  const view = { nowMs, ink, ago, absolute }
  const lines = Object.entries(rows).flatMap(([label, textsOf]) =>
    textsOf(status, view)
      .flatMap((text) => wrap(text, columns - INDENT))
      .map((text, index) => `  ${ink('dim', (index === 0 ? label : '').padEnd(LABEL_WIDTH))}${text}`),
  )
  const { colour, meaning } = Object.hasOwn(phases, status.state) ? phases[status.state] : UNKNOWN_PHASE
  const head = `${ink(colour, '●')} ${ink('bold', status.state)}: ${meaning}`
  // The fault and the command against it come first: they are read by a person who was just woken up.
  const steps = nextSteps(status, place).flatMap((step) =>
    wrap(step, columns - 2).map((line, index) => `${index === 0 ? ink(colour, '→') : ' '} ${line}`),
  )
  return `${[head, ...steps, '', ...lines].join('\n')}\n`
}

/** The words about a life by its source; none for a life that the token itself says. */
const lifeSources: Readonly<Record<string, string>> = {
  response: ' (as the answer says)',
  assumed: ' (assumed)',
}

/** The lines of each row by its label; none if there is nothing to say. */
const rows: Readonly<Record<string, (status: StatusResult, view: View) => string[]>> = {
  life({ token }, { nowMs, ink }) {
    if (token === null) return []
    const leftMs = Date.parse(token.expiresAt) - nowMs
    const lifeMs = Date.parse(token.expiresAt) - Date.parse(token.obtainedAt)
    const filled = Math.round(Math.min(1, Math.max(0, leftMs / lifeMs)) * BAR_WIDTH)
    const colour = leftMs > lifeMs / 4 ? 'green' : 'yellow'
    const bar = ink(colour, '█'.repeat(filled)) + ink('dim', '░'.repeat(BAR_WIDTH - filled))
    const left = leftMs <= 0 ? 'past its life of' : `${formatDuration(leftMs)} left of`
    return [`${bar} ${left} ${formatDuration(lifeMs)}${lifeSources[token.expirySource] ?? ''}`]
  },
  token({ token }, { ago }) {
    if (token === null) return ['none']
    const { fingerprint, generation, obtainedAt, stale } = token
    return [`${fingerprint}, number ${generation}, obtained ${ago(obtainedAt)}${stale ? ', stale' : ''}`]
  },
  failure({ failure, service: { lastRequestAt } }, { nowMs, ink, ago, absolute }) {
    if (failure === null) return []
    const { reason, detail, status, since, attempts } = failure
    const answered = status === undefined ? '' : ` (HTTP ${status})`
    const begun = `for ${formatDuration(nowMs - Date.parse(since))}, since ${absolute(since)}`
    const last = attempts === 1 || lastRequestAt === null ? '' : `, the last ${ago(lastRequestAt)}`
    return [`${ink('red', reason)}${answered} ${begun}: ${counted(attempts, 'attempt')}${last}`, detail]
  },
  candidate({ candidate }, { nowMs, ink, absolute }) {
    if (!candidate) return []
    const { since, reason, detail, attempts, nextAttemptAt } = candidate
    const age = `in the files for ${formatDuration(nowMs - Date.parse(since))}`
    if (reason === null) return [`${age}: it is being tried`]
    const next =
      nextAttemptAt === null ? 'not tried again until a person acts' : `next ${absolute(nextAttemptAt)}`
    return [`${age}: ${ink('yellow', reason)}, ${counted(attempts, 'attempt')}, ${next}`, detail ?? '']
  },
  next({ state, token, nextAttemptAt }, { nowMs, absolute }) {
    if (nextAttemptAt === null)
      return [state === 'refused' ? 'none until an operator acts' : 'nothing is planned']
    const what = token === null || state === 'degraded' ? 'attempt' : 'refresh'
    const leftMs = Date.parse(nextAttemptAt) - nowMs
    const when = leftMs <= 0 ? 'now' : `in ${formatDuration(leftMs)} (${absolute(nextAttemptAt)})`
    return [`${what} ${when}`]
  },
  files({ files }, { ink, ago }) {
    if (files.length === 0) return ['none are configured']
    const faultyFirst = files.toSorted((one, other) => Number(one.ok) - Number(other.ok))
    return faultyFirst.map(({ ok, path, error, format, present, writtenAt, repairs }) => {
      if (!ok) return `${ink('red', '✗')} ${path}: ${error}`
      const written = present && writtenAt !== null ? `written ${ago(writtenAt)}` : 'not there now'
      const restored = repairs > 0 ? `, restored ${times(repairs)}` : ''
      return `${ink('green', '✓')} ${path} (${format}), ${written}${restored}`
    })
  },
  alerts({ alert }, { ink, absolute }) {
    return alert === null ? [] : [`${ink('red', alert.reason)} since ${absolute(alert.since)}`]
  },
  settings({ daemon }, { ink }) {
    const { state, problem, pair } = daemon.configuration
    // One of the next steps says it.
    if (state === 'current' || pair !== undefined) return []
    return state === 'faulty'
      ? [`${ink('red', 'faulty on disk')}: ${problem}`]
      : [`${ink('yellow', 'changed on disk')}: ${problem ?? 'the daemon runs with the former ones'}`]
  },
  service({ service: { baseUrl, requests, lastRequestAt }, token, daemon }, { ago, ink }) {
    const last = lastRequestAt === null ? '' : `${counted(requests, 'request')}, last ${ago(lastRequestAt)}`
    const refusedBy = (token?.refusedBy ?? [USUAL_REFUSAL]).join(' or ')
    const { credentials } = daemon
    return [
      `${baseUrl}, ${last || 'not asked yet'}`,
      ...(refusedBy === USUAL_REFUSAL ? [] : [`its API refuses a token with HTTP ${refusedBy}`]),
      ...(credentials
        ? [credentials.daysLeft <= 7 ? ink('yellow', endInWords(credentials)) : endInWords(credentials)]
        : []),
    ]
  },
  share({ share, token }, { nowMs, ink, ago }) {
    if (!share) return []
    const { state, server, since, askedBy, lastError } = share
    const asked = token === null ? '' : ` ${ago(token.obtainedAt)}`
    const asker = askedBy === null ? '' : `, asked by ${askedBy}${asked}`
    if (state === 'connected') return [`connected to ${server}${asker}`]
    const ways: Readonly<Record<string, string>> = {
      denied: `denied by ${server}`,
      alone: `alone, without ${server}`,
    }
    const lost = ways[state] ?? `${state}, ${server}`
    return [
      `${ink('yellow', lost)} for ${formatDuration(nowMs - Date.parse(since))}`,
      ...(lastError === null ? [] : [lastError]),
    ]
  },
  clients({ clients }) {
    const present = Object.entries(clients).flatMap(([name, count]) =>
      count === null ? [] : [`${count.connections} on ${name} (${count.subscribers} subscribed)`],
    )
    return [present.join(', ')]
  },
  daemon({ daemon: { version, pid, startedAt, host, configFile } }, { ago }) {
    return [`${version} on ${host}, pid ${pid}, started ${ago(startedAt)}`, configFile]
  },
  readers({ readers = [] }, { ago }) {
    return readers.slice(0, MAX_READERS).map(({ uid, name, clients, connections, lastAt, count }) => {
      const who = `${name} (uid ${uid}${clients.length === 0 ? '' : `: ${clients.join(', ')}`})`
      return `${who} ${ago(lastAt)}, ${times(count)}, ${counted(connections, 'connection')} now`
    })
  },
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`
}

export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}

/**
 * The next steps, the most important first, as sentences with the commands of this host; none if all is
 * well.
 */
function nextSteps(status: StatusResult, place: Place): string[] {
  const { alert, failure, files, daemon } = status
  const { remedyOf } = createRemedies(place)
  const { pair, problem } = daemon.configuration
  // It comes first: another step may name a restart, which uses the pair in the files.
  const steps = pair === undefined ? [] : [problem ?? '']
  // An alert may be older than the present failure, whose remedy counts; a refusal stays one.
  if (alert !== null && (failure === null || status.state === 'refused')) steps.push(alert.remedy)
  // Another version may have a reason that this one does not know.
  else if (failure !== null && isNamedFault(failure.reason)) steps.push(remedyOf(failure.reason))
  if (alert?.contact) steps.push(`Call ${alert.contact}`)
  const change = changeOf(status)
  if (change !== null) steps.push(remedyOf(change))
  const faulty = files.filter(({ ok }) => !ok).length
  if (faulty > 0)
    steps.push(`Correct ${faulty === 1 ? 'the token file' : `the ${faulty} token files`} marked ✗`)
  steps.push(...(daemon.pathProblems ?? []))
  if (daemon.stateProblem) steps.push(`The state for a restart cannot be saved: ${daemon.stateProblem}`)
  return steps.filter((step) => step !== '').map(asSentence)
}

/**
 * How the configuration on disk is not the running one; null: it is, or its pair is being asked with. Never a
 * restart while another pair was not tried: that would use it.
 */
function changeOf({ daemon: { configuration }, candidate }: StatusResult): NamedFault | null {
  const { state, problem, pair } = configuration
  if (state === 'current' || (pair !== undefined && candidate)) return null
  if (state === 'faulty') return 'faulty-on-disk'
  return problem !== null && pair === undefined ? 'restart-needed' : 'changed-on-disk'
}

export function endInWords(end: NonNullable<StatusResult['daemon']['credentials']>): string {
  const { what, expiresAt, daysLeft } = end
  const name = what === 'credentials' ? 'key and secret' : 'the client certificate'
  if (daysLeft === 0) return `${name}: ended at ${expiresAt}`
  return `${name}: good until ${expiresAt} (for ${counted(daysLeft, 'more day')})`
}
