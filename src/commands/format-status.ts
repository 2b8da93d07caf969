// The status as a person reads it: what is wrong first, times as they are spoken, and the next step.
import { escapeUnsafeIn } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import type { Phase, StatusResult, TokenDescription } from '../protocol.ts'
import { noFacts, type HostFacts } from './host-facts.ts'
import { nextSteps } from './next-steps.ts'

type Colour = 'red' | 'yellow' | 'green' | 'dim' | 'bold'
interface Ink {
  (colour: Colour, text: string): string
}
const CODES: Readonly<Record<Colour, number>> = { red: 31, yellow: 33, green: 32, dim: 2, bold: 1 }
const BAR_WIDTH = 20
const LABEL_WIDTH = 10

const phases: Readonly<Record<Phase, { colour: Colour; meaning: string }>> = {
  ready: { colour: 'green', meaning: 'the token is good and is refreshed in time' },
  degraded: { colour: 'yellow', meaning: 'the token is good, but refreshing it fails' },
  starting: { colour: 'yellow', meaning: 'there is no token yet' },
  expired: { colour: 'red', meaning: 'the token has expired and there is no other' },
  refused: { colour: 'red', meaning: 'the service refuses the account' },
}

/** Lines of text. `nowMs` is the wall clock's time. */
export function formatStatus(
  given: StatusResult,
  options: { nowMs: number; hasColour: boolean; facts?: HostFacts },
): string {
  const status = escapeUnsafeIn(given)
  const { nowMs, hasColour, facts = noFacts } = options
  const ink: Ink = (colour, text) => (hasColour ? `\u001b[${CODES[colour]}m${text}\u001b[0m` : text)
  const { colour, meaning } = phases[status.state]
  const rows: [string, string[]][] = [
    ['life', status.token === null ? [] : [lifeLine(status.token, { nowMs, ink })]],
    ['token', status.token === null ? ['none'] : [tokenLine(status.token, nowMs)]],
    ['failure', failureLines(status, { nowMs, ink })],
    ['next', [nextLine(status, nowMs)]],
    ['files', fileLines(status, { nowMs, ink })],
    ['service', [serviceLine(status, nowMs)]],
    ['share', shareLines(status, { nowMs, ink })],
    ['clients', [clientsLine(status)]],
    ['readers', readerLines(status, nowMs)],
    ['alerts', alertLines(status, facts, { nowMs, ink })],
    ['settings', configurationLines(status, ink)],
    ['daemon', [daemonLine(status, nowMs)]],
  ]
  const lines = rows.flatMap(([label, texts]) =>
    texts.map((text, index) => `  ${ink('dim', (index === 0 ? label : '').padEnd(LABEL_WIDTH))}${text}`),
  )
  const head = `${ink(colour, '●')} ${ink('bold', status.state)}: ${meaning}`
  // The fault and the command against it come first: they are read by a person who was just woken up.
  const steps = nextSteps(status, facts).map((step) => `${ink(colour, '→')} ${step}`)
  return `${[head, ...steps, '', ...lines].join('\n')}\n`
}

function lifeLine(token: TokenDescription, { nowMs, ink }: { nowMs: number; ink: Ink }): string {
  const leftMs = Date.parse(token.expiresAt) - nowMs
  const lifeMs = Math.max(1, Date.parse(token.expiresAt) - Date.parse(token.obtainedAt))
  const filled = Math.round(Math.min(1, Math.max(0, leftMs / lifeMs)) * BAR_WIDTH)
  const colour = leftMs > lifeMs / 4 ? 'green' : 'yellow'
  const bar = ink(colour, '█'.repeat(filled)) + ink('dim', '░'.repeat(BAR_WIDTH - filled))
  const isAssumed = token.expirySource === 'assumed'
  if (leftMs <= 0)
    return `${bar} past the life of ${formatDuration(lifeMs)} ${isAssumed ? 'assumed for it' : 'it had'}`
  return `${bar} ${formatDuration(leftMs)} left of ${formatDuration(lifeMs)}${isAssumed ? ' (assumed)' : ''}`
}

function tokenLine(token: TokenDescription, nowMs: number): string {
  return `${token.fingerprint}, number ${token.generation}, obtained ${ago(token.obtainedAt, nowMs)}${token.stale ? ', stale' : ''}`
}

function failureLines(
  { failure, service }: StatusResult,
  { nowMs, ink }: { nowMs: number; ink: Ink },
): string[] {
  if (failure === null) return []
  const { reason, detail, status, since, attempts } = failure
  const answered = status === undefined ? '' : ` (HTTP ${status})`
  const forMs = nowMs - Date.parse(since)
  const begun = `for ${formatDuration(forMs)}, since ${absolute(since)}`
  const last =
    attempts === 1 || service.lastRequestAt === null ? '' : `, the last ${ago(service.lastRequestAt, nowMs)}`
  return [
    `${ink('red', reason)}${answered} ${begun}: ${attempts === 1 ? 'one attempt' : `${attempts} attempts`}${last}`,
    detail,
  ]
}

function nextLine({ state, token, nextAttemptAt }: StatusResult, nowMs: number): string {
  if (nextAttemptAt === null)
    return state === 'refused' ? 'none until an operator acts' : 'nothing is planned'
  const what = token === null || state === 'degraded' ? 'attempt' : 'refresh'
  const leftMs = Date.parse(nextAttemptAt) - nowMs
  return leftMs <= 0 ? `${what} now` : `${what} in ${formatDuration(leftMs)} (${absolute(nextAttemptAt)})`
}

function fileLines({ files }: StatusResult, { nowMs, ink }: { nowMs: number; ink: Ink }): string[] {
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

function serviceLine({ service }: StatusResult, nowMs: number): string {
  const { baseUrl, requests, lastRequestAt } = service
  const asked = lastRequestAt === null ? 'not asked yet' : `asked ${ago(lastRequestAt, nowMs)}`
  return `${baseUrl}, ${asked}, ${times(requests)} since the daemon's start`
}

function shareLines({ share, token }: StatusResult, { nowMs, ink }: { nowMs: number; ink: Ink }): string[] {
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
      ({ uid, process, transport, lastAt, count }) =>
        `${process ?? 'an unknown process'} (uid ${uid}, ${transport}) ${ago(lastAt, nowMs)}, ${times(count)}`,
    )
}

function alertLines(
  { alert }: StatusResult,
  { alertCommand, unit }: HostFacts,
  { nowMs, ink }: { nowMs: number; ink: Ink },
): string[] {
  const raised = alert === null ? [] : [`${ink('red', alert.reason)} since ${absolute(alert.since)}`]
  if (alertCommand === null) return raised
  const { isOk, result, at } = alertCommand
  const name = (unit ?? 'kyc-tokend').replace('kyc-tokend', 'kyc-tokend-alert')
  const how = isOk ? 'succeeded' : `${ink('red', `failed (${result})`)}: journalctl -u ${name};`
  return [...raised, `the alert command ${how} ${ago(at, nowMs)}`]
}

function configurationLines({ daemon }: StatusResult, ink: Ink): string[] {
  const { state, problem } = daemon.configuration
  if (state === 'current') return []
  if (state === 'changed')
    return [`${ink('yellow', 'changed on disk')}: the daemon runs with the former ones`]
  return [`${ink('red', 'faulty on disk')}: ${problem ?? 'see `kyc-tokend check`'}`]
}

function daemonLine({ daemon }: StatusResult, nowMs: number): string {
  const { version, pid, startedAt, host, configFile } = daemon
  return `${version} on ${host}, pid ${pid}, started ${ago(startedAt, nowMs)}, ${configFile}`
}

/** Relative and absolute, in UTC. */
function ago(instant: string, nowMs: number): string {
  return `${formatDuration(nowMs - Date.parse(instant))} ago (${absolute(instant)})`
}

function absolute(instant: string): string {
  return `${instant.slice(0, 19)}Z`
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`
}
