// The status for people: the state and what to do come first, then a line for each part.
import { asSentence, escapeUnsafe } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { isFaultName, type Remedies } from '../host/remedy.ts'
import type { Phase, StatusResult } from '../protocol.ts'

const LABEL_WIDTH = 9

const meanings: Readonly<Record<Phase, string>> = {
  ready: 'the token is good and is refreshed in time',
  degraded: 'the token is good, but refreshing it fails',
  starting: 'there is no token yet',
  expired: 'the token has expired and there is no other',
  refused: 'the service refuses the account',
}

/** Lines of a label and a text. */
export function formatStatus(
  status: StatusResult,
  { nowMs, remedies }: { nowMs: number; remedies: Remedies },
): string {
  // The state of a newer daemon is shown as it is.
  const meaning = Object.hasOwn(meanings, status.state) ? `: ${meanings[status.state]}` : ''
  const lines: Line[] = [
    ['state', `${status.state}${meaning}`],
    ...stepsFor(status, remedies).map((step): Line => ['do', asSentence(step)]),
    ...partsOf(status, nowMs),
  ]
  return lines.map(([label, text]) => `${label.padEnd(LABEL_WIDTH)} ${escapeUnsafe(text)}\n`).join('')
}

type Line = readonly [label: string, text: string]

function partsOf(status: StatusResult, nowMs: number): Line[] {
  const { token, failure, nextAttemptAt, files, readers = [], share, service, daemon } = status
  const ago = (instant: string): string => `${formatDuration(nowMs - Date.parse(instant))} ago`
  const lines: Line[] = token === null ? [] : tokenLines(token, nowMs)
  lines.push(['next', nextAttemptAt === null ? 'no request is planned' : `a request at ${nextAttemptAt}`])
  if (failure !== null) lines.push(['failure', failureInWords(failure)])
  for (const { ok, path, error, format, present, writtenAt } of files) {
    const written = present && writtenAt !== null ? `written ${ago(writtenAt)}` : 'not there now'
    lines.push(['file', ok ? `${path} (${format}), ${written}` : `FAULT ${error}`])
  }
  for (const { uid, name, clients, connections, lastAt, count } of readers) {
    const who = [`${name} (uid ${uid})`, ...clients].join(', ')
    const taken = `${counted(count, 'token')}, the last ${ago(lastAt)}`
    lines.push(['reader', `${who}: ${taken}; ${counted(connections, 'connection')} now`])
  }
  if (share) {
    const { state, server, since, askedBy, lastError } = share
    const more = [askedBy && `asked by ${askedBy}`, lastError].filter(Boolean)
    lines.push(['share', [`${state}, ${server}, since ${since}`, ...more].join(', ')])
  }
  if (daemon.credentials) lines.push(['end', endInWords(daemon.credentials)])
  const { version, host, pid, startedAt, configFile } = daemon
  lines.push(['service', `${service.baseUrl}, ${counted(service.requests, 'request')}`])
  lines.push(['daemon', `${version} on ${host}, pid ${pid}, started ${ago(startedAt)}, ${configFile}`])
  return lines
}

function tokenLines(token: NonNullable<StatusResult['token']>, nowMs: number): Line[] {
  const { fingerprint, obtainedAt, expiresAt, stale } = token
  const leftMs = Date.parse(expiresAt) - nowMs
  const left = leftMs <= 0 ? 'over' : `${formatDuration(leftMs)} left`
  return [
    ['life', `${left}, until ${expiresAt}${stale ? ', stale' : ''}`],
    ['token', `${fingerprint}, obtained ${formatDuration(nowMs - Date.parse(obtainedAt))} ago`],
  ]
}

function failureInWords(failure: NonNullable<StatusResult['failure']>): string {
  const { reason, detail, status, since, attempts } = failure
  const http = status === undefined ? '' : ` (HTTP ${status})`
  return `${reason}${http} for ${counted(attempts, 'attempt')} since ${since}: ${detail}`
}

export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}

/** The actions that are due, the most important first, with the commands of this host; none if all is well. */
function stepsFor(status: StatusResult, remedies: Remedies): string[] {
  const { alert, failure, files, daemon } = status
  // Those of the configuration come first: another step may name a restart, which uses the pair in the files.
  const steps = stepsOfConfiguration(status, remedies)
  // An alert may be older than the present failure, whose remedy counts; a refusal stays one.
  if (alert !== null && (failure === null || status.state === 'refused')) steps.push(alert.remedy)
  // Another version may have a reason that this one does not know.
  else if (failure !== null && isFaultName(failure.reason)) steps.push(remedies.remedyOf(failure.reason))
  if (alert?.contact) steps.push(`Call ${alert.contact}`)
  if (files.some(({ ok }) => !ok)) steps.push('Correct each token file below that has a FAULT')
  steps.push(...(daemon.pathProblems ?? []))
  if (daemon.stateProblem) steps.push(`The state for a restart cannot be saved: ${daemon.stateProblem}`)
  return steps
}

/** Never a restart while another pair was not tried: that would use it. */
function stepsOfConfiguration({ daemon, candidate }: StatusResult, { remedyOf }: Remedies): string[] {
  const { state, problem, pair } = daemon.configuration
  if (state === 'current') return []
  const isRestart = problem !== null && pair === undefined
  const fault = state === 'faulty' ? 'faulty-on-disk' : isRestart ? 'restart-needed' : 'changed-on-disk'
  const isBeingAsked = pair !== undefined && Boolean(candidate)
  return [...(problem === null ? [] : [problem]), ...(isBeingAsked ? [] : [remedyOf(fault)])]
}

export function endInWords(end: NonNullable<StatusResult['daemon']['credentials']>): string {
  const { what, expiresAt, daysLeft } = end
  const name = what === 'credentials' ? 'key and secret' : 'the client certificate'
  if (daysLeft === 0) return `${name}: ended at ${expiresAt}`
  return `${name}: good until ${expiresAt} (for ${counted(daysLeft, 'more day')})`
}
