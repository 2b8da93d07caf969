// The status as a person reads it: what is wrong first, times as they are spoken, and the next step, fit for the terminal.
import type { Writable } from 'node:stream'
import { stripVTControlCharacters } from 'node:util'

import { accountWords } from '../lib/account.ts'
import { asSentence, escapeUnsafeIn } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import type { Phase, StatusResult, TokenDescription } from '../protocol.ts'
import { remedies, type PostponedReason, type Reason } from '../token/outcome.ts'
import { wrap } from './command-line.ts'
import { noFacts, type HostFacts } from './systemd.ts'
import { isTerminal } from './prompt.ts'

type Colour = 'red' | 'yellow' | 'green' | 'dim' | 'bold'
interface View {
  /** The wall clock's time. */
  readonly nowMs: number
  readonly ink: (colour: Colour, text: string) => string
}
const CODES: Readonly<Record<Colour, number>> = { red: 31, yellow: 33, green: 32, dim: 2, bold: 1 }
const BAR_WIDTH = 20
const LABEL_WIDTH = 10
const INDENT = 2 + LABEL_WIDTH
/** The status by which most services refuse a token. */
const UNAUTHORIZED = 401

const phases: Readonly<Record<Phase, { colour: Colour; meaning: string }>> = {
  ready: { colour: 'green', meaning: 'the token is good and is refreshed in time' },
  degraded: { colour: 'yellow', meaning: 'the token is good, but refreshing it fails' },
  starting: { colour: 'yellow', meaning: 'there is no token yet' },
  expired: { colour: 'red', meaning: 'the token has expired and there is no other' },
  refused: { colour: 'red', meaning: 'the service refuses the account' },
}

interface Screen {
  readonly hasColour: boolean
  /** Infinite where lines may be as long as they are. */
  readonly columns: number
}

export function screenOf(stdout: Writable & { columns?: number }, env: NodeJS.ProcessEnv): Screen {
  if (!isTerminal(stdout)) return { hasColour: false, columns: Infinity }
  const hasColour = (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb'
  return { hasColour, columns: stdout.columns || 80 }
}

/** Lines of text, wrapped to fit `columns`. With `isCut` those that only describe are cut instead. */
export function formatStatus(
  given: StatusResult,
  options: { nowMs: number; hasColour: boolean; columns?: number; isCut?: boolean; facts?: HostFacts },
): string {
  const status = escapeUnsafeIn(given)
  const { nowMs, hasColour, columns = Infinity, isCut = false, facts = noFacts } = options
  const view: View = {
    nowMs,
    ink: (colour, text) => (hasColour ? `\u001b[${CODES[colour]}m${text}\u001b[0m` : text),
  }
  const { ink } = view
  const { colour, meaning } = phases[status.state]
  const rows: [string, string[]][] = [
    ['life', status.token === null ? [] : [lifeLine(status.token, view)]],
    ['token', status.token === null ? ['none'] : [tokenLine(status.token, nowMs)]],
    ['failure', failureLines(status, view)],
    ['next', [nextLine(status, nowMs)]],
    ['files', fileLines(status, view)],
    ['alerts', alertLines(status, facts, view)],
    ['settings', configurationLines(status, ink)],
    ['service', serviceLines(status, nowMs)],
    ['share', shareLines(status, view)],
    ['clients', [clientsLine(status)]],
    ['daemon', [daemonLine(status, nowMs), status.daemon.configFile]],
    ['readers', readerLines(status, nowMs)],
  ]
  const lines = rows.flatMap(([label, texts]) =>
    texts
      .flatMap((text) => (isCut ? [cutTo(text, columns - INDENT)] : wrap(text, columns - INDENT)))
      .map((text, index) => `  ${ink('dim', (index === 0 ? label : '').padEnd(LABEL_WIDTH))}${text}`),
  )
  const head = `${ink(colour, '●')} ${ink('bold', status.state)}: ${meaning}`
  // The fault and the command against it come first: they are read by a person who was just woken up.
  const steps = nextSteps(status, facts).flatMap((step) =>
    wrap(step, columns - 2).map((line, index) => (index === 0 ? `${ink(colour, '→')} ${line}` : `  ${line}`)),
  )
  return `${[head, ...steps, '', ...lines].join('\n')}\n`
}

/** The line with at most this many columns; colours do not count. */
export function cutTo(line: string, columns: number): string {
  if (stripVTControlCharacters(line).length <= columns) return line
  const parts = line.match(/\u001b\[\d+m|[^]/gu) ?? []
  let left = columns - 1
  return `${parts.filter((part) => part.length > 2 || (left -= part.length) >= 0).join('')}…`
}

/** Nothing of a life that the token itself says. */
const lifeSources: Readonly<Record<string, string>> = {
  response: ' (as the answer says)',
  assumed: ' (assumed)',
}

function lifeLine(token: TokenDescription, { nowMs, ink }: View): string {
  const leftMs = Date.parse(token.expiresAt) - nowMs
  const lifeMs = Math.max(1, Date.parse(token.expiresAt) - Date.parse(token.obtainedAt))
  const filled = Math.round(Math.min(1, Math.max(0, leftMs / lifeMs)) * BAR_WIDTH)
  const colour = leftMs > lifeMs / 4 ? 'green' : 'yellow'
  const bar = ink(colour, '█'.repeat(filled)) + ink('dim', '░'.repeat(BAR_WIDTH - filled))
  const source = lifeSources[token.expirySource] ?? ''
  if (leftMs <= 0) return `${bar} past its life of ${formatDuration(lifeMs)}${source}`
  return `${bar} ${formatDuration(leftMs)} left of ${formatDuration(lifeMs)}${source}`
}

function tokenLine(token: TokenDescription, nowMs: number): string {
  return `${token.fingerprint}, number ${token.generation}, obtained ${ago(token.obtainedAt, nowMs)}${token.stale ? ', stale' : ''}`
}

function failureLines({ failure, service }: StatusResult, { nowMs, ink }: View): string[] {
  if (failure === null) return []
  const { reason, detail, status, since, attempts } = failure
  const answered = status === undefined ? '' : ` (HTTP ${status})`
  const forMs = nowMs - Date.parse(since)
  const begun = `for ${formatDuration(forMs)}, since ${absolute(since, nowMs)}`
  const last =
    attempts === 1 || service.lastRequestAt === null ? '' : `, the last ${ago(service.lastRequestAt, nowMs)}`
  return [`${ink('red', reason)}${answered} ${begun}: ${counted(attempts, 'attempt')}${last}`, detail]
}

function nextLine({ state, token, nextAttemptAt }: StatusResult, nowMs: number): string {
  if (nextAttemptAt === null)
    return state === 'refused' ? 'none until an operator acts' : 'nothing is planned'
  const what = token === null || state === 'degraded' ? 'attempt' : 'refresh'
  const leftMs = Date.parse(nextAttemptAt) - nowMs
  return leftMs <= 0
    ? `${what} now`
    : `${what} in ${formatDuration(leftMs)} (${absolute(nextAttemptAt, nowMs)})`
}

function fileLines({ files }: StatusResult, { nowMs, ink }: View): string[] {
  if (files.length === 0) return ['none are configured']
  const faulty = files.filter(({ ok }) => !ok)
  const good = files.filter(({ ok }) => ok)
  return [
    ...faulty.map(({ path, error }) => `${ink('red', '✗')} ${path}: ${error ?? 'not written'}`),
    ...good.map(({ path, format, present, writtenAt, repairs }) => {
      const written = present && writtenAt !== null ? `written ${ago(writtenAt, nowMs)}` : 'not there now'
      return `${ink('green', '✓')} ${path} (${format}), ${written}${repairs > 0 ? `, restored ${times(repairs)}` : ''}`
    }),
  ]
}

function serviceLines({ service, token }: StatusResult, nowMs: number): string[] {
  const { baseUrl, requests, lastRequestAt } = service
  const asked =
    lastRequestAt === null
      ? 'not asked yet'
      : `${counted(requests, 'request')}, last ${ago(lastRequestAt, nowMs)}`
  const refusedBy = token?.refusedBy ?? [UNAUTHORIZED]
  const isUsual = refusedBy.length === 1 && refusedBy[0] === UNAUTHORIZED
  return [
    `${baseUrl}, ${asked}`,
    ...(isUsual ? [] : [`its API refuses a token with HTTP ${refusedBy.join(' or ')}`]),
  ]
}

function shareLines({ share, token }: StatusResult, { nowMs, ink }: View): string[] {
  if (!share) return []
  const { state, server, since, hosts, askedBy, lastError } = share
  const fleet = hosts === null ? '' : `, ${hosts} ${hosts === 1 ? 'host' : 'hosts'}`
  const asked = token === null ? '' : ` ${ago(token.obtainedAt, nowMs)}`
  const asker = askedBy === null ? '' : `, asked by ${askedBy}${asked}`
  if (state === 'connected') return [`connected to ${server}${fleet}${asker}`]
  const lost = state === 'denied' ? `denied by ${server}` : `alone, without ${server}`
  return [
    `${ink('yellow', lost)} for ${formatDuration(nowMs - Date.parse(since))}${fleet}`,
    ...(lastError === null ? [] : [lastError]),
  ]
}

function clientsLine({ clients }: StatusResult): string {
  return Object.entries(clients)
    .flatMap(([name, count]: [string, StatusResult['clients']['http']]) =>
      count === null ? [] : [`${count.connections} on ${name} (${count.subscribers} subscribed)`],
    )
    .join(', ')
}

/** The last five. */
function readerLines({ readers = [] }: StatusResult, nowMs: number): string[] {
  return readers
    .slice(0, 5)
    .map(
      ({ uid, client, pid, transport, lastAt, count }) =>
        `${client ?? 'a client without a name'} (uid ${uid}, pid ${pid}, ${transport}) ${ago(lastAt, nowMs)}, ${times(count)}`,
    )
}

function alertLines(
  { alert }: StatusResult,
  { alertCommand, alertProblem, unit }: HostFacts,
  { nowMs, ink }: View,
): string[] {
  const raised = alert === null ? [] : [`${ink('red', alert.reason)} since ${absolute(alert.since, nowMs)}`]
  if (alertProblem !== null) return [...raised, ink('yellow', alertProblem)]
  if (alertCommand === null) return raised
  const { isOk, result, at } = alertCommand
  const name = (unit ?? 'kyc-tokend').replace('kyc-tokend', 'kyc-tokend-alert')
  const how = isOk ? 'succeeded' : `${ink('red', `failed (${result})`)}: journalctl -u ${name};`
  return [...raised, `the alert command ${how} ${ago(at, nowMs)}`]
}

function configurationLines({ daemon }: StatusResult, ink: View['ink']): string[] {
  const { state, problem } = daemon.configuration
  // The step says it.
  if (state === 'current' || (problem !== null && isAboutPair(problem))) return []
  if (state === 'faulty') return [`${ink('red', 'faulty on disk')}: ${problem ?? 'see `kyc-tokend check`'}`]
  return [`${ink('yellow', 'changed on disk')}: ${problem ?? 'the daemon runs with the former ones'}`]
}

function daemonLine({ daemon }: StatusResult, nowMs: number): string {
  const { version, pid, startedAt, host } = daemon
  return `${version} on ${host}, pid ${pid}, started ${ago(startedAt, nowMs)}`
}

/** Relative and absolute, in UTC. */
function ago(instant: string, nowMs: number): string {
  return `${formatDuration(nowMs - Date.parse(instant))} ago (${absolute(instant, nowMs)})`
}

/** Of today, the time alone. */
function absolute(instant: string, nowMs: number): string {
  const isToday = instant.slice(0, 10) === new Date(nowMs).toISOString().slice(0, 10)
  return `${instant.slice(isToday ? 11 : 0, 19)}Z`
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`
}

export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}

/** Reasons that mistakes in the key or the secret have, too. */
const OF_CREDENTIALS = new Set(['account-not-found', 'rejected'])

function configurationSteps({ state, problem }: StatusResult['daemon']['configuration']): string[] {
  if (problem !== null && isAboutPair(problem)) return [problem]
  if (state === 'faulty')
    return ['Correct the configuration (`kyc-tokend check` names each fault), then reload (SIGHUP)']
  // A reload has no effect on some settings.
  const how = problem === null ? 'reload (SIGHUP)' : '`systemctl restart kyc-tokend`'
  return state === 'changed' ? [`Have the changed configuration taken over: ${how}`] : []
}

/** Reports whether the problem is another pair in the secret files, which the service refused or which is being tried. */
export function isAboutPair(problem: string): boolean {
  return / holds (?:a|another) pair/.test(problem)
}

/** The next steps, the most important first, as sentences with the commands of this host; none if all is well. */
function nextSteps(status: StatusResult, { unit }: Pick<HostFacts, 'unit'>): string[] {
  const { alert, failure, files, daemon } = status
  const steps: string[] = []
  // An alert may be older than the present failure, whose remedy counts; a refusal stays one.
  if (alert !== null && (failure === null || status.state === 'refused')) steps.push(alert.remedy)
  else if (failure !== null) steps.push(remedies[failure.reason as Reason | PostponedReason])
  const reason = failure?.reason ?? alert?.reason
  if (reason !== undefined) steps.push(...keyMistakes(reason))
  if (alert?.contact) steps.push(`Call ${alert.contact}`)
  steps.push(...configurationSteps(daemon.configuration))
  const faulty = files.filter(({ ok }) => !ok).length
  if (faulty > 0)
    steps.push(`Correct ${faulty === 1 ? 'the token file' : `the ${faulty} token files`} marked ✗`)
  if (daemon.stateProblem) steps.push(`The state for a restart cannot be saved: ${daemon.stateProblem}`)
  return steps.map((step) => asSentence(asTyped(step, { unit, pid: daemon.pid })))
}

/** Mistakes that people make with keys, where the service answers as to one of them. */
export function keyMistakes(reason: string): string[] {
  if (!OF_CREDENTIALS.has(reason)) return []
  return [
    '`kyc-tokend check` finds mistakes with keys: quotes or blanks around one, NAME= before it, the endpoint in `baseUrl`',
  ]
}

/** The sentence with the commands for this host: systemd's, or a signal to the process. */
function asTyped(step: string, { unit, pid }: { unit: string | null; pid: number }): string {
  const words = accountWords(unit?.split('@')[1])
  const sudo = unit === null ? '' : 'sudo '
  const reload = unit === null ? `kill -HUP ${pid}` : `sudo systemctl reload ${unit}`
  const restart = unit === null ? 'stop it, and `kyc-tokend run` again' : `\`sudo systemctl restart ${unit}\``
  return step
    .replaceAll('`systemctl restart kyc-tokend`', restart)
    .replaceAll('reload (SIGHUP)', `\`${reload}\``)
    .replaceAll(/`kyc-tokend (check|refresh|status)([^`]*)`/g, `\`${sudo}kyc-tokend $1${words}$2\``)
}
