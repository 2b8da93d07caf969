// The service, asked once for a token, as the daemon would: what is sent, what comes back, and what to do
// about it.
import { createSystemClock } from '../lib/clock.ts'
import { asSentence } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus } from '../lib/error.ts'
import { clockFindings, failure, ok, warning, type Finding } from '../host/finding.ts'
import { programCommand, remedyLine, type Place } from '../host/place-commands.ts'
import { type Config, revealAll, type ServiceConfig } from '../config/config.ts'
import { partsOf } from '../config/next/adapt.ts'
import type { ServiceResponse } from '../source/answer.ts'
import { createFetchToken } from '../source/fetch-token.ts'
import { type ServiceOutcome } from '../token/outcome.ts'
import { knownLife } from '../token/token.ts'

/** A wall clock that is off by more than this gets a warning. */
const CLOCK_OFF_MS = 60_000

/** The findings about the service's answer, and the exit status for it. */
interface Answer {
  readonly findings: readonly Finding[]
  readonly status: number
  /** Why there is no token, if the service was asked. */
  readonly reason?: string
}

/** Asks the service for a token once and says what came of it. The token is dropped. */
export async function askOnce(
  config: Config,
  options: {
    readonly unseen: readonly string[]
    readonly env: NodeJS.ProcessEnv
    readonly place: Place
    readonly signal: AbortSignal
  },
): Promise<Answer> {
  const { unseen, env, place, signal } = options
  const hidden = unseen.filter((setting) => !setting.startsWith('share.'))
  if (hidden.length > 0) {
    const why = `cannot be asked from here, because only the daemon sees ${hidden.join(' and ')}`
    const findings = [warning(`${why}: ask with \`${programCommand('refresh', place)}\``)]
    return { findings, status: exitStatus.tryAgain }
  }
  const clock = createSystemClock()
  const secrets = (): string[] => revealAll(config)
  const seen = [ok(`is sent ${requestInWords(config.service)}`)]
  const onAnswer = ({ status }: ServiceResponse): unknown => seen.push(ok(`answers with HTTP ${status}`))
  const outcome = await createFetchToken({ ...partsOf(config), env, clock, secrets, onAnswer })(signal)
  const answer = answerOf(outcome, { wallMs: clock.now().wallMs, config, place })
  return { ...answer, findings: [...seen, ...answer.findings] }
}

/** The request with the names of its fields and headers, and none of their values. */
function requestInWords({ tokenUrl, send, names, parameters, headers }: ServiceConfig): string {
  const { origin, pathname } = new URL(tokenUrl)
  const named = [names.apiKey, names.apiSecret].filter((name) => name !== null)
  const isInBody = send === 'json' || send === 'form'
  const quoted = (fields: readonly string[]): string => fields.map((name) => `"${name}"`).join(', ')
  const fields = quoted([...(isInBody ? named : []), ...Object.keys(parameters)])
  const further = [...(send === 'headers' ? named : []), ...Object.keys(headers)]
  const ways = {
    json: '',
    form: '',
    headers: '',
    basic: ', key and secret as HTTP Basic',
    'basic-plain': ', key and secret as HTTP Basic, not form-encoded',
    assertion: ', a signed assertion',
  }
  return [
    `POST ${origin}${pathname} with ${send === 'json' || send === 'headers' ? 'JSON' : 'a form'}`,
    ...(fields === '' ? [] : [` of ${fields}`]),
    ways[send],
    ...(further.length === 0 ? [] : [`, and the headers ${quoted(further)}`]),
  ].join('')
}

/** Many servers do not decode what RFC 6749, section 2.3.1, has encoded. */
const PLAIN_BASIC =
  'If key and secret are right, the service may not decode them: try "send": "basic-plain" in `service`.'

function failed(
  outcome: Exclude<ServiceOutcome, { kind: 'ok' }>,
  { config: { file, service }, place }: { config: Config; place: Place },
): Answer {
  const http = outcome.status === undefined ? 'was not reached' : `answered with HTTP ${outcome.status}`
  // A daemon may run with another pair, which is good: nothing here has it read these files.
  const remedy = asSentence(remedyLine(outcome.reason, place))
  const hint = outcome.status === 401 && service.send === 'basic' ? ` ${PLAIN_BASIC}` : ''
  const said = `${http} (${outcome.reason}): ${asSentence(outcome.detail)}${hint}`
  const status = outcome.kind === 'permanent' ? exitStatus.noPermission : exitStatus.tryAgain
  const findings = [failure(`${said} ${remedy} Configuration: ${file}`)]
  return { findings, status, reason: outcome.reason }
}

function answerOf(
  outcome: ServiceOutcome,
  { wallMs, config, place }: { wallMs: number; config: Config; place: Place },
): Answer {
  const { service } = config
  if (outcome.kind !== 'ok') return failed(outcome, { config, place })
  const lifeMs = knownLife(outcome, wallMs)?.lifeMs
  if (lifeMs !== undefined && lifeMs <= 0) {
    const remedy = asSentence(remedyLine('malformed-answer', place))
    const findings = [failure(`gave a token that has expired already (HTTP 200). ${remedy}`)]
    return { findings, status: exitStatus.tryAgain }
  }
  const lives = lifeMs === undefined ? 'does not say how long it lives' : `lives ${formatDuration(lifeMs)}`
  const findings = [ok(`gave a token that ${lives} (HTTP 200)`)]
  const path = service.lifetime ?? service.expires
  if (path !== null && outcome.answerLifeMs === undefined) {
    const isLife = service.lifetime !== null
    const what = `gave no ${isLife ? 'life' : 'instant'} at "${path.join('.')}"`
    const form = isLife ? 'in seconds' : 'with a zone, or in seconds or ms since 1970'
    findings.push(warning(`${what}, ${form}: correct service.${isLife ? 'lifetime' : 'expires'}`))
  }
  const offMs = wallMs - (outcome.serverDateMs ?? wallMs)
  const sentence = (off: string): string => `the clock is ${off} the service's: set it`
  return {
    findings: [...findings, ...clockFindings(offMs, { leastMs: CLOCK_OFF_MS, sentence })],
    status: exitStatus.ok,
  }
}
