// The status as a person reads it: what is wrong first, times as they are spoken, and the next step.
import { tellDuration } from '../lib/duration.ts'
import type { Phase, StatusResult, TokenDescription } from '../protocol.ts'
import type { Reason } from '../token/outcome.ts'
import { remedyFor } from '../token/remedy.ts'

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
export function tellStatus(status: StatusResult, options: { nowMs: number; hasColour: boolean }): string {
  const { nowMs, hasColour } = options
  const ink: Ink = (colour, text) => (hasColour ? `\u001b[${CODES[colour]}m${text}\u001b[0m` : text)
  const { colour, meaning } = phases[status.state]
  const rows: [string, string[]][] = [
    ['life', status.token === null ? [] : [lifeLine(status.token, { nowMs, ink })]],
    ['token', status.token === null ? ['none'] : [tokenLine(status.token, nowMs)]],
    ['failure', failureLines(status, { nowMs, ink })],
    ['next', [nextLine(status, nowMs)]],
    ['files', fileLines(status, { nowMs, ink })],
    ['service', [serviceLine(status, nowMs)]],
    ['clients', [clientsLine(status)]],
    ['daemon', [daemonLine(status, nowMs)]],
  ]
  const lines = rows.flatMap(([label, texts]) =>
    texts.map((text, index) => `  ${ink('dim', (index === 0 ? label : '').padEnd(LABEL_WIDTH))}${text}`),
  )
  const head = `${ink(colour, '●')} ${ink('bold', status.state)}: ${meaning}`
  const steps = nextSteps(status).map((step) => `${ink(colour, '→')} ${step}`)
  return `${[head, '', ...lines, ...(steps.length > 0 ? ['', ...steps] : [])].map(printable).join('\n')}\n`
}

function lifeLine(token: TokenDescription, { nowMs, ink }: { nowMs: number; ink: Ink }): string {
  const leftMs = Date.parse(token.expiresAt) - nowMs
  const lifeMs = Math.max(1, Date.parse(token.expiresAt) - Date.parse(token.obtainedAt))
  const filled = Math.round(Math.min(1, Math.max(0, leftMs / lifeMs)) * BAR_WIDTH)
  const colour = leftMs > lifeMs / 4 ? 'green' : 'yellow'
  const bar = ink(colour, '█'.repeat(filled)) + ink('dim', '░'.repeat(BAR_WIDTH - filled))
  const isAssumed = token.expirySource === 'assumed'
  if (leftMs <= 0)
    return `${bar} past the life of ${tellDuration(lifeMs)} ${isAssumed ? 'assumed for it' : 'it had'}`
  return `${bar} ${tellDuration(leftMs)} left of ${tellDuration(lifeMs)}${isAssumed ? ' (assumed)' : ''}`
}

function tokenLine(token: TokenDescription, nowMs: number): string {
  return `${token.fingerprint}, number ${token.generation}, obtained ${ago(token.obtainedAt, nowMs)}${token.stale ? ', stale' : ''}`
}

function failureLines({ failure }: StatusResult, { nowMs, ink }: { nowMs: number; ink: Ink }): string[] {
  if (failure === null) return []
  const { reason, detail, status, since, attempts } = failure
  const answered = status === undefined ? '' : ` (HTTP ${status})`
  const often = attempts === 1 ? '' : `, ${attempts} attempts`
  return [`${ink('red', reason)}${answered}, ${ago(since, nowMs)}${often}`, detail]
}

function nextLine({ state, token, nextAttemptAt }: StatusResult, nowMs: number): string {
  if (nextAttemptAt === null)
    return state === 'refused' ? 'nothing until somebody acts' : 'nothing is planned'
  const what = token === null || state === 'degraded' ? 'attempt' : 'refresh'
  const leftMs = Date.parse(nextAttemptAt) - nowMs
  return leftMs <= 0 ? `${what} now` : `${what} in ${tellDuration(leftMs)}`
}

function fileLines({ files }: StatusResult, { nowMs, ink }: { nowMs: number; ink: Ink }): string[] {
  if (files.length === 0) return ['none are configured']
  const faulty = files.filter(({ ok }) => !ok)
  const good = files.filter(({ ok }) => ok)
  return [
    ...faulty.map(({ path, error }) => `${ink('red', '✗')} ${path}: ${error ?? 'not written'}`),
    ...good.map(({ path, format, writtenAt, repairs }) => {
      const written = writtenAt === null ? 'not written yet' : `written ${ago(writtenAt, nowMs)}`
      return `${ink('green', '✓')} ${path} (${format}), ${written}${repairs > 0 ? `, restored ${times(repairs)}` : ''}`
    }),
  ]
}

function serviceLine({ service }: StatusResult, nowMs: number): string {
  const { baseUrl, requests, lastRequestAt } = service
  const asked = lastRequestAt === null ? 'not asked yet' : `asked ${ago(lastRequestAt, nowMs)}`
  return `${baseUrl}, ${asked}, ${times(requests)} in all`
}

function clientsLine({ clients }: StatusResult): string {
  return Object.entries(clients)
    .flatMap(([name, count]: [string, StatusResult['clients']['http']]) =>
      count === null ? [] : [`${count.connections} on ${name} (${count.subscribers} subscribed)`],
    )
    .join(', ')
}

function daemonLine({ daemon }: StatusResult, nowMs: number): string {
  const { version, pid, startedAt, host, configFile } = daemon
  return `${version} on ${host}, pid ${pid}, started ${ago(startedAt, nowMs)}, ${configFile}`
}

/** What a person should do, the most important first; nothing where all is well. */
function nextSteps({ alert, failure, files }: StatusResult): string[] {
  const steps: string[] = []
  if (alert !== null) steps.push(alert.remedy)
  else if (failure !== null) steps.push(remedyFor(failure.reason as Reason))
  const faulty = files.filter(({ ok }) => !ok).length
  if (faulty > 0) steps.push(`Mend ${faulty === 1 ? 'the token file' : `the ${faulty} token files`} marked ✗`)
  return steps.map((step) => `${step.replace(/\.$/, '')}.`)
}

function ago(instant: string, nowMs: number): string {
  return `${tellDuration(nowMs - Date.parse(instant))} ago`
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`
}

/** Words of others must not steer the terminal: only our own colours do. */
function printable(line: string): string {
  return line.replaceAll(
    /(\u001b\[\d+m)|[\u0000-\u001f\u007f-\u009f]/g,
    (_, colour: string | undefined) => colour ?? '?',
  )
}
