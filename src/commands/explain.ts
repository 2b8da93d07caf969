// `kyc-tokend explain`: what the daemon would do after an answer of the service, by its own code.
import { join } from 'node:path'
import { loadPlan } from '../config/load.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus, UsageError } from '../lib/error.ts'
import { SYSTEM_CONFIG_DIRECTORY } from '../host/paths.ts'
import { remedyLine, renderedAt, type Place } from '../host/remedy.ts'
import { placeOfConfig } from '../host/systemd.ts'
import { MAX_BODY_BYTES, type ServiceResponse } from '../source/answer.ts'
import { createClassify, failureTable } from '../source/response.ts'
import { ENDLESS, MAX_DELAY_WITHOUT_TOKEN_MS, retryPlan } from '../token/backoff.ts'
import { type ServiceOutcome, type TransientFailure } from '../token/outcome.ts'
import { initialState, type Policy } from '../token/state.ts'
import type { Token } from '../token/token.ts'
import { nextState } from '../token/transitions.ts'
import type { Invocation, RunCommand } from '../terminal/command.ts'
import { keyMistakes } from '../terminal/format-status.ts'
import { readNamed } from '../terminal/named-file.ts'

const AFTER_REFUSAL =
  'one alert, and no request until the credentials or baseUrl change, an operator runs `kyc-tokend ' +
  'refresh`, or the daemon is started after an orderly stop'
const AFTER_SHARED_REFUSAL =
  'one alert for all hosts that share, and no request of theirs until the credentials or baseUrl ' +
  'change, or an operator runs `kyc-tokend refresh` on one of them; a host that is started after an ' +
  'orderly stop asks only if the shared store is away or the refusal is an hour old'

export const run: RunCommand = async (invocation) => {
  const { options, env, stdout } = invocation
  const status = statusOf(options['status'])
  const headers = headersOf(options['header'])
  const answer: ServiceResponse = { status, headers, ...(await bodyOf(invocation)) }
  const now = { bootMs: 0, wallMs: Date.now() }
  const { file, service, retry, refresh, isShared } = await loadPlan({ configPath: options['config'], env })
  const policy = { ...retry, ...refresh }
  const place = await placeOfConfig(file ?? join(SYSTEM_CONFIG_DIRECTORY, 'kyc-tokend.config.json'))
  const table = failureTable(service)
  const { outcome: said, row } = createClassify(service)(answer, { wallMs: now.wallMs, secrets: [] })
  // A token without life left is a failure.
  const step = { now, awakeMs: 0, policy, drawn: 0 }
  const { state, outcome } = nextState(initialState({ baseUrl: '', credentialsId: '' }, now), said, step)
  const answered = outcome === said ? row : table.find(({ reason }) => reason === 'malformed-answer')!
  const number = table.findIndex((one) => one.answer === answered.answer) + 1
  const lines = [
    `Row: ${number} of ${table.length} (${answered.answer}): ${answered.follows}`,
    ...(outcome.kind === 'ok'
      ? tokenLines(state.token!)
      : failureLines(outcome, { policy, isShared, place })),
  ]
  stdout.write(`${lines.join('\n')}\n`)
  return exitStatus.ok
}

function failureLines(
  outcome: Exclude<ServiceOutcome, { kind: 'ok' }>,
  { policy, isShared, place }: { policy: Policy; isShared: boolean; place: Place },
): string[] {
  const { reason, detail } = outcome
  const refused = isShared ? AFTER_SHARED_REFUSAL : AFTER_REFUSAL
  const then =
    outcome.kind === 'permanent'
      ? `${refused}; a token that is still good is served until it expires`
      : retryLine(outcome, policy)
  const mistakes = keyMistakes(reason).map((advice) => renderedAt(advice, place))
  const remedy = [remedyLine(reason, place), ...mistakes].join('; ')
  return [`Reason: ${reason}`, `Detail: ${detail}`, `Then: ${then}`, `Remedy: ${remedy}`]
}

function tokenLines({ lifeMs, refreshAtMs, expirySource }: Token): string[] {
  const life = formatDuration(lifeMs)
  const source =
    expirySource !== 'assumed'
      ? `It lives ${life} by ${expirySource === 'jwt' ? 'its own word' : 'the word of the answer'}`
      : `It does not say how long it lives: ${life} is assumed (refresh.maxAge)`
  return [
    'Reason: none, it is a token',
    `Then: served to everybody. ${source}; refreshed after about ${formatDuration(refreshAtMs)}`,
  ]
}

/** When the service is asked again, with the shortest and the longest time that chance can give. */
function retryLine(failure: TransientFailure, policy: Policy): string {
  const waitMs = (attempts: number, drawn: number): number =>
    retryPlan(failure, { nowMs: 0, attempts, policy, drawn, left: ENDLESS, notBeforeMs: 0 }).retryAtMs
  const range = `${formatDuration(waitMs(1, 0))} to ${formatDuration(waitMs(1, 1))}`
  if (failure.reason === 'rejected') return `an alert, and asked again every ${range}`
  const bound =
    failure.retryAfterMs === undefined
      ? ''
      : `, not before the ${formatDuration(failure.retryAfterMs)} of Retry-After`
  const [cap, otherCap] = [policy.maxDelayMs, MAX_DELAY_WITHOUT_TOKEN_MS].map(formatDuration)
  const growth = `the wait doubles with each failure, up to ${cap}, or ${otherCap} while there is no token`
  return `asked again after ${range}${bound}; ${growth}`
}

function statusOf(option: Invocation['options'][string]): number {
  if (typeof option === 'string' && /^[1-9]\d\d$/.test(option)) return Number(option)
  throw new UsageError('--status takes the HTTP status of the answer, such as --status 500.')
}

/** The header by its lower-case name. */
function headersOf(option: Invocation['options'][string]): Record<string, string> {
  if (option === undefined) return {}
  const [, name, value = ''] = /^([\w!#$%&'*+.^`|~-]+):\s*(.*?)\s*$/.exec(String(option)) ?? []
  if (name === undefined)
    throw new UsageError("--header takes a name and a value, such as --header 'Retry-After: 120'.")
  return { [name.toLowerCase()]: value }
}

/** The body as the daemon would read it: none if it is longer than its limit. */
async function bodyOf(invocation: Invocation): Promise<Pick<ServiceResponse, 'body' | 'isCut'>> {
  const path = invocation.options['body']
  if (path === undefined) return { body: new Uint8Array() }
  const body = await readNamed({ by: '--body', path: String(path), maxBytes: MAX_BODY_BYTES }, invocation)
  return body === undefined ? { body: new Uint8Array(), isCut: true } : { body }
}
