// Asks the service for a token once, for `check --live`, and says what came of it. The token is dropped.
import { readFileSync } from 'node:fs'

import { revealAll, type Config, type ServiceConfig } from '../config/config.ts'
import { createSystemClock } from '../lib/clock.ts'
import { asSentence } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { errorMessage, exitStatus } from '../lib/error.ts'
import { failure, ok, warning, type Finding, clockFindings } from '../lib/finding.ts'
import { createFetchToken } from '../source/fetch-token.ts'
import { describeAnswer, type ServiceResponse } from '../source/response.ts'
import { remedies, type ServiceOutcome } from '../token/outcome.ts'
import { knownLife } from '../token/token.ts'

/** A wall clock that is off by more than this gets a warning. */
const CLOCK_OFF_MS = 60_000

interface Answer {
  readonly findings: readonly Finding[]
  /** Exit status. */
  readonly status: number
}

export async function askOnce(
  config: Config,
  { unseen, env, signal }: { unseen: readonly string[]; env: NodeJS.ProcessEnv; signal: AbortSignal },
): Promise<Answer> {
  const hidden = unseen.filter((setting) => setting.startsWith('credentials.'))
  if (hidden.length > 0) {
    const sentence = `cannot be asked from here, because only the service sees ${hidden.join(' and ')}: ask with "kyc-tokend refresh"`
    return { findings: [warning(sentence)], status: exitStatus.tryAgain }
  }
  const clock = createSystemClock()
  const extra = extraAuthorities(env)
  const seen = [ok(`is sent ${requestInWords(config.service)}`), ...extra.findings]
  const request = { ...config.request, ca: `${config.request.ca ?? ''}\n${extra.pem}`.trim() || null }
  const onAnswer = (answer: ServiceResponse): unknown =>
    seen.push(ok(`answers with ${describeAnswer(answer, revealAll(config))}`))
  const fetchToken = createFetchToken({ ...config, request, env, clock, secrets: () => [], onAnswer })
  const outcome = await fetchToken(signal)
  const { findings, status } = answerOf(outcome, { wallMs: clock.now().wallMs, config })
  return { findings: [...seen, ...findings], status }
}

/** The authorities that the unit's Node trusts; this one has read the variable of its own environment at its start. */
function extraAuthorities({ NODE_EXTRA_CA_CERTS: path }: NodeJS.ProcessEnv): {
  pem: string
  findings: Finding[]
} {
  if (!path) return { pem: '', findings: [] }
  try {
    return { pem: readFileSync(path, 'utf8'), findings: [] }
  } catch (error) {
    const sentence = `NODE_EXTRA_CA_CERTS names ${path}, which cannot be read (${errorMessage(error)}): correct it, or use request.caFile`
    return { pem: '', findings: [warning(sentence)] }
  }
}

/** The request with the names of its fields and headers, and none of their values. */
function requestInWords({ tokenUrl, send, names, parameters, headers }: ServiceConfig): string {
  const { origin, pathname } = new URL(tokenUrl)
  const own = send === 'basic' ? [] : [names.apiKey, names.apiSecret]
  const quoted = (fields: readonly string[]): string => fields.map((name) => `"${name}"`).join(', ')
  const fields = quoted([...own, ...Object.keys(parameters)])
  const further = Object.keys(headers)
  return [
    `POST ${origin}${pathname} with ${send === 'json' ? 'JSON' : 'a form'}`,
    ...(fields === '' ? [] : [` of ${fields}`]),
    ...(send === 'basic' ? [', key and secret as HTTP Basic'] : []),
    ...(further.length === 0 ? [] : [`, and the headers ${quoted(further)}`]),
  ].join('')
}

function answerOf(outcome: ServiceOutcome, { wallMs, config }: { wallMs: number; config: Config }): Answer {
  const { file, service } = config
  if (outcome.kind !== 'ok') {
    const http = outcome.status === undefined ? 'was not reached' : `answered with HTTP ${outcome.status}`
    // It is being tried here already.
    const remedy = remedies[outcome.reason].replace(/; `kyc-tokend check --live` tries it$/, '')
    const sentence = `${http} (${outcome.reason}): ${asSentence(outcome.detail)} ${asSentence(remedy)} Configuration: ${file}`
    const status = outcome.kind === 'permanent' ? exitStatus.noPermission : exitStatus.tryAgain
    return { findings: [failure(sentence)], status }
  }
  const { serverDateMs } = outcome
  const lifeMs = knownLife(outcome, wallMs)?.lifeMs
  if (lifeMs !== undefined && lifeMs <= 0) {
    const sentence = `gave a token that has expired already (HTTP 200). ${asSentence(remedies['malformed-answer'])}`
    return { findings: [failure(sentence)], status: exitStatus.tryAgain }
  }
  const lives = lifeMs === undefined ? 'does not say how long it lives' : `lives ${formatDuration(lifeMs)}`
  const given = ok(`gave a token that ${lives} (HTTP 200)`)
  const hasNoLife = service.lifetime !== null && outcome.answerLifeMs === undefined
  const findings = [
    given,
    ...(hasNoLife
      ? [warning(`gave no life at "${service.lifetime.join('.')}", in seconds: correct service.lifetime`)]
      : []),
    ...clockFindings(serverDateMs === undefined ? 0 : wallMs - serverDateMs, {
      leastMs: CLOCK_OFF_MS,
      sentence: (off) => `the clock is ${off} the service's: set it`,
    }),
  ]
  return { findings, status: exitStatus.ok }
}
