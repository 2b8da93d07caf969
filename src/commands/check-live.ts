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

/** With the exit status. */
type Answer = { readonly findings: readonly Finding[]; readonly status: number }

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
  const seen = [ok(`is sent ${requestInWords(config.service)}`)]
  let { ca } = config.request
  const { NODE_EXTRA_CA_CERTS: file } = env
  try {
    // Those of the unit: Node reads the variable of its own environment alone, at its start.
    if (file) ca = `${ca ?? ''}\n${readFileSync(file, 'utf8')}`
  } catch (error) {
    const why = `which cannot be read (${errorMessage(error)}): correct it, or use request.caFile`
    seen.push(warning(`NODE_EXTRA_CA_CERTS names ${file}, ${why}`))
  }
  const request = { ...config.request, ca }
  const onAnswer = (answer: ServiceResponse): unknown =>
    seen.push(ok(`answers with ${describeAnswer(answer, revealAll(config))}`))
  const fetchToken = createFetchToken({ ...config, request, env, clock, secrets: () => [], onAnswer })
  const outcome = await fetchToken(signal)
  const { findings, status } = answerOf(outcome, { wallMs: clock.now().wallMs, config })
  return { findings: [...seen, ...findings], status }
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
  const lifeMs = knownLife(outcome, wallMs)?.lifeMs
  if (lifeMs !== undefined && lifeMs <= 0) {
    const sentence = `gave a token that has expired already (HTTP 200). ${asSentence(remedies['malformed-answer'])}`
    return { findings: [failure(sentence)], status: exitStatus.tryAgain }
  }
  const lives = lifeMs === undefined ? 'does not say how long it lives' : `lives ${formatDuration(lifeMs)}`
  const findings = [ok(`gave a token that ${lives} (HTTP 200)`)]
  if (service.lifetime !== null && outcome.answerLifeMs === undefined)
    findings.push(
      warning(`gave no life at "${service.lifetime.join('.')}", in seconds: correct service.lifetime`),
    )
  const offMs = wallMs - (outcome.serverDateMs ?? wallMs)
  const sentence = (off: string): string => `the clock is ${off} the service's: set it`
  return {
    findings: [...findings, ...clockFindings(offMs, { leastMs: CLOCK_OFF_MS, sentence })],
    status: exitStatus.ok,
  }
}
